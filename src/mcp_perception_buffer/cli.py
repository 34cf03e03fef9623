"""The command line: `serve`, `config show`, `doctor`, `interfaces`, `demo`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path  # typer evaluates annotations
from typing import Annotated

import typer

from mcp_perception_buffer.errors import PerceptionError, UnavailableError
from mcp_perception_buffer.logs import configure_logging
from mcp_perception_buffer.settings import load_settings

app = typer.Typer(
    help="Answers a language-model brain's 'what do you see?' over MCP from ROS 2 vision topics.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


ConfigDir = Annotated[
    Path | None, typer.Option(help="a tree of your own; files it lacks come from the packaged one")
]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="for example port=9300")
]


@app.command()
def serve(overrides: Overrides = None, config_dir: ConfigDir = None) -> None:
    """Run the service until Ctrl-C. Arguments after --ros-args go to rclpy."""
    # Before the server is loaded, which takes seconds: a mistake in the settings is told at once.
    settings, _ = load_settings(overrides or (), config_dir)
    from mcp_perception_buffer import server

    configure_logging(level=settings.log_level, pretty=settings.log_pretty)
    run = server.serve_stdio if settings.transport == "stdio" else server.serve_http
    if not asyncio.run(run(settings)):
        raise SystemExit(1)


config = typer.Typer(help="Look at the configuration.", no_args_is_help=True)
app.add_typer(config, name="config")


@config.command()
def show(overrides: Overrides = None, config_dir: ConfigDir = None) -> None:
    """Print the effective configuration, secrets masked, and where each value comes from."""
    settings, origins = load_settings(overrides or (), config_dir)
    for key, value in settings.shown().items():
        print(f"{key + ': ' + value:<60}  # {origins.of(key)}")


@app.command()
def doctor(
    skill: Annotated[str | None, typer.Argument(help="one skill; without it, all")] = None,
    url: Annotated[str | None, typer.Option(help="a service elsewhere than configured")] = None,
) -> None:
    """Ask the running service why there is no data; exit code 1 if there is a problem."""
    from rich.console import Console

    from mcp_perception_buffer.doctor import doctor as run_doctor

    settings, _ = load_settings()
    token = settings.auth_token.get_secret_value() if settings.auth_token else None
    url = url or f"http://127.0.0.1:{settings.port}/mcp"
    if not asyncio.run(run_doctor(url, skill, Console(), token)):
        raise SystemExit(1)


interfaces = typer.Typer(help="Message types of the robot's own packages.", no_args_is_help=True)
app.add_typer(interfaces, name="interfaces")


@interfaces.command()
def add(
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER...", help="packages, or folders of .msg files")
    ],
) -> None:
    """Build messages from their definitions, for a machine without the robot's packages.

    They go into the Python environment that runs this, beside the ROS wheels.
    """
    from rich.console import Console

    from mcp_perception_buffer.interfaces.add import add as add_interfaces

    add_interfaces(folders, Console())


@interfaces.command("list")
def list_() -> None:
    """Show which installed message types are read as detections."""
    from rich.console import Console

    from mcp_perception_buffer.decoding.decoder import Decoder
    from mcp_perception_buffer.interfaces.listing import table
    from mcp_perception_buffer.sources.ros_types import installed_definition

    decoder = Decoder(installed_definition)

    def kind_of(type_name: str) -> str | None:
        return None if decoder.why_unreadable("detections", type_name) else "detections"

    Console().print(table(kind_of))


@app.command()
def demo(
    images: Annotated[Path | None, typer.Option(help="a folder of your own photographs")] = None,
    video: Annotated[Path | None, typer.Option(help="a video file, played in a loop")] = None,
    camera: Annotated[int | None, typer.Option(help="your camera's number, usually 0")] = None,
) -> None:
    """Show what a brain would see: a real vision node beside the service, live. Ctrl-C ends it."""
    from rich.console import Console

    from mcp_perception_buffer.demo import demo as run_demo

    configure_logging(level="ERROR", pretty=True)
    chosen = {"--images": images, "--video": video, "--camera": camera}
    node_args = [
        str(x) for name, value in chosen.items() if value is not None for x in (name, value)
    ]
    if not asyncio.run(run_demo(load_settings()[0], node_args, Console())):
        raise SystemExit(1)


def main() -> None:
    """Run the command line; a deliberate error is one message on stderr.

    Exit codes: 0 stopped, 1 ended by itself or something is not there, 2 wrong settings, 130
    stopped before it was up.
    """
    argv = sys.argv[1:]
    if "--ros-args" in argv:
        argv = argv[: argv.index("--ros-args")]
    try:
        app(argv)
    except UnavailableError as error:
        sys.exit(f"error: {error}")
    except PerceptionError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except asyncio.CancelledError:
        sys.exit(130)  # stopped by hand before it was up
