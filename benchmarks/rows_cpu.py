"""Rows about processor time: ingest, watches, many streams, idle."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.mcp_http import Caller
from benchmarks.measure import (
    DETECTIONS_TYPE,
    Child,
    Plan,
    Row,
    Side,
    child,
    fresh_domain,
    in_turn,
    median,
    share,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TOPICS, RATE_HZ = 40, 50


class Load(NamedTuple):
    """Messages of 8 detections each."""

    topics: int
    rate_hz: float  # of each topic
    type: str = DETECTIONS_TYPE


async def spent(measured: Child, seconds: float, port: int | None) -> dict[str, Any]:
    """Return what a process used over `seconds`; the service is asked once a second meanwhile."""
    before, began = await measured.ask(), time.monotonic()
    caller = Caller(port) if port is not None else None
    for second in range(round(seconds)):
        if caller is not None:
            await asyncio.to_thread(caller.call, "what_do_you_see")
        await asyncio.sleep(max(0.0, began + second + 1 - time.monotonic()))
    after, lasted = await measured.ask(), time.monotonic() - began
    received = after["received"] - before["received"]
    return {
        "cpu": (after["cpu_s"] - before["cpu_s"]) / lasted,
        "rate_hz": received / lasted,
        **{key: after[key] for key in ("rss_mib", "fds", "threads", "streams")},
        "dropped": after.get("dropped", 0) - before.get("dropped", 0),
    }


def service_args(plan: Plan, *more: object) -> tuple[object, ...]:
    """Return the service's options for this plan."""
    return (*more, "--uvloop") if plan.uvloop else more


async def _standing(
    running: contextlib.AsyncExitStack, module: str, load: Load, *args: object, asked: bool = False
) -> Side:
    """Start a process and a publisher for it alone, and return what lets messages flow for a turn.

    What a message costs differs from one second to the next more than between two sides. So both
    stand ready all the time, past their start, only the messages change sides, in many short turns,
    and all turns of a side count together: some of the work comes every ten seconds.
    """
    domain = fresh_domain()
    options = ("--topics", load.topics, "--rate", load.rate_hz, "--type", load.type)
    publisher = await running.enter_async_context(child("publisher", domain, *options))
    measured = await running.enter_async_context(child(module, domain, *args))
    await measured.until(lambda a: a["streams"] >= load.topics)
    await asyncio.sleep(4)  # past discovery
    await publisher.ask(rate=0)

    async def turn() -> dict[str, Any]:
        await publisher.ask(rate=load.rate_hz)
        await asyncio.sleep(0.1)
        found = await spent(measured, 2.0, measured.hello["port"] if asked else None)
        await publisher.ask(rate=0)
        await asyncio.sleep(0.1)
        return found

    return turn


def _message_us(turns: Sequence[dict[str, Any]]) -> float:
    """Return what a message cost on average; a plain node may be too slow for all of them."""
    return sum(turn["cpu"] for turn in turns) / sum(turn["rate_hz"] for turn in turns) * 1e6


async def _ingest(
    plan: Plan,
    note: Callable[[str], None],
    name: str,
    bound: float,
    *args: object,
    type_name: str = DETECTIONS_TYPE,
) -> Row:
    load = Load(TOPICS, RATE_HZ, type_name)
    typed = ("--topics", TOPICS, "--type", type_name)
    async with contextlib.AsyncExitStack() as running:
        plain, ours = await in_turn(
            4 * plan.rounds,
            await _standing(running, "plain_node", load, *typed),
            await _standing(running, "service", load, *service_args(plan, *args), asked=True),
            note=note,
        )
    a, b = _message_us(plain), _message_us(ours)
    theirs, ours_text = (
        f"{us:.0f} µs ({median([turn['cpu'] for turn in turns]) * 100:.0f} %)"
        for us, turns in ((a, plain), (b, ours))
    )
    details = {"plain": plain, "ours": ours}
    return Row(name, theirs, ours_text, b / a, f"≤ {bound}×", b / a <= bound, details)


async def ingest(plan: Plan, note: Callable[[str], None]) -> Row:
    """40 topics x 50 Hz x 8 detections, asked once a second, against a plain typed node."""
    return await _ingest(plan, note, f"ingest CPU a message, {TOPICS} topics × {RATE_HZ} Hz", 0.15)


async def watched(plan: Plan, note: Callable[[str], None]) -> Row:
    """The same with each stream watched, so that each message is decoded and judged."""
    return await _ingest(plan, note, "the same, every stream watched", 0.45, "--watch", TOPICS)


async def ingest_vision_msgs(plan: Plan, note: Callable[[str], None]) -> Row:
    """The same of the type that most detectors publish, asked once a second."""
    from benchmarks.detectors import VISION_MSGS, install

    install()
    name = "the same of vision_msgs/Detection2DArray"
    return await _ingest(plan, note, name, 0.15, type_name=VISION_MSGS)


async def streams(plan: Plan, note: Callable[[str], None]) -> Row:
    """500 streams against 10 at the same total rate."""
    total_hz = 1000
    async with contextlib.AsyncExitStack() as running:
        few, many = await in_turn(
            4 * plan.rounds,
            await _standing(running, "service", Load(10, total_hz / 10), *service_args(plan)),
            await _standing(running, "service", Load(500, total_hz / 500), *service_args(plan)),
            note=note,
        )
    a, b = _message_us(few), _message_us(many)
    rss, fds = (median([one[key] for one in many]) for key in ("rss_mib", "fds"))
    return Row(
        f"CPU a message, 500 streams against 10 ({rss:.0f} MiB, {fds:.0f} fds)",
        f"{a:.1f} µs",
        f"{b:.1f} µs",
        b / a,
        "≤ 1.3×",
        b / a <= 1.3,
        {"few": few, "many": many},
    )


async def idle(plan: Plan, note: Callable[[str], None]) -> Row:
    """100 streams whose publishers live and are silent."""
    domain, topics = fresh_domain(), 100
    seconds = 10.0  # some of the work comes that often
    async with child("publisher", domain, "--topics", topics) as publisher:

        async def side(module: str, *args: object) -> dict[str, Any]:
            async with child(module, domain, *args) as measured:
                async with asyncio.timeout(60):
                    while (await measured.ask())["streams"] < topics:
                        await publisher.ask(once=True)
                        await asyncio.sleep(0.3)
                await asyncio.sleep(4)  # discovery has settled
                return await spent(measured, seconds, None)

        plain, ours = await in_turn(
            2,
            lambda: side("plain_node", "--topics", topics),
            lambda: side("service", *service_args(plan)),
            note=note,
        )
    a, b = (median([one["cpu"] for one in side]) for side in (plain, ours))
    details = {"plain": plain, "ours": ours}
    ratio = b / a if a else None
    return Row(
        "idle CPU, 100 silent streams", share(a), share(b), ratio, "≤ 0.5 %", b <= 5e-3, details
    )
