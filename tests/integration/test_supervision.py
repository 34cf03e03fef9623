"""A part that ends, whatever ended it, is never hidden behind a 200."""

import asyncio
import contextlib
import gc
import socket
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx2 as httpx
import pytest
from starlette.applications import Starlette

from mcp_perception_buffer.server import create_app
from mcp_perception_buffer.settings import Settings
from processes import Publisher, fresh_domain, publisher
from support import eventually

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy", reason="run with --extra ros")

from rclpy.context import Context  # noqa: E402

from mcp_perception_buffer.sources.ros_waitset import WaitSet  # noqa: E402


@dataclass
class Watched:
    app: Starlette
    vision: Publisher
    http: httpx.AsyncClient
    failures: list[str]

    async def reasons(self) -> list[str]:
        answer = await self.http.get("/healthz")
        return [] if answer.status_code == 200 else list(answer.json()["reasons"])


@contextlib.asynccontextmanager
async def watching(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Watched]:
    domain = fresh_domain()
    monkeypatch.setenv("ROS_DOMAIN_ID", domain)
    failures: list[str] = []
    app = create_app(Settings(), on_failure=lambda: failures.append("failed"))
    async with publisher(domain=domain) as vision, app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            await eventually(lambda: len(app.state.service.buffer.snapshot().streams) == 6)
            watched = Watched(app, vision, http, failures)
            assert await watched.reasons() == []
            yield watched


@pytest.mark.parametrize(
    "name",
    [
        "executor",
        "ros-heartbeat",
        "reconcile",
        "heartbeat",
        "watcher",
        "consume:/vision/find_object/detections",
    ],
)
async def test_a_part_of_the_source_that_ends_fails_the_service(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    async with watching(monkeypatch) as watched:
        [task, *_] = [task for task in asyncio.all_tasks() if task.get_name() == name]
        task.cancel()  # even if nothing was raised
        reasons = await eventually(watched.reasons, timeout_s=10)
        assert any(reason.startswith(("source:", name)) for reason in reasons)
        assert name in capsys.readouterr().out
        assert watched.failures  # which ends the process with a non-zero code


async def test_a_context_shut_down_by_others_fails_the_service(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with watching(monkeypatch) as watched:
        for context in [o for o in gc.get_objects() if isinstance(o, Context) and o.ok()]:
            context.shutdown()
        reasons = await eventually(watched.reasons, timeout_s=10)
        assert any(reason.startswith("source:") for reason in reasons)
        assert "the ROS context was shut down" in capsys.readouterr().out
        assert watched.failures


async def test_a_wait_thread_that_is_stuck_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with watching(monkeypatch) as watched:
        stuck = threading.Event()
        monkeypatch.setattr(WaitSet, "wait", lambda *_: stuck.wait())
        try:
            reasons = await eventually(watched.reasons, timeout_s=15)
            assert "executor: no heartbeat" in " ".join(reasons)
        finally:
            stuck.set()


async def test_streams_that_go_with_their_publisher_are_no_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with watching(monkeypatch) as watched:
        await watched.vision.end()

        def consumers() -> list[str]:
            names = [task.get_name() for task in asyncio.all_tasks()]
            return [name for name in names if name.startswith("consume:")]

        # Cancelled on purpose, which nobody takes for an accident.
        await eventually(lambda: not consumers())
        assert await watched.reasons() == []
        assert watched.failures == []


BLOCKABLE = """
import asyncio, sys, time
from mcp_perception_buffer.server import serve_http
from mcp_perception_buffer.settings import Settings

async def main():
    def block():
        sys.stdin.readline()
        time.sleep(9)

    asyncio.get_running_loop().add_reader(sys.stdin, block)
    print("ready", flush=True)
    await serve_http(Settings())

asyncio.run(main())
"""


async def test_a_blocked_loop_is_answered_for_and_recovers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("MCP_PORT", str(port))
    async with publisher(code=BLOCKABLE, domain=fresh_domain()) as service:

        async def probe() -> tuple[int, str]:
            # A connection each, as a supervisor's probe.
            async with httpx.AsyncClient(timeout=2) as http:
                try:
                    answer = await http.get(f"http://127.0.0.1:{port}/healthz")
                except httpx.TransportError:
                    return 0, ""
            return answer.status_code, answer.text

        async def alive() -> bool:
            return (await probe())[0] == 200

        async def refused() -> str:
            status, body = await probe()
            return body if status == 503 else ""

        await eventually(alive)
        await service.say("", "")
        assert "loop: no heartbeat" in await eventually(refused, timeout_s=10)
        await eventually(alive)
