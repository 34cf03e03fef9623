"""The HTTP side: the routes, what stands before them, and the server itself.

Probes are open to everybody and tell nothing private; everything else passes the gate.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import signal
import socket
from typing import TYPE_CHECKING

import structlog
import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse
from starlette.routing import Route

from mcp_perception_buffer.errors import UnavailableError
from mcp_perception_buffer.gate import Gate
from mcp_perception_buffer.settings import LOOPBACK
from mcp_perception_buffer.watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mcp.server.mcpserver import MCPServer
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from mcp_perception_buffer.buffer import Buffer
    from mcp_perception_buffer.gate import Streams
    from mcp_perception_buffer.health import Health
    from mcp_perception_buffer.settings import Settings

log = structlog.get_logger(__name__)

# A caller that takes its answer slowly would otherwise hold a stop back for ever.
SHUTDOWN_GRACE_S = 2

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
# What the MCP transports send and answer with besides the usual.
MCP_REQUEST_HEADERS = (
    *("authorization", "content-type", "last-event-id"),
    *("mcp-method", "mcp-name", "mcp-protocol-version", "mcp-session-id"),
)
MCP_RESPONSE_HEADERS = ("mcp-session-id", "mcp-protocol-version", "www-authenticate")


def mcp_routes(mcp: MCPServer, settings: Settings) -> list[BaseRoute]:
    """Return the routes of streamable HTTP and SSE; only callers of known hosts get in."""
    names = [form for name in LOOPBACK_NAMES for form in (name, f"{name}:*")]
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=[*names, *settings.allowed_hosts],
        allowed_origins=[*(f"http://{name}" for name in names), *settings.allowed_origins],
    )
    # Without sessions a restart of this service costs a client nothing.
    http = mcp.streamable_http_app(
        stateless_http=True, json_response=True, transport_security=security
    )
    [endpoint] = [route.endpoint for route in http.routes if isinstance(route, Route)]
    sse = mcp.sse_app(transport_security=security)
    # A route each, or `/mcp/` would answer with a redirect that some clients do not follow.
    return [Route("/mcp", endpoint), Route("/mcp/", endpoint), *sse.routes]


def probe_routes(buffer: Buffer, health: Health) -> list[BaseRoute]:
    """Return the routes of the Kubernetes-style probes."""

    async def live(request: Request) -> JSONResponse:
        status, body = health.live(buffer.snapshot())
        return JSONResponse(body, status)

    async def ready(request: Request) -> JSONResponse:
        status, body = health.readiness()
        return JSONResponse(body, status)

    return [Route("/healthz", live), Route("/livez", live), Route("/readyz", ready)]


def middleware(settings: Settings, streams: Streams) -> list[Middleware]:
    """Return what stands before the routes: CORS for known origins, then the token."""
    token = settings.auth_token.get_secret_value() if settings.auth_token else None
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=settings.allowed_origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=MCP_REQUEST_HEADERS,
            expose_headers=MCP_RESPONSE_HEADERS,
        ),
        Middleware(Gate, token=token, local_only=settings.host in LOOPBACK, streams=streams),
    ]


async def serve_http(
    settings: Settings, make_app: Callable[[Settings, Callable[[], None]], Starlette]
) -> bool:
    """Serve over HTTP until a signal comes; False if the service ended by a failure instead.

    Args:
        settings: where to listen, and everything for `make_app`.
        make_app: makes the application from the settings and what to call when it has failed.

    Raises:
        UnavailableError: the port is taken, or ROS could not be started.
    """
    failed = False

    def fail() -> None:
        nonlocal failed
        failed = True
        http.stop()

    app = make_app(settings, fail)
    http = _Server(
        uvicorn.Config(
            app,
            lifespan="off",  # entered below, so that its errors reach the caller as they are
            log_config=None,
            access_log=False,  # a line a request of every caller says nothing a probe would not
            timeout_graceful_shutdown=SHUTDOWN_GRACE_S,
        ),
        before_stop=lambda: app.state.streams.end(app.state.service.mcp),
    )
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def stop() -> None:
        http.stop()
        if not http.started:
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    with _bind(settings) as listening:
        async with app.router.lifespan_context(app):
            host, port = listening.getsockname()[:2]
            # What is loaded stays: the collector need not walk it again and again, 50 ms each time.
            gc.collect()
            gc.freeze()
            log.info("serving", mcp=f"http://{f'[{host}]' if ':' in host else host}:{port}/mcp")
            health: Health = app.state.service.health
            with Watchdog(listening, lambda: health.silence("loop")):
                await http.serve(sockets=[listening])
    return not failed


class _Server(uvicorn.Server):
    """Leaves the signals alone: uvicorn would raise them again before the lifespan has ended.

    It also sleeps until it is told to stop, where uvicorn would look ten times a second.
    """

    def __init__(self, config: uvicorn.Config, before_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._told = asyncio.Event()
        self._before_stop = before_stop

    def stop(self) -> None:
        self.should_exit = True
        self._told.set()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):  # which renews the Date header
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._told.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._before_stop()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _bind(settings: Settings) -> socket.socket:
    """Take the port before anything starts."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # The protocol by name: asyncio sets TCP_NODELAY only then, and without it an answer in two
    # parts waits 40 ms for the client's delayed acknowledgement.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
        listening.listen()  # so that who reads "serving" in the log can connect at once
    except OSError as error:
        listening.close()
        hint = "; stop what uses it or set MCP_PORT" if error.errno == errno.EADDRINUSE else ""
        raise UnavailableError(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror}{hint}"
        ) from error
    return listening
