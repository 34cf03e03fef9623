"""Rows about time: from a publication to a readable value, to a posted event, to a new topic."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from aiohttp import web
from robot_mcp_kit.signing import verify

from benchmarks.measure import (
    SECRET,
    Plan,
    Row,
    child,
    fresh_domain,
    in_turn,
    median,
    ms,
    percentile,
)
from benchmarks.rows_cpu import service_args

if TYPE_CHECKING:
    from collections.abc import Callable

TOPICS, RATE_HZ = 12, 30


async def readable(plan: Plan, note: Callable[[str], None]) -> Row:
    """From publish to what `get_latest` answers, over a raw subscription in a plain node."""
    domain = fresh_domain()
    topics = [f"/vision/load_{i:03d}/detections" for i in range(TOPICS)]

    async def side(module: str, *args: object) -> list[float]:
        async with child(module, domain, *args) as measured:
            await measured.ask(time=topics)
            await measured.until(lambda a: len(a["first_ns"]) == TOPICS, first=True)
            await asyncio.sleep(1)
            await measured.ask(latencies=True)
            await asyncio.sleep(plan.seconds)
            return [ns / 1e9 for ns in (await measured.ask(latencies=True))["latencies_ns"]]

    async with child("publisher", domain, "--topics", TOPICS, "--rate", RATE_HZ):
        bare, ours = await in_turn(
            plan.rounds,
            lambda: side("plain_node", "--topics", TOPICS, "--raw"),
            lambda: side("service", *service_args(plan)),
            note=note,
        )
    a, b = (median([median(turn) for turn in side]) for side in (bare, ours))
    details = {
        "bare_p99_ms": median([percentile(turn, 0.99) for turn in bare]) * 1e3,
        "ours_p99_ms": median([percentile(turn, 0.99) for turn in ours]) * 1e3,
        "messages": [len(turn) for side in (bare, ours) for turn in side],
    }
    name = "publish → readable by get_latest, p50"
    return Row(name, ms(a), ms(b), b / a, "+ ≤ 2 ms", b - a <= 2e-3, details)


async def after_idle(plan: Plan, note: Callable[[str], None]) -> Row:
    """From publish to what `get_latest` answers: single messages after silence, over a flow."""
    domain, idle_s = fresh_domain(), 15 * plan.seconds
    measured = "/vision/load_000/detections"
    idle_cpu = []

    async def flowing() -> list[float]:
        await publisher.ask(rate=RATE_HZ)
        await asyncio.sleep(1)
        await service.ask(latencies=True)
        await asyncio.sleep(plan.seconds)
        return await latencies_s()

    async def silent() -> list[float]:
        await publisher.ask(rate=0)
        await asyncio.sleep(0.5)
        await service.ask(latencies=True)
        before_s = service.cpu_s()
        await asyncio.sleep(idle_s)
        idle_cpu.append((service.cpu_s() - before_s) / idle_s)
        for turn in range(int(plan.seconds * 5)):
            await publisher.ask(one=0)
            await asyncio.sleep(0.2 + 0.037 * (turn % 8))
        return await latencies_s()

    async def latencies_s() -> list[float]:
        return [ns / 1e9 for ns in (await service.ask(latencies=True))["latencies_ns"]]

    async with (
        child("publisher", domain, "--topics", TOPICS, "--rate", RATE_HZ) as publisher,
        child("service", domain, *service_args(plan)) as service,
    ):
        await service.ask(time=[measured])
        await service.until(lambda a: a["streams"] == TOPICS)
        flow, single = await in_turn(plan.rounds, flowing, silent, note=note)
    a, b = (percentile([one for turn in side for one in turn], 0.95) for side in (flow, single))
    details = {
        "first_ms": [turn[0] * 1e3 for turn in single],
        "single_p50_ms": [median(turn) * 1e3 for turn in single],
        "flow_p50_ms": [median(turn) * 1e3 for turn in flow],
        "idle_cpu": idle_cpu,
        "messages": [len(turn) for side in (flow, single) for turn in side],
    }
    name = f"first answers after {idle_s:.0f} s of silence, over those of a flow, p95"
    return Row(name, ms(a), ms(b), b / a, "≤ 10 ms", b <= 10e-3, details)


async def edge(plan: Plan, note: Callable[[str], None]) -> Row:
    """From a rising edge to its POST; the baseline posts unsigned from a typed callback."""
    posted: asyncio.Queue[int] = asyncio.Queue()

    async def receive(http_request: web.Request) -> web.Response:
        raw = await http_request.read()
        now = time.monotonic_ns()
        if "webhook-id" in http_request.headers:
            verify(raw, http_request.headers, secrets=[SECRET], now=time.time())
        posted.put_nowait(now)
        return web.Response(status=204)

    app = web.Application()
    app.router.add_post("/api/agent/events", receive)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/api/agent/events"
    domain, topic = fresh_domain(), "/vision/watched/triggered"

    async def side(module: str, *args: object) -> list[float]:
        took = []
        async with child(module, domain, *args) as measured:
            await publisher.ask(say=topic, value="false")
            async with asyncio.timeout(60):
                while not (await measured.ask())["received"]:
                    await publisher.ask(say=topic, value="false")
                    await asyncio.sleep(0.2)
            await asyncio.sleep(2.5)  # the watch is there, too
            for turn in range(int(plan.seconds * 6)):
                rising = (await publisher.ask(say=topic, value="true"))["at_ns"]
                at_ns = await asyncio.wait_for(posted.get(), 10)
                if turn:  # the first one opens the connection
                    took.append((at_ns - rising) / 1e9)
                await publisher.ask(say=topic, value="false")
                await asyncio.sleep(0.05)
        return took

    try:
        async with child("publisher", domain) as publisher:
            plain, ours = await in_turn(
                plan.rounds,
                lambda: side("plain_node", "--post", url),
                lambda: side("service", *service_args(plan, "--brain", url)),
                note=note,
            )
    finally:
        await runner.cleanup()
    a, b = (median([median(turn) for turn in side]) for side in (plain, ours))
    details = {"ours_p99_ms": [percentile(turn, 0.99) * 1e3 for turn in ours]}
    name = "rising edge → signed POST received, p50"
    return Row(name, ms(a), ms(b), b / a, "≤ 10 ms", b <= 10e-3, details)


async def appear(plan: Plan, note: Callable[[str], None]) -> Row:
    """From a topic's creation to its first value; the baseline has subscribed to it before."""
    count = int(plan.seconds * 3)

    async def side(module: str, *args: object) -> list[float]:
        domain = fresh_domain()
        topics = [f"/vision/appear_{i:03d}/detections" for i in range(count)]
        load = ("--topics", 1, "--rate", 50)
        async with (
            child("publisher", domain, *load) as publisher,
            child(module, domain, *args) as measured,
        ):
            await measured.ask(time=topics)
            await asyncio.sleep(4)  # past start-up
            created = {}
            for index, topic in enumerate(topics):
                created[topic] = (await publisher.ask(appear=topic))["at_ns"]
                await asyncio.sleep(0.1 + 0.037 * (index % 8))
            await asyncio.sleep(1.5)
            first = (await measured.ask(first=True))["first_ns"]
        return [(first[t] - at) / 1e9 if t in first else 60.0 for t, at in created.items()]

    bare, ours = await in_turn(
        2,
        lambda: side("plain_node", "--topics", count, "--name", "appear", "--raw"),
        lambda: side("service", *service_args(plan)),
        note=note,
    )
    a, b = (percentile([one for turn in side for one in turn], 0.95) for side in (bare, ours))
    details = {"ours_p50_ms": median([one for turn in ours for one in turn]) * 1e3}
    name = "topic appears → first value, p95"
    return Row(name, ms(a), ms(b), b / a, "≤ 500 ms", b <= 0.5, details)
