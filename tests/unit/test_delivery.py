"""The delivery loop with a sink that a test controls."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from mcp_perception_buffer.events.base import Event, EventSink, Fate, Record
from mcp_perception_buffer.events.delivery import MAX_IN_FLIGHT, Delivery
from mcp_perception_buffer.events.outbox import Outbox
from mcp_perception_buffer.watch import Memory
from robot_mcp_kit import Outcome, OutcomeKind
from support import FakeClock, eventually

OK = Outcome(OutcomeKind.DELIVERED, "HTTP 204", 204)
DOWN = Outcome(OutcomeKind.RETRY, "HTTP 503", 503)
BUSY = Outcome(OutcomeKind.RETRY, "HTTP 429", 429, retry_after_s=300.0)
BAD = Outcome(OutcomeKind.DEAD, "HTTP 422", 422)
REFUSED = Outcome(OutcomeKind.HELD, "HTTP 401", 401)
ENOUGH = Outcome(OutcomeKind.DISABLED, "HTTP 410", 410)


class FakeSink(EventSink):
    """Answers by watch; `attempts` holds (skill_id, seq) of each attempt that began."""

    def __init__(self) -> None:
        self.attempts: list[tuple[str, int]] = []
        self.answers: dict[str, Callable[[], Outcome]] = defaultdict(lambda: lambda: OK)
        self.hold: dict[str, asyncio.Event] = {}
        self.open = False

    async def __aenter__(self) -> "FakeSink":
        self.open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self.open = False

    async def send(self, event: Event) -> Outcome:
        assert self.open
        self.attempts.append((event.skill_id, event.seq))
        if event.skill_id in self.hold:
            await self.hold[event.skill_id].wait()
        return self.answers[event.skill_id]()

    def seqs(self, skill_id: str) -> list[int]:
        return [seq for name, seq in self.attempts if name == skill_id]


class Running:
    def __init__(self, **options: Any) -> None:
        self.clock = FakeClock()
        self.outbox = Outbox(clock_ns=self.clock, expires_after_s=60)
        self.sink = FakeSink()
        self.delivery = Delivery(self.outbox, self.sink, **options)

    def put(self, skill_id: str, seq: int) -> None:
        event = Event(f"{skill_id}_{seq}", skill_id, seq, b"{}", self.clock())
        self.outbox.save(Record(skill_id, "d", Memory(seq)), event)

    def fate(self, skill_id: str) -> Fate | None:
        return self.outbox.view(skill_id).fate


@contextlib.asynccontextmanager
async def running(
    *, backoff_first_s: float = 0.001, backoff_max_s: float = 0.01
) -> AsyncIterator[Running]:
    made = Running(backoff_first_s=backoff_first_s, backoff_max_s=backoff_max_s)
    async with made.outbox:
        tasks = [asyncio.create_task(part.run()) for part in (made.outbox, made.delivery)]
        try:
            yield made
            assert not any(task.done() for task in tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        assert not made.sink.open


async def test_events_of_a_watch_arrive_in_order_and_once() -> None:
    async with running() as it:
        for seq in range(1, 101):
            it.put("a", seq)
            if seq % 10 == 0:
                await asyncio.sleep(0)
        await eventually(lambda: it.fate("a") is Fate.DELIVERED)
        assert it.sink.seqs("a") == list(range(1, 101))


async def test_a_failed_event_is_tried_again_before_the_next_one() -> None:
    async with running() as it:
        answers = iter([DOWN] * 5 + [OK] * 2)
        it.sink.answers["a"] = lambda: next(answers)
        it.put("a", 1)
        it.put("a", 2)
        await eventually(lambda: it.fate("a") is Fate.DELIVERED)
        assert it.sink.seqs("a") == [1] * 6 + [2]
        assert it.delivery.problem is None


@pytest.mark.parametrize("answer", [DOWN, REFUSED, BUSY])
async def test_a_blocked_watch_waits_for_its_time_and_blocks_no_other(answer: Outcome) -> None:
    # Of the three, only the wait that the brain asks for is longer than the longest of our own.
    longest_s = 0.001 if answer is BUSY else 3600.0
    async with running(backoff_first_s=longest_s, backoff_max_s=longest_s) as it:
        it.sink.answers["blocked"] = lambda: answer
        it.put("blocked", 1)
        for seq in range(1, 51):
            it.put("free", seq)
        await eventually(lambda: it.fate("free") is Fate.DELIVERED)
        assert it.sink.seqs("blocked") == [1]
        expected = Fate.HELD if answer is REFUSED else Fate.RETRYING
        assert it.outbox.view("blocked") == (expected, answer.reason, 1, 0)


async def test_hanging_attempts_are_bounded_and_a_slot_is_enough_for_the_rest() -> None:
    async with running() as it:
        for index in range(MAX_IN_FLIGHT - 1):
            it.sink.hold[f"hangs_{index}"] = asyncio.Event()
            it.put(f"hangs_{index}", 1)
        for index in range(20):
            it.put(f"free_{index}", 1)
        await eventually(lambda: all(it.fate(f"free_{i}") is Fate.DELIVERED for i in range(20)))
        it.sink.hold["hangs_too"] = asyncio.Event()
        it.put("hangs_too", 1)
        it.put("waits", 1)
        await eventually(lambda: len(it.sink.seqs("hangs_too")) == 1)
        assert it.sink.seqs("waits") == []
        it.sink.hold["hangs_too"].set()
        await eventually(lambda: it.fate("waits") is Fate.DELIVERED)


async def test_a_dead_letter_is_set_aside_and_the_next_event_goes_on() -> None:
    async with running() as it:
        answers = iter([BAD, OK])
        it.sink.answers["a"] = lambda: next(answers)
        it.put("a", 1)
        await eventually(lambda: it.fate("a") is Fate.DEAD)
        assert it.delivery.problem == "the brain refuses an event for good: HTTP 422"
        it.put("a", 2)
        await eventually(lambda: it.fate("a") is Fate.DELIVERED)
        assert it.sink.seqs("a") == [1, 2]
        assert it.outbox.view("a").lost == 1
        assert it.delivery.problem is None


async def test_refused_signatures_are_held_reported_and_tried_again() -> None:
    async with running() as it:
        it.sink.answers["a"] = lambda: REFUSED
        it.put("a", 1)
        await eventually(lambda: len(it.sink.attempts) >= 3)
        assert it.fate("a") is Fate.HELD
        assert it.delivery.problem == "the brain takes no events, held: HTTP 401"
        it.sink.answers["a"] = lambda: OK
        await eventually(lambda: it.fate("a") is Fate.DELIVERED)
        assert it.delivery.problem is None


async def test_a_brain_that_wants_no_more_events_gets_none() -> None:
    async with running() as it:
        it.sink.answers["a"] = lambda: ENOUGH
        it.put("a", 1)
        await eventually(lambda: it.fate("a") is Fate.DISABLED)
        it.put("b", 1)
        await eventually(lambda: it.fate("b") is Fate.DISABLED)
        assert it.sink.attempts == [("a", 1)]
        assert it.delivery.problem == "the brain takes no events, disabled: HTTP 410"


async def test_an_event_that_nobody_took_in_time_expires() -> None:
    async with running() as it:
        it.sink.answers["a"] = lambda: DOWN
        it.put("a", 1)
        await eventually(lambda: it.fate("a") is Fate.RETRYING)
        it.clock.advance(61)
        it.put("a", 2)
        await eventually(lambda: 2 in it.sink.seqs("a"))
        assert it.outbox.view("a") == (Fate.RETRYING, "HTTP 503", 1, 1)
        assert it.delivery.problem is not None
        it.clock.advance(61)
        await eventually(lambda: it.fate("a") is Fate.EXPIRED)
        assert it.delivery.problem is None  # nothing waits, so nothing is held up


async def test_an_attempt_under_way_at_the_end_leaves_the_event_in_the_outbox() -> None:
    async with running() as it:
        it.sink.hold["a"] = asyncio.Event()
        it.put("a", 1)
        await eventually(lambda: it.sink.attempts)
    assert it.outbox.head("a") is not None


async def test_a_sink_that_breaks_its_promise_ends_the_delivery() -> None:
    it = Running()

    def broken() -> Outcome:
        raise RuntimeError("broken sink")

    it.sink.answers["a"] = broken
    async with it.outbox:
        it.put("a", 1)
        await it.outbox.flush()
        with pytest.raises(ExceptionGroup) as caught:
            await asyncio.wait_for(it.delivery.run(), 5)
    assert caught.group_contains(RuntimeError, match="broken sink")
    assert not it.sink.open
