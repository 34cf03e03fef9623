"""Carries events from the outbox to a sink: in order per watch, until each has met its fate."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING

import structlog

from mcp_perception_buffer.events.base import Fate
from robot_mcp_kit import OutcomeKind

if TYPE_CHECKING:
    from mcp_perception_buffer.events.base import EventSink
    from mcp_perception_buffer.events.outbox import Outbox
    from robot_mcp_kit import Outcome

log = structlog.get_logger(__name__)

MAX_IN_FLIGHT = 8
_FATES = {
    OutcomeKind.RETRY: Fate.RETRYING,
    OutcomeKind.HELD: Fate.HELD,
    OutcomeKind.DISABLED: Fate.DISABLED,
}


class Delivery:
    """One task per watch that has events, so that a blocked watch does not block another."""

    def __init__(
        self,
        outbox: Outbox,
        sink: EventSink,
        *,
        backoff_first_s: float = 0.5,
        backoff_max_s: float = 30.0,
    ) -> None:
        """Prepare.

        Args:
            outbox: what is to be delivered.
            sink: entered while this runs.
            backoff_first_s: the wait after a first failure; it doubles with each further one.
            backoff_max_s: the longest wait, unless the brain asks for a longer one; also the wait
                after a refused signature.
        """
        self._outbox = outbox
        self._sink = sink
        self._backoff_first_s = backoff_first_s
        self._backoff_max_s = backoff_max_s
        self._slots = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._failures: dict[str, int] = {}  # in a row, of each watch that has a task
        self._disabled = False
        self.problem: str | None = None
        self.last_outcome: Outcome | None = None

    async def run(self) -> None:
        """Deliver until cancelled; what is under way then is delivered again by a successor."""
        async with self._sink, asyncio.TaskGroup() as tasks:
            while True:
                for skill_id in await self._outbox.ready():
                    if skill_id not in self._failures:
                        self._failures[skill_id] = 0
                        tasks.create_task(self._drain(skill_id), name=f"deliver:{skill_id}")

    async def _drain(self, skill_id: str) -> None:
        structlog.contextvars.bind_contextvars(watch=skill_id)
        while self._outbox.head(skill_id) is not None:
            async with self._slots:
                delay_s = await self._attempt(skill_id)
            await asyncio.sleep(delay_s)
        # No await since the look: whatever becomes ready from now on starts a new task.
        del self._failures[skill_id]

    async def _attempt(self, skill_id: str) -> float:
        """Try a watch's oldest event once, and return how long to wait before the next try."""
        event = self._outbox.head(skill_id)
        if event is None:
            return 0.0  # dropped while it waited for its turn
        remaining_s = self._outbox.remaining_s(event)
        if remaining_s <= 0:
            self._outbox.lose(event, Fate.EXPIRED)
            if not self._outbox.depth and not self._disabled:
                # Nobody will learn from another attempt whether the brain is back.
                self.problem, self.last_outcome = None, None
            return 0.0
        if self._disabled:
            self._outbox.note(event, Fate.DISABLED, "no more events are wanted")
            return remaining_s
        structlog.contextvars.bind_contextvars(event_id=event.id)
        started = time.perf_counter()
        with self._outbox.in_flight(event):
            outcome = self.last_outcome = await self._sink.send(event)
        took_ms = round((time.perf_counter() - started) * 1e3, 3)
        log.debug("event_sent", outcome=outcome.kind, duration_ms=took_ms)
        if outcome.kind is OutcomeKind.DELIVERED:
            self._outbox.delivered(event)
            self._failures[skill_id] = 0
            self.problem = self.problem if self._disabled else None
            return 0.0
        if outcome.kind is OutcomeKind.DEAD:
            self._outbox.lose(event, Fate.DEAD, outcome.reason)
            self._report(f"the brain refuses an event for good: {outcome.reason}")
            return 0.0
        self._disabled = self._disabled or outcome.kind is OutcomeKind.DISABLED
        self._failures[skill_id] += 1
        self._outbox.note(event, _FATES[outcome.kind], outcome.reason)
        self._report(f"the brain takes no events, {_FATES[outcome.kind]}: {outcome.reason}")
        return min(self._delay_s(outcome, self._failures[skill_id]), remaining_s)

    def _delay_s(self, outcome: Outcome, failures: int) -> float:
        longest_s = self._backoff_max_s
        if outcome.kind is OutcomeKind.RETRY:
            longest_s = min(longest_s, self._backoff_first_s * 2 ** min(failures - 1, 32))
        # Jitter, so that many watches do not come back at once.
        delay_s = random.uniform(longest_s / 2, longest_s)  # noqa: S311
        return max(delay_s, outcome.retry_after_s or 0.0)

    def _report(self, problem: str) -> None:
        if self.problem is None:
            log.warning("delivery_failed", reason=problem)
        self.problem = problem
