"""The command line: `serve`, `demo`."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Iterator  # noqa: TC003
from pathlib import Path  # noqa: TC003  # typer evaluates annotations
from typing import Annotated

import typer
import uvicorn

from mcp_perception_buffer import server
from mcp_perception_buffer.errors import ConfigError, PerceptionError, SourceUnavailableError
from mcp_perception_buffer.logs import configure_logging
from mcp_perception_buffer.settings import Settings, load_settings

app = typer.Typer(
    help="Answers a language-model brain's 'what do you see?' over MCP from ROS 2 vision topics.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# Long-lived streams (SSE) would otherwise hold a stop back for ever.
SHUTDOWN_GRACE_S = 2


@app.callback()
def _commands() -> None:
    """Keep `serve` a word of its own even while it is the only one."""


@app.command()
def serve(
    config: Annotated[
        Path | None, typer.Option(help="a YAML file instead of the packaged one")
    ] = None,
) -> None:
    """Run the service until Ctrl-C. Arguments after --ros-args go to rclpy."""
    settings = load_settings(config)
    configure_logging(level=settings.log_level, pretty=settings.log_pretty)
    if settings.transport == "stdio":
        asyncio.run(server.serve_stdio(settings))
    elif not asyncio.run(serve_http(settings)):
        raise SystemExit(1)


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

    application = server.create_app(settings, on_failure=fail)
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


def main() -> None:
    """Run the command line; deliberate errors are one message on stderr and exit code 2."""
    argv = sys.argv[1:]
    if "--ros-args" in argv:
        argv = argv[: argv.index("--ros-args")]
    try:
        app(argv)
    except SourceUnavailableError as error:
        sys.exit(f"error: {error}")
    except PerceptionError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit(130)  # stopped by hand before it was up
