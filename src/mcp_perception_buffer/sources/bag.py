"""A recorded bag, played into the same path as live topics; needs no ROS."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import structlog
from pydantic import Field

from mcp_perception_buffer.decoding.decoder import packaged_definition
from mcp_perception_buffer.errors import ConfigError, UnknownTypeError
from mcp_perception_buffer.ingest import Ingest
from mcp_perception_buffer.model import Unsupported
from mcp_perception_buffer.sources.bag_file import BagFile
from mcp_perception_buffer.sources.base import Source
from mcp_perception_buffer.sources.mapping import find_unmapped, why_taken
from mcp_perception_buffer.sources.ros_types import installed_definition

if TYPE_CHECKING:
    from collections.abc import Callable

    from rosbags.interfaces import Connection

    from mcp_perception_buffer.buffer import Buffer
    from mcp_perception_buffer.decoding.decoder import Decoder
    from mcp_perception_buffer.model import StreamInfo
    from mcp_perception_buffer.sources.topics import TopicFilter

log = structlog.get_logger(__name__)

# A pause in the bag is slept through in steps, so that the heartbeat goes on.
STEP_S = 1.0

Factor = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class BagSource(Source):
    """Plays the wanted topics of one bag, over and over if asked to."""

    def __init__(
        self,
        buffer: Buffer,
        topics: TopicFilter,
        decoder: Decoder,
        *,
        path: Path,
        rate: Factor = 1.0,
        start: Seconds = 0.0,
        loop: bool = True,
    ) -> None:
        """Prepare; the bag is opened by `run`.

        Args:
            buffer: receives the messages.
            topics: which topics are wanted and what each carries.
            decoder: says which types can be read.
            path: the folder of a rosbag2, or one of its files.
            rate: how many times as fast as it was recorded.
            start: how many seconds of it are left out, each time that it is played.
            loop: begin anew at the end; otherwise the streams are gone then.
        """
        self._buffer = buffer
        self._topics = topics
        self._decoder = decoder
        self._path = Path(path)
        self._rate = rate
        self._start_s = start
        self._loop = loop
        self._bag: BagFile | None = None
        self._last_beat_ns = time.monotonic_ns()

    @property
    def last_beat_ns(self) -> int:
        """See `Source.last_beat_ns`."""
        return self._last_beat_ns

    def find_definition(self, type_name: str) -> str:
        """Read a type from the bag, else from what is installed, else from the common ones.

        Raises:
            UnknownTypeError: none of them defines it.
        """
        text = self._bag.definition(type_name) if self._bag else None
        if text is not None:
            return text
        for find in (installed_definition, packaged_definition):
            with contextlib.suppress(UnknownTypeError):
                return find(type_name)
        raise UnknownTypeError(
            f"neither the bag nor this computer defines {type_name}; sqlite3 bags hold definitions"
            f" from ROS 2 Iron on, for others install the package {type_name.partition('/')[0]}"
        )

    async def run(self, on_ready: Callable[[], None]) -> None:
        """See `Source.run`.

        Raises:
            ConfigError: the bag is shorter than what is to be left out of it.
        """
        with contextlib.closing(BagFile(self._path)) as bag:
            self._bag = bag
            if self._start_s and self._start_s >= bag.duration_s:
                raise ConfigError(
                    f"source.start = {self._start_s:g}: past the end of the bag {self._path},"
                    f" which lasts {bag.duration_s:.1f} s"
                )
            async with asyncio.TaskGroup() as tasks:
                wanted, streams = self._open(bag, tasks)
                self._buffer.discovering = False
                on_ready()
                while True:
                    await self._play(bag, wanted, streams)
                    if not self._loop:
                        break
                for topic in streams:
                    self._buffer.set_publishers(topic, 0)
                log.info("bag_ended", path=str(self._path))
                await self._pass(float("inf"))

    def _open(
        self, bag: BagFile, tasks: asyncio.TaskGroup
    ) -> tuple[list[Connection], dict[str, Ingest]]:
        """Open a stream for each topic that can be read; returns what to play, and into what."""
        wanted: list[Connection] = []
        streams: dict[str, Ingest] = {}
        types: dict[str, str] = {}
        unsupported, others = [], []
        for connection in sorted(bag.connections, key=lambda c: (c.topic, c.msgtype)):
            info = self._topics.classify(connection.topic, connection.msgtype)
            if info is None:
                others.append((connection.topic, connection.msgtype))
            elif reason := self._why_unreadable(info, types):
                unsupported.append(Unsupported(info.topic, info.type, reason, info.skill))
            else:
                wanted.append(connection)
                if info.topic not in streams:
                    self._buffer.open(info)
                    types[info.topic] = info.type
                    ingest = streams[info.topic] = Ingest(info, self._buffer)
                    tasks.create_task(ingest.run(), name=f"consume:{info.topic}")
        self._buffer.unsupported = tuple(dict.fromkeys(unsupported))
        self._buffer.unmapped = find_unmapped(others, self._decoder)
        return wanted, streams

    def _why_unreadable(self, info: StreamInfo, types: dict[str, str]) -> str | None:
        """Say why not, after those topics that are read already, and their types."""
        if types.get(info.topic, info.type) != info.type:
            return f"conflict: {types[info.topic]} is read from this topic"
        reason = self._decoder.why_unreadable(info.kind, info.type, info.reading)
        return reason or why_taken(info, self._buffer, types)

    async def _play(
        self, bag: BagFile, wanted: list[Connection], streams: dict[str, Ingest]
    ) -> None:
        began_ns = time.monotonic_ns()
        for connection, at_s, cdr in bag.messages(wanted, self._start_s):
            due_s = (at_s - self._start_s) / self._rate
            await self._pass(due_s - (time.monotonic_ns() - began_ns) / 1e9)
            streams[connection.topic].offer(cdr, time.monotonic_ns())
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
