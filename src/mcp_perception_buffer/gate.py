"""What every request but a probe passes: who may call, and that each answer comes to its end."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from ipaddress import ip_address
from typing import TYPE_CHECKING

import structlog
from mcp.server.subscriptions import ListenHandler
from starlette.datastructures import Headers
from starlette.responses import JSONResponse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mcp.server.mcpserver import MCPServer
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = structlog.get_logger(__name__)

# Beyond this many requests at once a caller is told to come again; probes are always answered.
MAX_REQUESTS = 1000
PROBES = ("/healthz", "/livez", "/readyz")
# What the SDK refuses with: the header it looked at, and the setting that allows more.
REFUSED = {403: ("origin", "allowed_origins"), 421: ("host", "allowed_hosts")}


class Streams:
    """The answers that last until their client leaves, or until the service stops."""

    def __init__(self) -> None:
        self._open: set[asyncio.Event] = set()

    def end(self, mcp: MCPServer) -> None:
        """End them all; uvicorn would cut them after the grace."""
        for told in self._open:
            told.set()
        # These end with a message that says so, which a client that has left would not get.
        listening = mcp._lowlevel_server.get_request_handler("subscriptions/listen")
        if listening is not None and isinstance(listening.handler, ListenHandler):
            listening.handler.close()

    @contextlib.contextmanager
    def until_end(self, receive: Receive) -> Iterator[Receive]:
        """Give a `receive` to which a stop of the service is as if the client had left."""
        told = asyncio.Event()

        async def receive_or_end() -> Message:
            arriving, ending = asyncio.ensure_future(receive()), asyncio.ensure_future(told.wait())
            try:
                await asyncio.wait({arriving, ending}, return_when=asyncio.FIRST_COMPLETED)
                return arriving.result() if arriving.done() else {"type": "http.disconnect"}
            finally:
                arriving.cancel()
                ending.cancel()

        self._open.add(told)
        try:
            yield receive_or_end
        finally:
            self._open.discard(told)


class Gate:
    """Asks for the bearer token, where one is set, and explains refusals in the log.

    Where another server than ours listens wider than the settings say, it serves loopback alone.
    """

    def __init__(
        self, app: ASGIApp, token: str | None, *, local_only: bool, streams: Streams
    ) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode() if token else None
        self._local_only = local_only
        self._streams = streams
        self._requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http" or scope["path"] in PROBES:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if refusal := self._refusal(scope, headers):
            await refusal(scope, receive, send)
            return
        answer = Answer(send, headers)
        self._requests += 1
        try:
            if scope["method"] == "GET":
                with self._streams.until_end(receive) as until_end:
                    await self._app(scope, until_end, answer.send)
            else:
                await self._app(scope, receive, answer.send)
            await answer.complete()
        except ValueError:
            if answer.status not in REFUSED:  # where the SDK refuses an SSE stream it also raises
                raise
        finally:
            self._requests -= 1

    def _refusal(self, scope: Scope, headers: Headers) -> JSONResponse | None:
        """Return the answer to a caller who may not go on to the routes."""
        if self._local_only and not _is_loopback(scope):
            log.warning("caller_refused", reason="not from this host", hint="set host, see README")
            return JSONResponse({"error": "only served to this host"}, 403)
        if self._requests >= MAX_REQUESTS:
            log.warning("caller_refused", reason=f"{MAX_REQUESTS} requests at once")
            return JSONResponse({"error": "too many requests"}, 503, {"Retry-After": "1"})
        given = headers.get("authorization", "").encode()
        if self._expected is not None and not hmac.compare_digest(given, self._expected):
            log.warning("caller_refused", reason="no or wrong bearer token")
            return JSONResponse(
                {"error": "a bearer token is needed"}, 401, {"WWW-Authenticate": "Bearer"}
            )
        return None


class Answer:
    """One answer of the routes, on its way to the caller."""

    def __init__(self, send: Send, headers: Headers) -> None:
        self._send = send
        self._headers = headers  # of the request
        self._ended = False
        self.status = 0

    async def send(self, message: Message) -> None:
        """See ASGI."""
        # The SDK's route answers once more where an SSE stream was ended; what that adds is the
        # end of the stream, where it lacks one.
        if self._ended or (self.status and message["type"] == "http.response.start"):
            return
        self._ended = message["type"] == "http.response.body" and not message.get("more_body")
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if self.status in REFUSED:
                name, setting = REFUSED[self.status]
                shown = self._headers.get(name, "")[:100]
                log.warning("caller_refused", reason=f"foreign {name} {shown!r}",
                            hint=f"add it to {setting} if it is yours")  # fmt: skip
        await self._send(message)

    async def complete(self) -> None:
        """Send the end of a stream that was ended from this side, which others leave to uvicorn."""
        if self.status:
            await self.send({"type": "http.response.body"})


def _is_loopback(scope: Scope) -> bool:
    """Whether a request came in on a loopback address (or a socket file, or a test's nowhere)."""
    try:
        return ip_address((scope.get("server") or ("",))[0]).is_loopback
    except ValueError:
        return True
