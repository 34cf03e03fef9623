"""The events that are not yet delivered, in order per watch, and what is kept of each watch.

`Watcher` saves into it without waiting, `run` commits, and only then `Delivery` may send. The
truth is in memory; the journal follows it, so that a disk that fails costs durability alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Self

import structlog

from mcp_perception_buffer.events.base import Event, Fate, Record
from mcp_perception_buffer.events.journal import EventRow, Journal, JournalError, WatchRow
from mcp_perception_buffer.watch import Memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

log = structlog.get_logger(__name__)

FILE_NAME = "events.sqlite3"
# Watches that are remembered: the listed ones, and those that may come back.
MAX_LANES = 1024
# A disk that failed is tried again after this, and with every change.
RETRY_DISK_S = 10.0
LOSSES_PER_LOG = 100


class LaneView(NamedTuple):
    """What became of one watch's events. `lost` counts all that ended undelivered, ever."""

    fate: Fate | None = None
    reason: str | None = None
    pending: int = 0
    lost: int = 0


@dataclass(slots=True)
class _Lane:
    record: Record
    events: deque[Event] = field(default_factory=deque)
    lost: int = 0
    fate: Fate | None = None  # of the last event that left
    trouble: tuple[Fate, str] | None = None  # why the first event is still here


class Outbox:
    """Bounded. Use within `async with`, while `run` runs; all calls on the loop's thread.

    When it is full, the oldest event goes that a newer one of its watch supersedes, or the oldest
    of all if there is none. What ends undelivered is counted per watch; the next event of that
    watch carries the count.
    """

    def __init__(
        self,
        state_dir: Path | None = None,
        *,
        size: int = 1000,
        expires_after_s: float = 3600.0,
        push: bool = True,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        wall_clock_s: Callable[[], float] = time.time,
    ) -> None:
        """Prepare; the disk is first touched when it is entered.

        Args:
            state_dir: where the journal is; None keeps all in memory only.
            size: how many events may wait; more than a `Delivery` has in flight.
            expires_after_s: how long after its edge an event is worth delivering.
            push: False keeps the watches' states, but no event.
            clock_ns: the buffer's monotonic clock.
            wall_clock_s: Unix seconds, for what must survive a restart.
        """
        self._path = state_dir / FILE_NAME if state_dir else None
        self._size = size
        self._expires_after_s = expires_after_s
        self._push = push
        self._clock_ns = clock_ns
        self._wall_clock_s = wall_clock_s
        self._journal: Journal | None = None
        self._lanes: dict[str, _Lane] = {}
        self._in_flight: set[str] = set()
        # What the journal lacks: events by id, ids of events that left, skill_ids of watches.
        self._new: dict[str, Event] = {}
        self._gone: set[str] = set()
        self._dirty: set[str] = set()
        self._uncommitted: set[str] = set()  # ids of events that must not be sent yet
        self._changed = asyncio.Event()
        self._writing = asyncio.Lock()
        self._ready: dict[str, None] = {}  # an ordered set
        self._some_ready = asyncio.Event()
        self.lost = 0
        self.problem: str | None = None

    async def __aenter__(self) -> Self:
        """Read what an earlier process left; a disk that cannot be used is only reported."""
        await self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Commit what is left and close the file."""
        try:
            await self.flush()
        finally:
            if self._journal is not None:
                await self._journal.close()

    async def run(self) -> None:
        """Commit what changes, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            if self._journal is None and self._path is not None:
                tasks.create_task(self._open_later())  # events go on meanwhile
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RETRY_DISK_S if self.problem else None):
                        await self._changed.wait()
                self._changed.clear()
                await self.flush()

    # --- for the watcher --------------------------------------------------------------------

    def recall(self, skill_id: str) -> Record | None:
        """Return what was last saved of a watch."""
        lane = self._lanes.pop(skill_id, None)
        if lane is None:
            return None
        self._lanes[skill_id] = lane  # now the last to be forgotten
        return lane.record

    def make_room(self, skill_id: str) -> int:
        """Drop what must go for one more event of this watch; return how many it has lost."""
        while self.depth >= self._size and (victim := self._victim(skill_id)) is not None:
            self.lose(victim, Fate.DROPPED)
        return self.view(skill_id).lost

    def save(self, record: Record, event: Event | None = None) -> None:
        """Keep a watch's state and, in the same transaction, the event that led to it."""
        lane = self._lanes.get(record.skill_id)
        if lane is None:
            self._forget_one()
            lane = self._lanes[record.skill_id] = _Lane(record)
        lane.record = record
        if event is not None and self._push:
            lane.events.append(event)
            self._new[event.id] = event
            self._uncommitted.add(event.id)
        elif event is not None:
            lane.fate = Fate.OFF
        self._touch(record.skill_id)

    def view(self, skill_id: str) -> LaneView:
        """Return what became of a watch's events; the fate is that of the last one."""
        lane = self._lanes.get(skill_id)
        if lane is None:
            return LaneView()
        fate, reason = lane.trouble or (Fate.PENDING, None) if lane.events else (lane.fate, None)
        return LaneView(fate, reason, len(lane.events), lane.lost)

    @property
    def depth(self) -> int:
        """How many events wait."""
        return sum(len(lane.events) for lane in self._lanes.values())

    # --- for the delivery -------------------------------------------------------------------

    async def ready(self) -> list[str]:
        """Wait until watches have an event that may be sent; return their skill_ids, each once."""
        await self._some_ready.wait()
        self._some_ready.clear()
        ready, self._ready = list(self._ready), {}
        return ready

    def head(self, skill_id: str) -> Event | None:
        """Return a watch's oldest event, unless it is still to be committed."""
        lane = self._lanes.get(skill_id)
        if lane is None or not lane.events or lane.events[0].id in self._uncommitted:
            return None
        return lane.events[0]

    @contextlib.contextmanager
    def in_flight(self, event: Event) -> Iterator[None]:
        """Keep an event from being dropped while it is being sent."""
        self._in_flight.add(event.id)
        try:
            yield
        finally:
            self._in_flight.discard(event.id)

    def remaining_s(self, event: Event) -> float:
        """Return how long an event is still worth delivering; negative once it expired."""
        return self._expires_after_s - (self._clock_ns() - event.born_ns) / 1e9

    def note(self, event: Event, fate: Fate, reason: str) -> None:
        """Note why an event is still here."""
        self._lanes[event.skill_id].trouble = (fate, reason)

    def delivered(self, event: Event) -> None:
        """Let go of an event that arrived."""
        self._remove(event, Fate.DELIVERED)
        age_ms = round((self._clock_ns() - event.born_ns) / 1e6, 1)
        log.info("event_delivered", **_about(event), duration_ms=age_ms)

    def lose(self, event: Event, fate: Fate, reason: str | None = None) -> None:
        """Let go of an event that will not arrive, and count it."""
        self._remove(event, fate)
        self._lanes[event.skill_id].lost += 1
        self.lost += 1
        # Each refusal is worth a line of its own; a full outbox would fill the log, too.
        if fate is not Fate.DROPPED or self.lost % LOSSES_PER_LOG == 1:
            log.warning("event_lost", **_about(event), fate=fate, reason=reason, lost=self.lost)

    # --- inside -----------------------------------------------------------------------------

    def _remove(self, event: Event, fate: Fate) -> None:
        lane = self._lanes[event.skill_id]
        lane.events.remove(event)
        lane.fate, lane.trouble = fate, None
        self._uncommitted.discard(event.id)
        if self._new.pop(event.id, None) is None:
            self._gone.add(event.id)
        self._touch(event.skill_id)

    def _touch(self, skill_id: str) -> None:
        self._dirty.add(skill_id)
        self._changed.set()

    def _victim(self, skill_id: str) -> Event | None:
        """Return the event that one more of `skill_id` pushes out."""
        oldest: list[tuple[bool, int, Event]] = []
        for name, lane in self._lanes.items():
            for index, event in enumerate(islice(lane.events, 2)):
                if event.id not in self._in_flight:
                    newest = index == len(lane.events) - 1 and name != skill_id
                    oldest.append((newest, event.born_ns, event))
                    break
        return min(oldest, key=lambda entry: entry[:2])[2] if oldest else None

    def _forget_one(self) -> None:
        idle = (name for name, lane in self._lanes.items() if not lane.events)
        if len(self._lanes) >= MAX_LANES and (name := next(idle, None)) is not None:
            del self._lanes[name]
            self._touch(name)

    async def flush(self) -> None:
        """Commit everything saved so far. A disk that fails is reported, and events go on."""
        async with self._writing:
            events, self._new = self._new, {}
            gone, self._gone = self._gone, set()
            dirty, self._dirty = self._dirty, set()
            try:
                if self._journal is not None and (events or gone or dirty):
                    known = [lane for name in dirty if (lane := self._lanes.get(name))]
                    await self._journal.write(
                        watches=[self._watch_row(lane) for lane in known],
                        forgotten=dirty - self._lanes.keys(),
                        events=[self._event_row(event) for event in events.values()],
                        gone=gone,
                    )
                    self.problem = None
            except BaseException as error:
                # To be written once more, but for what ended meanwhile.
                ended = events.keys() & self._gone
                self._new = {k: v for k, v in events.items() if k not in ended} | self._new
                self._gone |= gone
                self._dirty |= dirty
                if not isinstance(error, JournalError):
                    raise  # cancelled: it may reach the disk all the same
                self._gone -= ended
                self._report(f"events are not on the disk: {error}")
            self._uncommitted -= events.keys()
            self._announce(event.skill_id for event in events.values())

    def _announce(self, skill_ids: Iterable[str]) -> None:
        self._ready |= dict.fromkeys(skill_ids)
        if self._ready:
            self._some_ready.set()

    def _report(self, problem: str) -> None:
        if problem != self.problem:
            log.error("journal_failed", reason=problem)
        self.problem = problem

    async def _open_later(self) -> None:
        while self._journal is None:
            await asyncio.sleep(RETRY_DISK_S)
            await self._open()

    async def _open(self) -> None:
        if self._path is None:
            return
        try:
            self._journal, watches, events = await Journal.open(self._path)
        except JournalError as error:
            self._report(f"events are kept in memory only: {error}")
            return
        self.problem = None
        here, self._lanes = self._lanes, {}
        self._new = {event.id: event for lane in here.values() for event in lane.events}
        self._load(watches, events)
        for skill_id, lane in here.items():  # it began without the disk, and knows better
            stored = self._lanes.pop(skill_id, None)
            if stored is not None:
                lane.lost += stored.lost
                lane.events.extendleft(reversed(stored.events))
            self._lanes[skill_id] = lane
            self._touch(skill_id)

    def _load(self, watches: list[WatchRow], events: list[EventRow]) -> None:
        for row in watches:
            fired_ns = None if row.fired_s is None else self._monotonic_ns(row.fired_s)
            armed = None if row.armed is None else bool(row.armed)
            memory = Memory(row.seq, armed, bool(row.cleared), fired_ns)
            record = Record(row.skill_id, row.definition, memory)
            fate = Fate(row.fate) if row.fate in list(Fate) else None
            self._lanes[row.skill_id] = _Lane(record, lost=row.lost, fate=fate)
        for entry in events:
            born_ns = self._monotonic_ns(entry.born_s)
            event = Event(entry.id, entry.skill_id, entry.seq, entry.body, born_ns)
            self._lanes[event.skill_id].events.append(event)
        self._announce(entry.skill_id for entry in events)

    def _watch_row(self, lane: _Lane) -> WatchRow:
        record, (seq, armed, cleared, fired_ns) = lane.record, lane.record.memory
        fired_s = None if fired_ns is None else self._unix_s(fired_ns)
        about = (record.skill_id, record.definition)
        return WatchRow(*about, seq, armed, cleared, fired_s, lane.lost, lane.fate)

    def _event_row(self, event: Event) -> EventRow:
        return EventRow(
            event.id, event.skill_id, event.seq, event.body, self._unix_s(event.born_ns)
        )

    def _unix_s(self, monotonic_ns: int) -> float:
        return self._wall_clock_s() - (self._clock_ns() - monotonic_ns) / 1e9

    def _monotonic_ns(self, unix_s: float) -> int:
        # A wall clock that was set back meanwhile must not put anything into the future.
        return self._clock_ns() - int(max(0.0, self._wall_clock_s() - unix_s) * 1e9)


def _about(event: Event) -> dict[str, str | int]:
    return {"event_id": event.id, "skill_id": event.skill_id, "seq": event.seq}
