"""The bounded queue and the consumer of one stream.

Between the subscription's callback and the buffer: a callback must return at once, whatever the
buffer makes of the message.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING

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
        self._header_only = info.kind.is_image
        self._buffer = buffer
        self._queue: deque[tuple[bytes, int]] = deque()
        self._loop = asyncio.get_running_loop()
        self._failed: asyncio.Future[None] = self._loop.create_future()
        self._draining: asyncio.Handle | None = None

    def offer(self, cdr: bytes) -> None:
        """Queue a message just received; when full, the oldest one goes and is counted."""
        if self._header_only:
            cdr = cdr[:IMAGE_HEADER_BYTES]
        if len(self._queue) >= QUEUE_DEPTH:
            self._queue.popleft()
            self._buffer.count_dropped(self._topic)
        self._queue.append((cdr, time.monotonic_ns()))
        if self._draining is None:
            # Not a queue's `get` in a task: waking one costs more than the buffer's whole work.
            self._draining = self._loop.call_soon(self._drain)

    async def run(self) -> None:
        """Drain the queue into the buffer until cancelled."""
        try:
            await self._failed
        finally:
            if self._draining is not None:
                self._draining.cancel()
            self._queue.clear()

    def _drain(self) -> None:
        self._draining = None
        try:
            while self._queue:
                cdr, received_ns = self._queue.popleft()
                self._buffer.put(self._topic, cdr, received_ns)
        except Exception as error:
            if not self._failed.done():
                self._failed.set_exception(error)  # ends `run`, and with it the service
