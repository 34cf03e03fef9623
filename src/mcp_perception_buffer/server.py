"""The wiring, and the only place of it: source, buffer, tools, probes, and what runs them.

`create_app` is the Starlette factory that uvicorn serves; `serve_stdio` is the same without HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING

import structlog
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from mcp_perception_buffer.buffer import Buffer
from mcp_perception_buffer.decode import Decoder
from mcp_perception_buffer.errors import ConfigError, SourceUnavailableError
from mcp_perception_buffer.health import Health
from mcp_perception_buffer.settings import Settings, load_settings
from mcp_perception_buffer.tools import create_mcp
from mcp_perception_buffer.topics import TopicFilter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from mcp.server.mcpserver import MCPServer
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from mcp_perception_buffer.sources.base import Source

log = structlog.get_logger(__name__)

READY_TIMEOUT_S = 10.0
# Long-lived streams (SSE) would otherwise hold a stop back for ever.
SHUTDOWN_GRACE_S = 2

NO_RCLPY = """\
rclpy cannot be imported: {error}
Either source the robot's ROS installation (source /opt/ros/jazzy/setup.bash) and run this with
its Python, or install the ROS wheels: uv sync --inexact --extra ros (x86-64 Linux)."""


def create_app(
    settings: Settings | None = None, *, on_failure: Callable[[], None] | None = None
) -> Starlette:
    """Return the ASGI application: MCP at `/mcp` and `/sse`, probes at `/healthz` and `/readyz`.

    Everything is made in the lifespan, so that one application may be started again and again.

    Args:
        settings: by default read from the packaged YAML and the environment.
        on_failure: called when the source ended for good; by default this process is told to
            terminate, since a service that hears nothing must not go on.
    """
    settings = settings or load_settings()

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with running(settings, on_failure or _terminate) as (mcp, buffer, health):
            app.router.routes[:] = [*_mcp_routes(mcp), *_probe_routes(buffer, health)]
            app.state.buffer = buffer
            async with mcp.session_manager.run():
                yield

    return Starlette(lifespan=lifespan)


async def serve_http(settings: Settings) -> bool:
    """Serve over HTTP until a signal comes; False if the service ended by a failure instead.

    Raises:
        ConfigError: the port is taken.
        SourceUnavailableError: ROS could not be started.
    """
    failed = False

    def fail() -> None:
        nonlocal failed
        failed = http.should_exit = True

    application = create_app(settings, on_failure=fail)
    config = uvicorn.Config(
        application,
        lifespan="off",  # entered below, so that its errors reach the caller as they are
        log_config=None,
        timeout_graceful_shutdown=SHUTDOWN_GRACE_S,
    )
    http = _Server(config)
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def stop() -> None:
        http.should_exit = True
        if not http.started:
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    with _bind(settings) as listening:
        async with application.router.lifespan_context(application):
            log.info("serving", mcp=f"http://{settings.host}:{listening.getsockname()[1]}/mcp")
            await http.serve(sockets=[listening])
    return not failed


class _Server(uvicorn.Server):
    """Leaves the signals alone: uvicorn would raise them again before the lifespan has ended."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _bind(settings: Settings) -> socket.socket:
    """Take the port before anything starts."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
    except OSError as error:
        listening.close()
        where = f"{settings.host}:{settings.port}"
        raise ConfigError(
            f"cannot listen on {where}: {error.strerror}; stop what uses it or set MCP_PORT"
        ) from error
    return listening


async def serve_stdio(settings: Settings) -> None:
    """Serve one client on stdin and stdout until it hangs up."""
    async with running(settings, _terminate) as (mcp, _, _):
        await mcp.run_stdio_async()


@contextlib.asynccontextmanager
async def running(
    settings: Settings, on_failure: Callable[[], None]
) -> AsyncIterator[tuple[MCPServer, Buffer, Health]]:
    """Run source and heartbeats around the body.

    Raises:
        SourceUnavailableError: the source could not be opened; nothing is left running.
    """
    decoder, source_for = _ros_source(settings)
    buffer = Buffer(
        decoder.decode,
        history_depth=settings.history_depth,
        freshness_window_s=settings.freshness_window_s,
        retention_s=settings.retention_s,
    )
    source = source_for(buffer)
    health = Health()
    ready = asyncio.Event()
    deliver = asyncio.create_task(source.run(ready.set), name="source")
    loop_beat = LoopBeat()
    beating = asyncio.create_task(loop_beat.run(), name="loop-heartbeat")
    try:
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait(
            [deliver, waiting], timeout=READY_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED
        )
        waiting.cancel()
        if not ready.is_set():
            if deliver.done():
                await deliver
            raise SourceUnavailableError(f"ROS did not answer within {READY_TIMEOUT_S:g} s")
        health.ready = True
        health.watch("executor", lambda: source.last_beat_ns)
        health.watch("loop", lambda: loop_beat.last_ns)

        def ended(task: asyncio.Task[None]) -> None:
            if task.cancelled():
                return
            error = task.exception()
            reason = _root_cause(error) if error else "ended"
            log.critical("source_ended", reason=reason, exc_info=error)
            health.fail("source", reason)
            on_failure()

        deliver.add_done_callback(ended)
        yield create_mcp(buffer, settings.render.limits()), buffer, health
    finally:
        beating.cancel()
        deliver.cancel()
        await asyncio.gather(deliver, beating, return_exceptions=True)


class LoopBeat:
    """Says when the loop last had time for a task that only sleeps."""

    def __init__(self) -> None:
        self.last_ns = time.monotonic_ns()

    async def run(self) -> None:
        """Beat once a second until cancelled."""
        while True:
            self.last_ns = time.monotonic_ns()
            await asyncio.sleep(1)


def _ros_source(settings: Settings) -> tuple[Decoder, Callable[[Buffer], Source]]:
    try:
        from mcp_perception_buffer.sources.ros import RosSource, installed_definition
    except ImportError as error:
        raise SourceUnavailableError(NO_RCLPY.format(error=error)) from error
    decoder = Decoder(installed_definition)
    topics = TopicFilter(
        settings.topic_patterns,
        camera_topic=settings.camera_topic,
        include_hidden=settings.include_hidden,
    )

    def source_for(buffer: Buffer) -> Source:
        return RosSource(
            buffer,
            topics,
            reconcile_interval_s=settings.reconcile_interval_s,
            ros_args=ros_args(sys.argv),
            decoder=decoder,
        )

    return decoder, source_for


def ros_args(argv: Sequence[str]) -> list[str]:
    """Return `--ros-args` and what follows it, which belongs to rclpy."""
    return list(argv[argv.index("--ros-args") :]) if "--ros-args" in argv else []


def _mcp_routes(mcp: MCPServer) -> list[BaseRoute]:
    # Without sessions a restart of this service costs a client nothing.
    http = mcp.streamable_http_app(stateless_http=True, json_response=True)
    [endpoint] = [route.endpoint for route in http.routes if isinstance(route, Route)]
    # A route each, or `/mcp/` would answer with a redirect that some clients do not follow.
    return [Route("/mcp", endpoint), Route("/mcp/", endpoint), *mcp.sse_app().routes]


def _probe_routes(buffer: Buffer, health: Health) -> list[BaseRoute]:
    async def healthz(request: Request) -> JSONResponse:
        status, body = health.live(buffer.snapshot())
        return JSONResponse(body, status)

    async def readyz(request: Request) -> JSONResponse:
        status, body = health.readiness()
        return JSONResponse(body, status)

    return [Route("/healthz", healthz), Route("/livez", healthz), Route("/readyz", readyz)]


def _root_cause(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


def _terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
