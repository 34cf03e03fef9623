"""Rows about answers: what it costs to be told of changes, and how large an answer may get."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import aiohttp

from benchmarks.mcp_http import message, request
from benchmarks.measure import (
    Child,
    Plan,
    Row,
    child,
    fresh_domain,
    in_turn,
    median,
    ms,
    share,
)
from benchmarks.rows_cpu import DETECTIONS_TYPE, service_args
from mcp_perception_buffer.answers.budget import DATA_FACTOR, Answer, size
from mcp_perception_buffer.answers.latest import latest
from mcp_perception_buffer.answers.scene import scene
from mcp_perception_buffer.answers.wording import RenderLimits
from mcp_perception_buffer.buffer import Buffer
from mcp_perception_buffer.model import Box, Detection, Observation, Point, Stamp, StreamInfo

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

CLIENTS = 100
POLL_S, SELDOM_S, OFTEN_S = 1.0, 5.0, 0.1
SCENE = "perception://scene"
CHANGING = "/vision/watched/triggered"
SKILLS, DETECTIONS = 200, 500


class Crowd:
    """A hundred clients of one service, each on a connection of its own."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url
        self.answers = 0

    async def poll(self, late_s: float) -> None:
        """Ask `what_do_you_see` once a second for ever, from a moment of one's own on."""
        body, headers = request("what_do_you_see", {})
        due = time.monotonic() + late_s
        while True:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            due += POLL_S
            await self._ask(body, headers)

    async def listen(self, late_s: float) -> None:
        """Subscribe to the scene, and read it whenever it is said to have changed."""
        await asyncio.sleep(late_s)
        body, headers = message(
            "subscriptions/listen", notifications={"resourceSubscriptions": [SCENE]}
        )
        read = message("resources/read", SCENE, uri=SCENE)
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._session.post(
            self._url, data=body, headers=headers, timeout=timeout
        ) as got:
            assert got.status == 200
            async for line in got.content:
                if b"notifications/resources/updated" in line:
                    await self._ask(*read)

    async def cost(self, service: Child, seconds: float) -> dict[str, float]:
        """Return what the service uses meanwhile, and how often it answers."""
        before, answered, began = await service.ask(), self.answers, time.monotonic()
        await asyncio.sleep(seconds)
        after, lasted = await service.ask(), time.monotonic() - began
        cpu = (after["cpu_s"] - before["cpu_s"]) / lasted
        return {"cpu": cpu, "answers_hz": (self.answers - answered) / lasted}

    async def _ask(self, body: bytes, headers: dict[str, str]) -> None:
        async with self._session.post(self._url, data=body, headers=headers) as got:
            assert got.status == 200
            await got.read()
        self.answers += 1


async def change(publisher: Child, every_s: float) -> None:
    """Let an output say something new, for ever."""
    for number in itertools.count():
        await publisher.ask(say=CHANGING, value=str(number))
        await asyncio.sleep(every_s)


@contextlib.asynccontextmanager
async def running(*coroutines: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run these until the block ends; one that fails fails the block."""
    tasks = [asyncio.create_task(one) for one in coroutines]
    try:
        yield
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def subscribers(plan: Plan, note: Callable[[str], None]) -> Row:
    """A hundred clients that are told of changes and read then, against a hundred that poll.

    The scene is one of 12 streams at 30 Hz in which an output changes seldom, or all the time.
    """
    domain = fresh_domain()
    async with (
        child("publisher", domain, "--topics", 12, "--rate", 30) as publisher,
        child("service", domain, *service_args(plan)) as service,
    ):
        await publisher.ask(say=CHANGING, value="begin")
        await service.until(lambda a: a["streams"] >= 12)
        await asyncio.sleep(3.5)  # past discovery
        seconds = max(2 * SELDOM_S, plan.seconds)

        async def side(*, listening: bool, every_s: float) -> dict[str, Any]:
            url = f"http://127.0.0.1:{service.hello['port']}/mcp"
            # The server ends idle connections after 5 s, which must not meet a request.
            connector = aiohttp.TCPConnector(limit=2 * CLIENTS + 1, keepalive_timeout=2)
            async with aiohttp.ClientSession(connector=connector) as session:
                crowd = Crowd(session, url)
                one = crowd.listen if listening else crowd.poll
                clients = [one(i / CLIENTS) for i in range(CLIENTS)]
                async with running(*clients, change(publisher, every_s)):
                    await asyncio.sleep(2.0)  # past subscribing
                    return await crowd.cost(service, seconds)

        seldom, often = [
            await in_turn(
                plan.rounds,
                partial(side, listening=False, every_s=every_s),
                partial(side, listening=True, every_s=every_s),
                note=note,
            )
            for every_s in (SELDOM_S, OFTEN_S)
        ]
    return _subscribers_row(seldom, often)


def _subscribers_row(seldom: list[list[Any]], often: list[list[Any]]) -> Row:
    def of(turns: list[dict[str, Any]], key: str) -> float:
        return median([turn[key] for turn in turns])

    polling, told = (of(turns, "cpu") for turns in seldom)
    always = (
        f"{share(of(often[0], 'cpu'))} → {share(of(often[1], 'cpu'))},"
        f" {of(often[0], 'answers_hz'):.0f} → {of(often[1], 'answers_hz'):.0f} answers/s"
    )
    name = (
        f"{CLIENTS} subscribers against {CLIENTS} that poll once a second, a change every"
        f" {SELDOM_S:g} s (every {OFTEN_S:g} s: {always})"
    )
    details = {"seldom": seldom, "often": often}
    return Row(name, share(polling), share(told), told / polling, "< 1×", told < polling, details)


async def budget(plan: Plan, note: Callable[[str], None]) -> Row:
    """Size and time of the two largest answers, of 200 skills that see 500 objects each.

    The transport and the check of the schema come on top.
    """
    limits = RenderLimits()
    buffer = crowd(SKILLS, DETECTIONS)
    asked: dict[str, Callable[[], Answer]] = {
        "what_do_you_see": lambda: scene(buffer.snapshot(), limits, "now", 5.0),
        "get_latest": lambda: latest(buffer.snapshot(), "skill_000", limits, 5.0),
    }
    details: dict[str, Any] = {}
    for tool, ask in asked.items():
        note(tool)
        began = time.perf_counter()
        first = ask()
        first_s, times = time.perf_counter() - began, []
        for _ in range(20 * plan.rounds):
            began = time.perf_counter()
            ask()
            times.append(time.perf_counter() - began)
        details[tool] = {
            "text": len(first.text),
            "data": size(first.data),
            "first_s": first_s,
            "again_s": median(times),
        }
    told = ", ".join(
        f"{tool} {d['text']} characters, {d['data']} bytes, first {ms(d['first_s'])}"
        for tool, d in details.items()
    )
    name = f"{SKILLS} skills × {DETECTIONS} detections: {told}"
    most = limits.max_chars
    ok = all(d["text"] <= most and d["data"] <= DATA_FACTOR * most for d in details.values())
    again = " / ".join(ms(d["again_s"]) for d in details.values())
    return Row(name, "-", again, None, f"≤ {most}, ≤ {DATA_FACTOR}×", ok, details)


def crowd(skills: int, found: int) -> Buffer:
    """Return a buffer in which as many skills see as many objects of four labels, and say a text.

    What a message says is known; a first answer still has to put it into words.
    """
    labels = ("person", "chair", "cup", "a very long label indeed, as long as it may be")

    def decode(info: StreamInfo, cdr: bytes) -> Observation:
        if info.kind == "semantic":
            return Observation(Stamp(1, 2), "camera", "lorem ipsum " * 100)
        seen = (
            Detection(labels[i % 4], 0.9 - i / 1000, Box(7 * i, 9, 50, 50), Point(1, 2, i), "7")
            for i in range(found)
        )
        return Observation(Stamp(1, 2), "camera", detections=tuple(seen))

    buffer = Buffer(decode, freshness_window_s=3600.0)
    buffer.discovering = False
    for number in range(skills):
        skill = f"skill_{number:03d}"
        for output, kind in (("detections", "detections"), ("text", "semantic")):
            topic = f"/vision/{skill}/{output}"
            info = StreamInfo(topic, skill, output, kind, DETECTIONS_TYPE)  # type: ignore[arg-type]
            buffer.open(info)
            buffer.put(topic, b"", time.monotonic_ns())
    return buffer
