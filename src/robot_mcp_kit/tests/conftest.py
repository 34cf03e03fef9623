"""A receiver over real HTTP that verifies the raw bytes, and a scripted one below HTTP."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from hypothesis import settings

from robot_mcp_kit import SignatureError, Verified, verify

# Neither the machine's speed nor an earlier run may decide a test.
settings.register_profile("kit", deadline=None, database=None, derandomize=True)
settings.load_profile("kit")

SECRET = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
Conversation = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Listen = Callable[[Conversation], Awaitable[str]]


@dataclass
class FakeClock:
    now_s: float = 1_785_196_800.25

    def __call__(self) -> float:
        return self.now_s


async def accept(request: web.Request) -> web.StreamResponse:
    return web.Response(status=204)


@dataclass
class Brain:
    """Verifies every request as it came, then answers it with `answer`."""

    clock: FakeClock
    secrets: list[str]
    url: str = ""
    answer: Answer = accept
    verified: list[Verified] = field(default_factory=list)
    refused: list[SignatureError] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    requests: list[web.Request] = field(default_factory=list)
    connections: set[object] = field(default_factory=set)

    def answers(self, status: int, **headers: str) -> None:
        async def answer(request: web.Request) -> web.StreamResponse:
            return web.Response(status=status, headers=headers)

        self.answer = answer

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.requests.append(request)
        self.connections.add(request.transport)
        try:
            verified = verify(body, request.headers, secrets=self.secrets, now=self.clock())
        except SignatureError as error:
            self.refused.append(error)
            return web.Response(status=401)
        self.verified.append(verified)
        self.bodies.append(body)
        return await self.answer(request)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def brain(clock: FakeClock) -> AsyncIterator[Brain]:
    brain = Brain(clock, [SECRET])
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", brain.handle)
    # No access log: the receiver may know the URL's query.
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    brain.url = f"http://{host}:{port}/api/agent/events"
    try:
        yield brain
    finally:
        await runner.cleanup()


@pytest.fixture
async def listen() -> AsyncIterator[Listen]:
    """Serve conversations on a raw loopback socket; each ends with its connection."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(conversation: Conversation) -> str:
            talks: set[asyncio.Task[None]] = set()

            async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                task = asyncio.current_task()
                assert task is not None
                talks.add(task)
                try:
                    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                        await conversation(reader, writer)
                finally:
                    writer.close()
                    with contextlib.suppress(ConnectionError):
                        await writer.wait_closed()

            server = await asyncio.start_server(talk, "127.0.0.1", 0)

            async def stop() -> None:
                server.close()
                if talks:
                    await asyncio.wait(talks, timeout=5)
                await server.wait_closed()

            stack.push_async_callback(stop)
            host, port = server.sockets[0].getsockname()
            return f"http://{host}:{port}/"

        yield start
