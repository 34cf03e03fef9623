"""The service under measurement: the real application under uvicorn, and a look at its counters.

Beside its own tools it has `ready_made`, which returns the bytes of an earlier answer: what the
server and the transport cost without us.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from mcp.types import CallToolResult, TextContent

from benchmarks.measure import SECRET, answer_commands, say
from mcp_perception_buffer import server, web
from mcp_perception_buffer.answers import tools
from mcp_perception_buffer.answers.latest import latest
from mcp_perception_buffer.answers.results import SceneResult
from mcp_perception_buffer.answers.wording import RenderLimits
from mcp_perception_buffer.component import Component
from mcp_perception_buffer.logs import configure_logging
from mcp_perception_buffer.settings import Settings, load_settings

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer
    from starlette.applications import Starlette

    from mcp_perception_buffer.buffer import Buffer
    from mcp_perception_buffer.model import Observation


class Probe:
    """Counts and times what arrives in the buffer."""

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self._limits = RenderLimits()
        self.latencies_ns: list[int] = []
        self.first_ns: dict[str, int] = {}

    def time(self, topic: str) -> None:
        """From now on note when a message is there for `get_latest`, its rendering included."""
        skill = topic.split("/")[-2]

        def readable(seen: Observation | None, received_ns: int) -> None:
            answer = latest(self._buffer.snapshot(), skill, self._limits, time.time()).data
            now = time.monotonic_ns()
            self.first_ns.setdefault(topic, now)
            stamp = answer["stamp"]
            if stamp is not None and len(self.latencies_ns) < 100_000:
                self.latencies_ns.append(now - stamp["sec"] * 10**9 - stamp["nanosec"])

        self._buffer.listen(skill, topic.split("/")[-1], readable)

    def counts(self) -> dict[str, Any]:
        """Return the sums over all streams; from any thread, they are only read."""
        streams = list(self._buffer._streams.values())
        return {
            "streams": sum(1 for stream in streams if stream.received),
            "received": sum(stream.received for stream in streams),
            "dropped": sum(stream.dropped + stream.lost for stream in streams),
            "undecodable": sum(stream.undecodable for stream in streams),
            "kept": sum(len(stream.entries) for stream in streams),
        }


def add_ready_made(mcp: MCPServer) -> None:
    """Give the server a tool of the same schema that costs nothing but the server itself."""
    made: list[CallToolResult] = []

    async def ready_made() -> Annotated[CallToolResult, SceneResult]:
        return made[0]

    async def keep_for_ready_made(text: str, data: str) -> str:
        content = TextContent(type="text", text=text)
        made[:] = [CallToolResult(content=[content], structured_content=json.loads(data))]
        return "kept"

    mcp.add_tool(ready_made)
    mcp.add_tool(keep_for_ready_made, structured_output=False)


def watches(count: int, edge: bool) -> list[dict[str, Any]]:
    """Return tasks that watch so many of the load's streams, and one that `say` turns true."""
    tasks: list[dict[str, Any]] = [
        {
            "skill_id": f"task-{index}",
            "skill": f"load_{index:03d}",
            "watch": {"detections": {"label": "object_0", "min_score": 0.5}},
        }
        for index in range(count)
    ]
    if edge:
        watch = {"output": "triggered", "equals": True}
        tasks.append({"skill_id": "edge", "skill": "watched", "watch": watch})
    return tasks


def answer(app: Starlette, port: int, loop: asyncio.AbstractEventLoop) -> None:
    """Say that the service is up, then answer commands; in a thread."""
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            if hasattr(app.state, "service"):
                break
        time.sleep(0.05)
    probe = Probe(app.state.service.buffer)

    def handle(command: dict[str, Any]) -> dict[str, Any]:
        counts = probe.counts()
        for topic in command.get("time", ()):
            loop.call_soon_threadsafe(probe.time, topic)
        if command.get("latencies"):
            counts["latencies_ns"], probe.latencies_ns = probe.latencies_ns, []
        if command.get("first"):
            counts["first_ns"] = probe.first_ns
        return counts

    say({"port": port})
    answer_commands(handle)


async def serve(options: argparse.Namespace, folder: Path) -> None:
    """Serve until a signal comes, by the service's own entry point."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ["MCP_PORT"] = str(port)
    if options.brain:
        os.environ |= {"RVC_CALLBACK_URL": options.brain, "RVC_EVENT_SECRET": SECRET}
    tasks = watches(options.watch, bool(options.brain))
    target = "mcp_perception_buffer.tasks.static.StaticTaskSource"
    settings, _ = load_settings([f"state_dir={folder}"])
    settings = settings.model_copy(update={"tasks": Component.of(target, tasks=tasks)})

    def create_mcp(*args: Any, **kwargs: Any) -> MCPServer:
        mcp = tools.create_mcp(*args, **kwargs)
        add_ready_made(mcp)
        return mcp

    def make_app(settings: Settings, fail: Any) -> Starlette:
        app = server.create_app(settings, fail)
        where = (app, port, asyncio.get_running_loop())
        threading.Thread(target=answer, args=where, daemon=True).start()
        return app

    vars(server)["create_mcp"] = create_mcp
    await web.serve_http(settings, make_app)


def main() -> None:
    """Run until it is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--watch", type=int, default=0, help="so many of the load's streams")
    parser.add_argument("--brain", default="", help="where the events of /vision/watched go")
    parser.add_argument("--uvloop", action="store_true")
    options = parser.parse_args()
    configure_logging(level="ERROR", pretty=False)
    factory = None
    if options.uvloop:
        import uvloop

        factory = uvloop.new_event_loop
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=factory) as runner:
        runner.run(serve(options, Path(folder)))


if __name__ == "__main__":
    main()
