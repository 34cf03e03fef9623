"""The wiring, and the only place of it: source, buffer, watches, tools, probes.

`create_app` is the Starlette factory that uvicorn serves; `serve_stdio` is the same without HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

import structlog
from starlette.applications import Starlette

from mcp_perception_buffer import notify, web
from mcp_perception_buffer.answers.diagnose import BrainStatus, Surroundings
from mcp_perception_buffer.answers.resources import Updates
from mcp_perception_buffer.answers.tools import create_mcp
from mcp_perception_buffer.answers.wording import tell
from mcp_perception_buffer.buffer import Buffer
from mcp_perception_buffer.decoding.decoder import Decoder
from mcp_perception_buffer.errors import PerceptionError, UnavailableError
from mcp_perception_buffer.events.delivery import Delivery
from mcp_perception_buffer.events.outbox import Outbox
from mcp_perception_buffer.gate import Streams
from mcp_perception_buffer.health import BEAT_LIMIT_S, Health
from mcp_perception_buffer.logs import configure_logging
from mcp_perception_buffer.memory.changes import Changes
from mcp_perception_buffer.settings import Settings, load_settings
from mcp_perception_buffer.stdio import stdio_streams
from mcp_perception_buffer.watcher import Watcher

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from mcp.server.mcpserver import MCPServer

    from mcp_perception_buffer.events.base import EventSink
    from mcp_perception_buffer.sources.base import Source

log = structlog.get_logger(__name__)

READY_TIMEOUT_S = 5.0


def create_app(
    settings: Settings | None = None, on_failure: Callable[[], None] | None = None
) -> Starlette:
    """Return the ASGI application: MCP at `/mcp` and `/sse`, probes at `/healthz` and `/readyz`.

    Everything is made in the lifespan, so that one application may be started again and again.

    Args:
        settings: by default composed from the packaged tree and the environment.
        on_failure: called when a part ended for good; by default this process is told to
            terminate, since a service that hears nothing must not go on.
    """
    if settings is None:  # started by uvicorn alone, so nobody has done it
        settings, _ = load_settings()
        configure_logging(level=settings.log_level, pretty=settings.log_pretty)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with running(settings, on_failure or _terminate) as service:
            app.router.routes[:] = [
                *web.mcp_routes(service.mcp, settings),
                *web.probe_routes(service.buffer, service.health),
            ]
            app.state.service = service
            async with service.mcp.session_manager.run():
                notify.ready()
                yield
                notify.stopping()

    streams = Streams()
    app = Starlette(lifespan=lifespan, middleware=web.middleware(settings, streams))
    app.state.streams = streams
    return app


async def serve_http(settings: Settings) -> bool:
    """Serve over HTTP until a signal comes; see `web.serve_http`."""
    return await web.serve_http(settings, create_app)


async def serve_stdio(settings: Settings) -> bool:
    """Serve one client on stdin and stdout until it hangs up or a signal comes.

    Returns False if the service ended by a failure instead.

    Raises:
        CancelledError: a signal came before it was up.
    """
    task = asyncio.current_task()
    assert task is not None
    up, failed = False, False

    def fail() -> None:
        nonlocal failed
        failed = True
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        async with (
            stdio_streams() as (read, write),
            running(settings, fail) as service,
        ):
            up = True
            notify.ready()
            server = service.mcp._lowlevel_server
            try:
                await server.run(read, write, server.create_initialization_options())
            except Exception as error:
                if not task.cancelling():
                    raise
                # The cancellation found a message on its way through the SDK, which fails then.
                raise asyncio.CancelledError from error
    except asyncio.CancelledError:
        if not up:
            raise
    return not failed


@dataclass(frozen=True, slots=True)
class Service:
    """What runs, for those who answer from it."""

    mcp: MCPServer
    buffer: Buffer
    health: Health
    watcher: Watcher


class Part(Protocol):
    """Something that runs until it is cancelled."""

    async def run(self) -> None:
        """Do it."""


@contextlib.asynccontextmanager
async def running(settings: Settings, on_failure: Callable[[], None]) -> AsyncIterator[Service]:
    """Run all parts around the body; what ends by itself makes the service unhealthy.

    Raises:
        UnavailableError: the source could not be opened; nothing is left running.
        ConfigError: a component cannot be made from its options.
    """
    if settings.ros_domain_id is not None:  # from wherever; rclpy reads the environment alone
        os.environ["ROS_DOMAIN_ID"] = str(settings.ros_domain_id)
    health = Health()
    limits = settings.render.limits()
    # The source knows the types, the decoder needs them, the buffer the decoder, the source the
    # buffer: the circle is closed when the first message is looked at.
    decoder = Decoder(lambda type_name: source.find_definition(type_name))
    topics = settings.topics(decoder.kind_of)
    buffer = Buffer(
        decoder.decode,
        history_depth=settings.history_depth,
        freshness_window_s=settings.freshness_window_s,
        retention_s=settings.retention_s,
        prepare=partial(tell, limits=limits),
    )
    source: Source = settings.source.build(
        buffer=buffer,
        topics=topics,
        decoder=decoder,
        reconcile_interval_s=settings.reconcile_interval_s,
        ros_args=ros_args(sys.argv),
    )
    tasks = settings.tasks.build(source=source)
    sink = _sink(settings)
    outbox = Outbox(
        settings.state_dir,
        size=settings.outbox_size,
        expires_after_s=settings.expires_after_s,
        push=sink is not None,
    )
    watcher = Watcher(
        buffer,
        tasks,
        outbox,
        limits=limits,
        reconcile_interval_s=settings.reconcile_interval_s,
    )
    changes = Changes(buffer, min_score=limits.min_score)
    updates = Updates(buffer, limits)
    heartbeat = Heartbeat(health)
    parts: dict[str, Part] = {
        "heartbeat": heartbeat,
        "outbox": outbox,
        "watcher": watcher,
        "changes": changes,
        "updates": updates,
    }
    delivery: Delivery | None = None
    if sink is not None:
        delivery = Delivery(
            outbox,
            sink,
            backoff_first_s=settings.backoff_first_s,
            backoff_max_s=settings.backoff_max_s,
        )
        parts["delivery"] = delivery
        health.degrades("events are not delivered", lambda: delivery and delivery.problem)
        health.degrades("watch tasks are unavailable", lambda: watcher.problem)
    health.degrades("events are kept in memory only", lambda: outbox.problem)

    _check_state_dir(settings)
    ready = asyncio.Event()
    ended = partial(_ended, health, on_failure)
    async with outbox:
        delivering = asyncio.create_task(source.run(ready.set), name="source")
        supervised = [delivering]
        try:
            await _until_ready(ready, delivering)
            supervised += [asyncio.create_task(p.run(), name=name) for name, p in parts.items()]
            for task in supervised:
                task.add_done_callback(ended)
            health.watch("executor", lambda: source.last_beat_ns)
            health.watch("loop", lambda: heartbeat.last_ns)
            health.ready = True
            mcp = create_mcp(
                buffer,
                limits,
                watcher,
                changes,
                updates,
                lambda: Surroundings(source.network(), _brain_status(delivery)),
            )
            yield Service(mcp, buffer, health, watcher)
        finally:
            for task in reversed(supervised):  # the source last: the others read from it
                task.remove_done_callback(ended)  # now it ends because it is told to
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


def _check_state_dir(settings: Settings) -> None:
    """Find out now what would otherwise cost the first events their place on disk."""
    if settings.state_dir is None:
        return
    try:
        settings.state_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=settings.state_dir):
            pass
    except OSError as error:
        raise UnavailableError(
            f"state_dir = {settings.state_dir}: cannot be written: {error.strerror}; "
            "make it writable for this user, or name another"
        ) from error


async def _until_ready(ready: asyncio.Event, delivering: asyncio.Task[None]) -> None:
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait(
        [delivering, waiting], timeout=READY_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED
    )
    waiting.cancel()
    if not ready.is_set():
        if delivering.done():
            await delivering
        raise UnavailableError(f"ROS did not answer within {READY_TIMEOUT_S:g} s")


def _ended(health: Health, on_failure: Callable[[], None], task: asyncio.Task[None]) -> None:
    error = None if task.cancelled() else task.exception()
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    meant = isinstance(error, PerceptionError)  # for a person, who has no use for a traceback
    reason = str(error) if meant else f"{type(error).__name__}: {error}" if error else "ended"
    log.critical(
        "part_ended", part=task.get_name(), reason=reason, exc_info=None if meant else error
    )
    health.fail(task.get_name(), type(error).__name__ if error else "ended")  # shown to anybody
    on_failure()


def _sink(settings: Settings) -> EventSink | None:
    missing = [
        what
        for what, there in (
            ("watch_push is false", settings.watch_push),
            ("RVC_CALLBACK_URL is unset", settings.callback_url),
            ("RVC_EVENT_SECRET is unset", settings.event_secrets),
        )
        if not there
    ]
    if missing:
        log.warning("watch_push_off", reason=" and ".join(missing))
        return None
    sink: EventSink = settings.events.build(
        url=str(settings.callback_url), secrets=settings.event_secrets
    )
    return sink


def _brain_status(delivery: Delivery | None) -> BrainStatus | None:
    if delivery is None:
        return None
    last = delivery.last_outcome
    return BrainStatus(
        reachable=None if last is None else delivery.problem is None,
        reason=delivery.problem,
        clock_skew_s=last.clock_skew_s if last else None,
    )


class Heartbeat:
    """Says when the loop last had time for a task that only sleeps, and tells systemd."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self.last_ns = time.monotonic_ns()

    async def run(self) -> None:
        """Beat once a second until cancelled."""
        previous_ns = time.monotonic_ns()
        while True:
            now_ns = time.monotonic_ns()
            # A loop that was blocked is believed again after one beat in time.
            if now_ns - previous_ns < BEAT_LIMIT_S * 1e9:
                self.last_ns = now_ns
            previous_ns = now_ns
            if not self._health.problems():
                notify.alive()
            await asyncio.sleep(1)


def ros_args(argv: Sequence[str]) -> list[str]:
    """Return the arguments for rclpy: ours, then `--ros-args` and what follows it.

    rcl keeps an (empty) log file of its own per start and needs a writable home for it; all logs
    go to stderr here.
    """
    given = list(argv[argv.index("--ros-args") :]) if "--ros-args" in argv else []
    return ["--ros-args", "--disable-external-lib-logs", *given]


def _terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
