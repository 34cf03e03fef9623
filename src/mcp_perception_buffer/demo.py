"""`demo`: a real vision node beside the service, or a bag, and what a brain would see of it.

It does what a brain does: asks through the official MCP client, receives and verifies events.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import secrets
import signal
import sys
import tempfile
from collections import deque
from typing import TYPE_CHECKING, Any

from aiohttp import web
from mcp.client import Client
from mcp.types import CallToolResult, TextContent
from pydantic import SecretStr
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from robot_mcp_kit.signing import SignatureError, verify

from mcp_perception_buffer.component import Component
from mcp_perception_buffer.errors import UnavailableError
from mcp_perception_buffer.server import serve_http
from mcp_perception_buffer.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path
    from typing import IO

    from mcp_perception_buffer.settings import Settings

ASK_INTERVAL_S = 0.5
# Without a terminal nothing can be redrawn, so less often.
PLAIN_INTERVAL_S = 2.0
NODE_STOP_S = 3.0
SHOWN_EVENTS = 5

STYLES = {"fresh": "green", "stale": "yellow", "gone": "red", "unreadable": "red", "never": "dim"}


async def demo(settings: Settings, node_args: Sequence[str], console: Console) -> bool:
    """Run vision node, service and screen until Ctrl-C; False if one of them failed.

    Raises:
        UnavailableError: the extra `demo` is not installed, or the port is taken.
    """
    missing = [name for name in ("rclpy", "cv2", "skimage") if not importlib.util.find_spec(name)]
    if missing:
        raise UnavailableError(
            f"the demo needs {', '.join(missing)}: uv run --extra demo mcp-perception-buffer demo"
        )
    # Others' robots on the same network stay out of the picture; both processes inherit it.
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    with tempfile.TemporaryFile("w+") as node_log:
        async with _vision_node(node_args, node_log) as node:
            well = await _serve_and_show(settings, console, node)
            if node.returncode and not well:
                node_log.seek(0)
                console.print(f"[red]The vision node ended:[/]\n{node_log.read()[-2000:]}")
            return well


async def demo_bag(settings: Settings, console: Console) -> bool:
    """Run service and screen until Ctrl-C, on the bag that the settings name; False if it failed.

    Raises:
        UnavailableError: the bag cannot be read, or the port is taken.
    """
    return await _serve_and_show(settings, console)


def bag_settings(bag: Path, overrides: Sequence[str], config_dir: Path | None) -> Settings:
    """Return settings for which the source is a bag, and every detector in it is a skill.

    What the overrides or a tree of one's own say of streams, labels and tasks stands above that.

    Raises:
        ConfigError: see `load_settings`.
    """
    given = {word.partition("=")[0] for word in overrides}
    own = [w for w in ("source=bag", "tasks=static") if w.partition("=")[0] not in given]
    # Hydra's grammar would need the path in quotes, and those in it escaped.
    settings, origins = load_settings([*own, "source.path=.", *overrides], config_dir)
    source = Component.of(settings.source.target, **{**settings.source.options, "path": bag})
    changed: dict[str, Any] = {"source": source}
    if not settings.streams and origins.of("streams") == "default":
        changed["streams"] = "auto"
    return settings.model_copy(update=changed)


async def _serve_and_show(
    settings: Settings,
    console: Console,
    node: asyncio.subprocess.Process | None = None,
) -> bool:
    """Run service and screen until Ctrl-C or the node's end; False if service or node failed."""
    url = f"http://{settings.host}:{settings.port}/mcp"
    paste = json.dumps({"mcpServers": {"perception": {"type": "http", "url": url}}})
    console.print(f"Paste into your MCP client: [bold]{paste}[/]", soft_wrap=True, highlight=False)
    console.print(
        "Ctrl-C ends everything. With your own robot: mcp-perception-buffer serve streams=auto\n"
    )
    events: deque[str] = deque(maxlen=SHOWN_EVENTS)
    async with _brain(events) as brain:
        service = asyncio.create_task(serve_http(settings.model_copy(update=brain)), name="service")
        others: list[asyncio.Task[Any]] = [
            asyncio.create_task(_show(url, events, console), name="screen")
        ]
        if node is not None:
            others.append(asyncio.create_task(node.wait(), name="vision-node"))
        try:
            await asyncio.wait([service, *others], return_when=asyncio.FIRST_COMPLETED)
            node_failed = node is not None and bool(node.returncode) and not service.done()
        finally:
            for task in others:
                task.cancel()
            if not service.done():
                signal.raise_signal(signal.SIGTERM)  # the service ends itself in order
            results = await asyncio.gather(service, *others, return_exceptions=True)
    if node_failed:
        return False
    for error in results:
        if isinstance(error, Exception):
            raise error
    return results[0] is not False


@contextlib.asynccontextmanager
async def _brain(events: deque[str]) -> AsyncIterator[dict[str, Any]]:
    """Receive events on a free port; yields the settings that make the service post there."""
    secret = secrets.token_urlsafe(24)

    async def receive(request: web.Request) -> web.Response:
        body = await request.read()
        try:
            verified = verify(body, dict(request.headers), secrets=[secret])
        except SignatureError as error:
            events.append(f"refused: {error}")
            return web.Response(status=401)
        event = json.loads(body)
        payload = event["payload"]
        events.append(
            f"{payload['occurred_at'][11:19]} {payload['skill']} #{payload['seq']}: "
            f"{payload['condition']} = {json.dumps(payload['value'])}"
            f"  (signature verified, {verified.msg_id})"
        )
        return web.Response(status=204)

    app = web.Application()
    app.router.add_post("/api/agent/events", receive)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        yield {
            "watch_push": True,
            "callback_url": f"http://127.0.0.1:{port}/api/agent/events",
            "event_secret": SecretStr(secret),
        }
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def _vision_node(
    args: Sequence[str], log: IO[str]
) -> AsyncIterator[asyncio.subprocess.Process]:
    node = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "mcp_perception_buffer.vision_node", *args, stdout=log, stderr=log
    )
    try:
        yield node
    finally:
        with contextlib.suppress(ProcessLookupError):
            node.terminate()
        try:
            await asyncio.wait_for(node.wait(), NODE_STOP_S)
        except TimeoutError:
            node.kill()
            await node.wait()


async def _show(url: str, events: deque[str], console: Console) -> None:
    """Ask again and again; a service that is not up yet, or not any more, is waited for."""
    interval = ASK_INTERVAL_S if console.is_terminal else PLAIN_INTERVAL_S
    with Live(console=console, auto_refresh=False, transient=False) as live:
        while True:
            try:
                async with Client(url) as client:
                    while True:
                        scene = text_of(await client.call_tool("what_do_you_see", {}))
                        listing = (await client.call_tool("list_streams", {})).structured_content
                        if scene and listing and console.is_terminal:
                            live.update(_screen(scene, listing, events), refresh=True)
                        elif scene:
                            console.print(scene + "\n", markup=False, soft_wrap=True)
                            while events:
                                console.print(
                                    "event:", events.popleft(), markup=False, soft_wrap=True
                                )
                        await asyncio.sleep(interval)
            except Exception:  # whatever the client's transport raises, the answer is to ask again
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    return  # the client turned the cancellation into an error of its own
                await asyncio.sleep(ASK_INTERVAL_S)


def text_of(result: CallToolResult) -> str:
    """Return what a model would read of a result."""
    return "\n".join(part.text for part in result.content if isinstance(part, TextContent))


def _screen(scene: str, listing: dict[str, Any], events: deque[str]) -> Group:
    table = Table(title="list_streams", title_justify="left", expand=True)
    for column in ("topic", "kind", "state", "age", "rate", "received", "dropped"):
        table.add_column(column, justify="left" if column in ("topic", "kind") else "right")
    for stream in listing["streams"]:
        age = stream["last_update_age_s"]
        table.add_row(
            stream["topic"],
            stream["kind"],
            Text(stream["state"], STYLES[stream["state"]]),
            "-" if age is None else f"{age:.2f} s",
            f"{stream['rate_hz']:.1f} Hz",
            str(stream["received"]),
            str(stream["dropped"]),
        )
    for topic in listing["silent"]:
        table.add_row(topic, "", Text("silent", "yellow"), "", "", "", "")
    text = Text(scene)
    pushed = Text("\n".join(events) or "none yet: one comes when what is watched becomes true")
    return Group(
        Panel(text, title="what_do_you_see", title_align="left"),
        table,
        Panel(pushed, title="events that the brain received", title_align="left"),
    )
