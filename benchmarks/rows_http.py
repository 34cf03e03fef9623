"""Rows about asking: one client, a hundred at once, and what is left to ask under overload."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import TYPE_CHECKING, Any

import aiohttp
from mcp import Client

from benchmarks.mcp_http import Caller, request
from benchmarks.measure import (
    Child,
    Plan,
    Row,
    child,
    fresh_domain,
    in_turn,
    median,
    ms,
    percentile,
)
from benchmarks.rows_cpu import TOPICS, service_args

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Call = Callable[[str], Awaitable[float]]

CLIENTS = 100
# What the service is built for (40 topics x 50 Hz), times ten.
NOMINAL_HZ, OVERLOAD_HZ = 50, 500


@contextlib.asynccontextmanager
async def live_service(plan: Plan) -> AsyncIterator[tuple[Child, Caller]]:
    """Run the service with 12 live streams, and keep an answer of it for `ready_made`."""
    domain = fresh_domain()
    async with (
        child("publisher", domain, "--topics", 12, "--rate", 30),
        child("service", domain, *service_args(plan)) as service,
    ):
        await service.until(lambda a: a["streams"] >= 12)
        await asyncio.sleep(3.5)  # past discovery
        caller = Caller(service.hello["port"])
        made, _ = await asyncio.to_thread(caller.call, "what_do_you_see")
        kept = {
            "text": made["content"][0]["text"],
            "data": json.dumps(made["structuredContent"]),
        }
        await asyncio.to_thread(lambda: caller.call("keep_for_ready_made", **kept))
        yield service, caller


async def see(plan: Plan, note: Callable[[str], None]) -> Row:
    """`what_do_you_see` against a tool that returns the same bytes ready-made, as a brain has it.

    The client is the MCP SDK's own.
    """
    name = "what_do_you_see against a ready-made answer, official client"
    async with live_service(plan) as (service, _), official(service) as call:
        ready, ours = await _ready_and_ours(plan, note, service, call, turns=10, calls=40)
    return _row(name, ready, ours, bound=1.10)


async def rarely(plan: Plan, note: Callable[[str], None]) -> Row:
    """The same, but asked so rarely that nothing is decoded ahead and all caches are cold."""
    name = "what_do_you_see against ready-made, asked twice a second"
    async with live_service(plan) as (service, _), official(service) as call:
        ready, ours = await _ready_and_ours(
            plan, note, service, call, turns=2, calls=5, pause_s=0.5
        )
    return _row(name, ready, ours)


async def server(plan: Plan, note: Callable[[str], None]) -> Row:
    """The same by a client that costs next to nothing: what is left is the server alone."""
    name = "what_do_you_see against ready-made, without a client's work"
    async with live_service(plan) as (service, caller):

        async def call(tool: str) -> float:
            return (await asyncio.to_thread(caller.call, tool))[1]

        ready, ours = await _ready_and_ours(plan, note, service, call, turns=10, calls=40)
    return _row(name, ready, ours)


@contextlib.asynccontextmanager
async def official(service: Child) -> AsyncIterator[Call]:
    """Connect the SDK's client; a call returns how many seconds a tool's result took."""
    async with Client(f"http://127.0.0.1:{service.hello['port']}/mcp") as client:

        async def call(tool: str) -> float:
            began = time.perf_counter()
            answer = await client.call_tool(tool, {})
            took = time.perf_counter() - began
            assert answer.structured_content
            return took

        yield call


async def _ready_and_ours(
    plan: Plan,
    note: Callable[[str], None],
    service: Child,
    call: Call,
    *,
    turns: int,
    calls: int,
    pause_s: float = 0.002,
) -> list[list[dict[str, Any]]]:
    """Ask both tools in many short turns."""

    async def side(tool: str) -> dict[str, Any]:
        before, times = await service.ask(), []
        for _ in range(calls):
            times.append(await call(tool))
            await asyncio.sleep(pause_s)
        after = await service.ask()
        return {"times": times, "cpu": (after["cpu_s"] - before["cpu_s"]) / calls}

    for tool in ("ready_made", "what_do_you_see"):
        await side(tool)
    return await in_turn(
        turns * plan.rounds,
        lambda: side("ready_made"),
        lambda: side("what_do_you_see"),
        note=note,
    )


def _row(
    name: str,
    ready: list[dict[str, Any]],
    ours: list[dict[str, Any]],
    bound: float | None = None,
) -> Row:
    a, b = (median([took for turn in side for took in turn["times"]]) for side in (ready, ours))
    # Of two turns, one soon after the other: the machine itself drifts by more than this ratio.
    ratios = [median(y["times"]) / median(x["times"]) for x, y in zip(ready, ours, strict=True)]
    ratio = median(ratios)
    details = {
        "ready_cpu_ms": median([turn["cpu"] for turn in ready]) * 1e3,
        "ours_cpu_ms": median([turn["cpu"] for turn in ours]) * 1e3,
        "ratios": ratios,
    }
    target, ok = ("", None) if bound is None else (f"≤ {bound:.2f}×", ratio <= bound)
    return Row(name, ms(a), ms(b), ratio, target, ok, details)


async def clients(plan: Plan, note: Callable[[str], None]) -> Row:
    """A hundred clients that ask without a pause, and a probe among them."""
    async with live_service(plan) as (service, _):

        async def side(tool: str) -> dict[str, Any]:
            base = f"http://127.0.0.1:{service.hello['port']}"
            body, headers = request(tool, {})
            times: list[float] = []
            until = time.monotonic() + plan.seconds
            connector = aiohttp.TCPConnector(limit=CLIENTS + 1)
            async with aiohttp.ClientSession(connector=connector) as session:

                async def client() -> None:
                    while time.monotonic() < until:
                        began = time.perf_counter()
                        async with session.post(base + "/mcp", data=body, headers=headers) as got:
                            await got.read()
                            assert got.status == 200
                        times.append(time.perf_counter() - began)

                probing = asyncio.create_task(probe(session, base, until))
                await asyncio.gather(*(client() for _ in range(CLIENTS)))
                probes = await probing
            return {
                "p50": median(times),
                "p99": percentile(times, 0.99),
                "per_second": len(times) / plan.seconds,
                "probe_max": max(probes),
            }

        ready, ours = await in_turn(
            plan.rounds, lambda: side("ready_made"), lambda: side("what_do_you_see"), note=note
        )
        counts = await service.ask()
    a, b = (median([turn["p99"] for turn in side]) for side in (ready, ours))
    slowest = max(turn["probe_max"] for turn in ours)
    details = {"ready": ready, "ours": ours, "after": counts}
    name = f"{CLIENTS} clients at once, p99 (slowest probe {slowest * 1e3:.0f} ms)"
    return Row(name, ms(a), ms(b), b / a, "probe < 1 s", slowest < 1, details)


async def probe(session: aiohttp.ClientSession, base: str, until: float) -> list[float]:
    """Ask `/healthz` twenty times a second; return how long each answer took."""
    times = []
    while time.monotonic() < until:
        began = time.perf_counter()
        async with session.get(base + "/healthz") as got:
            assert got.status == 200
            await got.read()
        times.append(time.perf_counter() - began)
        await asyncio.sleep(0.05)
    return times


async def overload(plan: Plan, note: Callable[[str], None]) -> Row:
    """Ten times the load, every stream watched: what is dropped, and who still gets an answer."""
    domain = fresh_domain()
    load = ("--topics", TOPICS, "--rate", NOMINAL_HZ)
    async with (
        child("publisher", domain, *load) as publisher,
        child("service", domain, *service_args(plan, "--watch", TOPICS)) as service,
        aiohttp.ClientSession() as session,
    ):
        base = f"http://127.0.0.1:{service.hello['port']}"
        await service.until(lambda a: a["streams"] >= TOPICS)
        await asyncio.sleep(2)

        async def phase(seconds: float) -> dict[str, Any]:
            before, sent_before = await service.ask(), (await publisher.ask())["sent"]
            probes = await probe(session, base, time.monotonic() + seconds)
            after, sent_after = await service.ask(), (await publisher.ask())["sent"]
            return {
                "probe_p50": median(probes),
                "probe_max": max(probes),
                "sent_hz": (sent_after - sent_before) / seconds,
                "received_hz": (after["received"] - before["received"]) / seconds,
                "dropped": after["dropped"] - before["dropped"],
                "missing": sent_after - sent_before - after["received"] + before["received"],
                "rss_mib": after["rss_mib"],
            }

        phases: dict[str, list[dict[str, Any]]] = {"nominal": [], "overload": [], "after": []}
        for turn in range(2):
            note(f"round {turn + 1} of 2")
            phases["nominal"].append(await phase(plan.seconds))
            await publisher.ask(rate=OVERLOAD_HZ)
            await asyncio.sleep(1)
            phases["overload"].append(await phase(plan.seconds))
            phases["after"].append(await _recovery(publisher, service, session, base))
    a, b = (max(p["probe_max"] for p in phases[name]) for name in ("nominal", "overload"))
    recovered = max(p["recovered_s"] for p in phases["after"])
    dropped = sum(p["dropped"] for p in phases["overload"])
    sent = median([p["sent_hz"] for p in phases["overload"]])
    taken = median([p["received_hz"] for p in phases["overload"]])
    name = (
        f"10× overload, slowest probe ({sent:.0f}/s sent, {taken:.0f}/s taken,"
        f" {dropped} counted as dropped or lost, level again after {recovered * 1e3:.0f} ms)"
    )
    ok = b < 0.1 and recovered < 1
    return Row(name, ms(a), ms(b), b / a, "< 100 ms", ok, phases)


async def _recovery(
    publisher: Child, service: Child, session: aiohttp.ClientSession, base: str
) -> dict[str, Any]:
    """Go back to the nominal load and see how soon a probe is quick and nothing is dropped."""
    await publisher.ask(rate=NOMINAL_HZ)
    began = time.monotonic()
    while True:
        dropped = (await service.ask())["dropped"]
        [took] = (await probe(session, base, time.monotonic() + 0.04))[:1]
        again = (await service.ask())["dropped"]
        recovered = time.monotonic() - began
        if (took < 0.02 and again == dropped) or recovered > 20:
            return {"recovered_s": recovered, "probe_s": took}
