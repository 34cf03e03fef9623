"""The stdio side: one client on stdin and stdout, whatever kind of file these are.

The loop itself reads and writes; a thread that does could not be ended while it waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import select
import sys
from typing import TYPE_CHECKING, Any, Self, cast

import structlog
from mcp.server.stdio import stdio_server
from mcp.types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from mcp_perception_buffer.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from anyio import AsyncFile
    from mcp.shared.message import SessionMessage

log = structlog.get_logger(__name__)

MAX_MESSAGE = 4 * 1024 * 1024  # bytes, as over HTTP
READ_SIZE = 65_536
# How long a client that has hung up may keep the service with what it still asked.
ANSWER_TIMEOUT_S = 5
# Answered when the stream of events ends, which no client waits for.
ENDLESS = "subscriptions/listen"


@contextlib.asynccontextmanager
async def stdio_streams() -> AsyncIterator[tuple[Any, Answers]]:
    """Give a server its streams in and out, until the client hangs up.

    The one in ends only when all that was asked has been answered. Meanwhile whatever else writes
    to stdout, rcl and DDS included, lands on stderr.

    Raises:
        UnavailableError: stdin or stdout is closed.
    """
    if sys.stdin is None or sys.stdout is None:
        raise UnavailableError(
            "MCP_TRANSPORT is stdio, but stdin or stdout is closed: let an MCP client start this, "
            "or unset MCP_TRANSPORT to serve over HTTP"
        )
    with _claimed_stdout() as stdout:
        wire = Wire(sys.stdin.fileno(), stdout)
        # Nothing but lines is asked of the one, nothing but `write` and `flush` of the other.
        lines, out = cast("AsyncFile[str]", wire.lines()), cast("AsyncFile[str]", wire)
        async with stdio_server(lines, out) as (read, write):
            unanswered = Unanswered()
            yield Questions(read, unanswered), Answers(write, unanswered)


@contextlib.contextmanager
def _claimed_stdout() -> Iterator[int]:
    """Give stdout's place to stderr, and to the block a descriptor of what was there."""
    sys.stdout.flush()
    own = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
    try:
        os.dup2(2, 1)
        yield own
    finally:
        os.dup2(own, 1)
        os.close(own)


class Wire:
    """Lines from stdin, text to stdout; when nobody takes the text, the lines end too."""

    def __init__(self, stdin: int, stdout: int) -> None:
        self._stdin = stdin
        self._stdout = stdout
        self._gone = False
        self._news = asyncio.Event()

    async def lines(self) -> AsyncIterator[str]:
        """Yield what comes in, line by line; one that is too long is left out."""
        held, leaving_out = b"", False
        while chunk := await self._read():
            *lines, held = (held + chunk).split(b"\n")
            for line in lines:
                if not leaving_out:
                    yield line.decode("utf-8", "replace")
                leaving_out = False
            if len(held) > MAX_MESSAGE:
                if not leaving_out:
                    log.warning("message_too_long", limit_bytes=MAX_MESSAGE)
                held, leaving_out = b"", True
        if held and not leaving_out:
            yield held.decode("utf-8", "replace")

    async def _read(self) -> bytes:
        while not self._gone:
            self._news.clear()
            await _until(self._stdin, select.POLLIN, self._news)
            if self._gone:
                break
            try:
                return os.read(self._stdin, READ_SIZE)
            except BlockingIOError:
                continue  # somebody else has the same stdin and was quicker
            except OSError as error:  # a terminal that was hung up
                log.info("stdin_ended", reason=error.strerror)
                break
        return b""

    async def write(self, text: str) -> None:
        """Write all of a text, unless nobody takes it."""
        left = memoryview(text.encode())
        while left and not self._gone:
            await _until(self._stdout, select.POLLOUT, asyncio.Event())
            try:
                # More could block although there is room for some of it (pipe(7)).
                left = left[os.write(self._stdout, left[: select.PIPE_BUF]) :]
            except BlockingIOError:
                continue
            except OSError as error:
                log.info("stdout_ended", reason=error.strerror)
                self._gone = True
                self._news.set()

    async def flush(self) -> None:
        """Do nothing: what was written has left."""


async def _until(fd: int, event: int, there: asyncio.Event) -> None:
    """Wait until a descriptor can be read from or written to at once, or `there` is set."""
    poll = select.poll()
    poll.register(fd, event)
    if poll.poll(0):  # always so for files and /dev/null, which epoll and so the loop refuse
        return
    loop = asyncio.get_running_loop()
    if event == select.POLLIN:
        add, remove = loop.add_reader, loop.remove_reader
    else:
        add, remove = loop.add_writer, loop.remove_writer
    add(fd, there.set)
    try:
        await there.wait()
    finally:
        remove(fd)


class Unanswered:
    """The requests that were read and whose answers have not left."""

    def __init__(self) -> None:
        self._ids: set[str | int] = set()
        self._none = asyncio.Event()
        self._none.set()

    def note(self, item: SessionMessage | Exception) -> None:
        """Take a message of either side into account."""
        match getattr(item, "message", None):
            case JSONRPCRequest(method=method, id=number) if method != ENDLESS:
                self._ids.add(number)
            case JSONRPCResponse(id=number) | JSONRPCError(id=str() | int() as number):
                self._ids.discard(number)
            case JSONRPCNotification(
                method="notifications/cancelled", params={"requestId": str() | int() as number}
            ):
                self._ids.discard(number)
        if self._ids:
            self._none.clear()
        else:
            self._none.set()

    async def none(self) -> None:
        """Wait until there are none, but not for ever."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                await self._none.wait()


class Questions:
    """The SDK's stream of what a client says, which ends only when all of it was answered."""

    def __init__(self, stream: Any, unanswered: Unanswered) -> None:
        self._stream = stream
        self._unanswered = unanswered
        self._ended = False

    @property
    def last_context(self) -> Any:
        """See the SDK's own streams."""
        return self._stream.last_context

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            item: SessionMessage | Exception = await anext(self._stream)
        except StopAsyncIteration:
            self._ended = True
            # At the end of what it reads the SDK drops what it has not answered.
            await self._unanswered.none()
            raise
        self._unanswered.note(item)
        return item

    async def aclose(self) -> None:
        """Close the stream, unless a message may still be on the way: its sender would fail."""
        if self._ended:
            await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class Answers:
    """The SDK's stream of what a client is told."""

    def __init__(self, stream: Any, unanswered: Unanswered) -> None:
        self._stream = stream
        self._unanswered = unanswered

    async def send(self, item: SessionMessage) -> None:
        """Hand a message to the writer, which goes on until it has written it."""
        await self._stream.send(item)
        self._unanswered.note(item)

    async def aclose(self) -> None:
        """Let the writer end."""
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
