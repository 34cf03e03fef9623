"""A brain for tests: a real HTTP server that verifies each signature over the raw bytes."""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from aiohttp import web
from robot_mcp_kit.signing import Verified, verify

from support import eventually

SECRET = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

# What a request is answered with: a status, or "hang", or "close" without a response.
Mood = int | str


@dataclass(frozen=True)
class Received:
    """One request whose signature was right."""

    verified: Verified
    raw: bytes
    body: Any
    accepted: bool  # answered with a 2xx

    @property
    def payload(self) -> Any:
        return self.body["payload"]

    @property
    def edge(self) -> tuple[str, int]:
        return self.body["task_id"], self.payload["seq"]


class Brain:
    """Listens on one port, which stays the same over `stop` and `start`."""

    def __init__(
        self, *, clock: Callable[[], float] = time.time, keepalive_timeout_s: float = 60.0
    ) -> None:
        self.clock = clock
        self.keepalive_timeout_s = keepalive_timeout_s
        self.received: list[Received] = []
        self.refused: list[Exception] = []
        self.mood: Callable[[Any], Mood] = lambda body: 204
        self.headers: dict[str, str] = {}
        self.connections: set[asyncio.BaseTransport] = set()
        self.port = 0
        self._runner: web.AppRunner | None = None

    async def hears(self, count: int) -> None:
        """Wait until so many requests were received."""
        await eventually(lambda: len(self.received) >= count)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/api/agent/events"

    @property
    def accepted(self) -> list[Received]:
        return [one for one in self.received if one.accepted]

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        app = web.Application()
        app.router.add_post("/api/agent/events", self._handle)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=0.01,
            keepalive_timeout=self.keepalive_timeout_s,
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Refuse connections from now on."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        try:
            verified = verify(raw, request.headers, secrets=[SECRET], now=self.clock())
        except Exception as error:
            self.refused.append(error)
            raise
        body = json.loads(raw)
        mood = self.mood(body)
        accepted = isinstance(mood, int) and 200 <= mood < 300
        self.received.append(Received(verified, raw, body, accepted))
        assert request.transport is not None
        self.connections.add(request.transport)
        if mood == "hang":
            await asyncio.sleep(3600)
        if mood == "close":
            request.transport.close()
        return web.Response(status=mood if isinstance(mood, int) else 200, headers=self.headers)
