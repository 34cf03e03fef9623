"""The bounded queue and the consumer of one stream.

Between the subscription's callback and the buffer: a callback must return at once, whatever the
buffer makes of the message.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from mcp_perception_buffer.model import IMAGES

if TYPE_CHECKING:
    from mcp_perception_buffer.buffer import Buffer
    from mcp_perception_buffer.model import StreamInfo

QUEUE_DEPTH = 64
# Enough for a header with a long frame_id; the pixels behind it go before they are queued.
IMAGE_HEADER_BYTES = 1024


class Ingest:
    """Carries one stream's messages, in order, from its subscription into the buffer."""

    def __init__(self, info: StreamInfo, buffer: Buffer) -> None:
        self._topic = info.topic
        self._header_only = info.kind in IMAGES
        self._buffer = buffer
        self._queue: asyncio.Queue[tuple[bytes, int]] = asyncio.Queue(QUEUE_DEPTH)

    def offer(self, cdr: bytes, received_ns: int) -> None:
        """Queue a message received then; when full, the oldest one goes and is counted."""
        if self._header_only:
            cdr = cdr[:IMAGE_HEADER_BYTES]
        if self._queue.full():
            self._queue.get_nowait()
            self._buffer.count_dropped(self._topic)
        self._queue.put_nowait((cdr, received_ns))

    async def run(self) -> None:
        """Drain the queue into the buffer until cancelled."""
        structlog.contextvars.bind_contextvars(stream=self._topic)
        while True:
            cdr, received_ns = await self._queue.get()
            self._buffer.put(self._topic, cdr, received_ns)
            # Waking a task costs more than the buffer's work: what came together goes together.
            self.drain()

    def drain(self) -> None:
        """Hand over all that is queued."""
        while not self._queue.empty():
            self._buffer.put(self._topic, *self._queue.get_nowait())
