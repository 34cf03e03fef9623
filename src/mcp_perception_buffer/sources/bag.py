"""A recorded bag, played in real time into the same path as live topics; needs no ROS."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from rosbags.highlevel import AnyReader, AnyReaderError
from rosbags.typesys import Stores, get_typestore

from mcp_perception_buffer.decoding.decoder import packaged_definition
from mcp_perception_buffer.errors import UnavailableError
from mcp_perception_buffer.ingest import Ingest
from mcp_perception_buffer.model import Unsupported
from mcp_perception_buffer.sources.base import Source

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp_perception_buffer.buffer import Buffer
    from mcp_perception_buffer.decoding.decoder import Decoder
    from mcp_perception_buffer.sources.topics import TopicFilter

log = structlog.get_logger(__name__)

# A pause in the bag is slept through in steps, so that the heartbeat goes on.
STEP_S = 1.0


class BagSource(Source):
    """Plays the wanted topics of one bag, over and over if asked to."""

    def __init__(
        self,
        buffer: Buffer,
        topics: TopicFilter,
        decoder: Decoder,
        *,
        path: Path,
        loop: bool = True,
    ) -> None:
        """Prepare; the bag is opened by `run`.

        Args:
            buffer: receives the messages.
            topics: which topics are wanted and what each carries.
            decoder: says which types can be read.
            path: the folder of a rosbag2, or a ROS 1 bag file.
            loop: begin anew at the end; otherwise the streams are gone then.
        """
        self._buffer = buffer
        self._topics = topics
        self._decoder = decoder
        self._path = Path(path)
        self._loop = loop
        self._reader: AnyReader | None = None
        self._last_beat_ns = time.monotonic_ns()

    @property
    def last_beat_ns(self) -> int:
        """See `Source.last_beat_ns`."""
        return self._last_beat_ns

    def find_definition(self, type_name: str) -> str:
        """Read a type from the bag's own definitions.

        Raises:
            UnknownTypeError: the bag does not define it, and it is no common one.
        """
        store = self._reader.typestore if self._reader else None
        if store is None or type_name not in store.fielddefs:
            return packaged_definition(type_name)
        return store.generate_msgdef(type_name)[0]

    async def run(self, on_ready: Callable[[], None]) -> None:
        """See `Source.run`."""
        try:
            reader = AnyReader([self._path], default_typestore=get_typestore(Stores.LATEST))
            reader.open()
        except (AnyReaderError, OSError) as error:
            raise UnavailableError(f"the bag {self._path} cannot be read: {error}") from error
        self._reader = reader
        try:
            async with asyncio.TaskGroup() as tasks:
                streams = self._open(reader, tasks)
                self._buffer.discovering = False
                on_ready()
                while True:
                    await self._play(reader, streams)
                    if not self._loop:
                        break
                for topic in streams:
                    self._buffer.set_publishers(topic, 0)
                log.info("bag_ended", path=str(self._path))
                await self._pass(float("inf"))
        finally:
            reader.close()

    def _open(self, reader: AnyReader, tasks: asyncio.TaskGroup) -> dict[str, Ingest]:
        streams: dict[str, Ingest] = {}
        unsupported = []
        for connection in reader.connections:
            info = self._topics.classify(connection.topic, connection.msgtype)
            if info is None:
                continue
            if reason := self._decoder.why_unreadable(info.kind, info.type, info.reading):
                unsupported.append(Unsupported(info.topic, info.type, reason, info.skill))
                continue
            self._buffer.open(info)
            ingest = streams[info.topic] = Ingest(info, self._buffer)
            tasks.create_task(ingest.run(), name=f"consume:{info.topic}")
        self._buffer.unsupported = tuple(unsupported)
        return streams

    async def _play(self, reader: AnyReader, streams: dict[str, Ingest]) -> None:
        began_ns = time.monotonic_ns()
        wanted = [connection for connection in reader.connections if connection.topic in streams]
        for connection, stamp_ns, cdr in reader.messages(wanted):
            due_ns = began_ns + stamp_ns - reader.start_time
            await self._pass((due_ns - time.monotonic_ns()) / 1e9)
            streams[connection.topic].offer(bytes(cdr), time.monotonic_ns())
        # Also the least pause between two rounds, should a bag hold next to nothing.
        await self._pass(STEP_S)

    async def _pass(self, seconds: float) -> None:
        """Let time pass, and others run, without the heartbeat standing still."""
        while True:
            self._last_beat_ns = time.monotonic_ns()
            await asyncio.sleep(max(0.0, min(seconds, STEP_S)))
            seconds -= STEP_S
            if seconds <= 0:
                return
