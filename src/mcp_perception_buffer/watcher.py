"""Runs the watches: tasks and observations in, events into the outbox.

Every message of a watched stream is judged as the buffer takes it, in order; that costs
microseconds. All that waits for a service, a disk or a network is done by tasks.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
import uuid
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Literal

import structlog

from mcp_perception_buffer.answers.wording import RenderLimits, tell, unreadable
from mcp_perception_buffer.decoding.text import one_line
from mcp_perception_buffer.decoding.text import topic as clean_topic
from mcp_perception_buffer.events.base import Event, Fate, Record
from mcp_perception_buffer.tasks.base import TaskSourceError
from mcp_perception_buffer.watch import InvalidWatchError, Memory, Watch, canonical, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mcp_perception_buffer.buffer import Buffer
    from mcp_perception_buffer.events.outbox import Outbox
    from mcp_perception_buffer.model import JsonValue, Observation, StreamInfo
    from mcp_perception_buffer.tasks.base import Task, TaskSource
    from mcp_perception_buffer.watch import Edge

log = structlog.get_logger(__name__)

MAX_WATCHES = 256
MAX_ID_CHARS = 256
MAX_CONDITION_CHARS = 1000
# A value that is longer as JSON is reported as the beginning of that text.
MAX_VALUE_CHARS = 4000


@dataclass(frozen=True, slots=True)
class WatchView:
    """One watch at one moment, for a brain that was away or a person who looks inside."""

    skill: str
    skill_id: str
    condition: str
    predicate: str  # the definition as it was given
    state: Literal["true", "false", "unknown", "invalid"]
    reason: str | None  # why it is unknown or invalid
    age_s: float | None  # how long it has been in this state; None: since it is watched
    last_seq: int | None  # of its last event, None before the first
    delivery: Fate | None  # what became of that event
    delivery_reason: str | None
    pending: int  # its events in the outbox
    lost: int  # its events that ended undelivered, ever


@dataclass(frozen=True, slots=True)
class WatchViews:
    """All watches at one moment."""

    watches: tuple[WatchView, ...]  # by skill and skill_id
    outbox_depth: int
    lost: int  # of all watches, since this process started
    problems: tuple[str, ...]  # why tasks or disk fail at present


@dataclass(slots=True)
class _Entry:
    task: Task
    definition: str
    output: tuple[str, str] = ("", "")  # the watched one: skill and output
    watch: Watch | None = None  # None: invalid
    invalid: str | None = None
    saved: Memory | None = None


class Watcher:
    """Keeps the watches equal to the tasks, and turns their edges into events."""

    def __init__(
        self,
        buffer: Buffer,
        tasks: TaskSource,
        outbox: Outbox,
        *,
        limits: RenderLimits | None = None,
        reconcile_interval_s: float = 2.0,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        wall_clock_s: Callable[[], float] = time.time,
    ) -> None:
        """Prepare; nothing is watched before `run`.

        Args:
            buffer: whose observations are watched.
            tasks: asked once every `reconcile_interval_s`.
            outbox: takes the events, and remembers the watches.
            limits: of the events' `detection_summary`.
            reconcile_interval_s: between two questions.
            clock_ns: the buffer's monotonic clock.
            wall_clock_s: Unix seconds, for `occurred_at`.
        """
        self._buffer = buffer
        self._tasks = tasks
        self._outbox = outbox
        self._limits = limits or RenderLimits()
        self._reconcile_interval_s = reconcile_interval_s
        self._clock_ns = clock_ns
        self._wall_clock_s = wall_clock_s
        self._entries: dict[str, _Entry] = {}
        self._heard: set[tuple[str, str]] = set()  # the outputs that are listened to
        self._left_ns: dict[tuple[str, str], int] = {}  # when an output's last watch ended
        self._deadline_ns: int | None = None
        self._earlier = asyncio.Event()
        self.problem: str | None = None

    async def run(self) -> None:
        """Watch until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._follow_tasks(), name="watch-tasks")
                tasks.create_task(self._keep_deadlines(), name="watch-deadlines")
        finally:
            for output in self._heard:
                self._buffer.listen(*output, None)

    def views(self) -> WatchViews:
        """Return all watches as they are now."""
        problems = (self.problem, self._outbox.problem)
        now_ns = self._clock_ns()
        return WatchViews(
            tuple(
                self._view(entry, now_ns)
                for entry in sorted(
                    self._entries.values(), key=lambda e: (e.task.skill, e.task.skill_id)
                )
            ),
            self._outbox.depth,
            self._outbox.lost,
            tuple(problem for problem in problems if problem is not None),
        )

    def _view(self, entry: _Entry, now_ns: int) -> WatchView:
        truth, since_ns, reason = None, None, entry.invalid
        if entry.watch is not None:
            truth, since_ns, reason = entry.watch.status(now_ns)
            stream = self._buffer.find(*entry.output) if truth is None else None
            if stream and stream.observation is None and stream.undecodable:
                reason = unreadable(stream)
        task, lane = entry.task, self._outbox.view(entry.task.skill_id)
        return WatchView(
            skill=one_line(task.skill, MAX_ID_CHARS),
            skill_id=one_line(task.skill_id, MAX_ID_CHARS),
            condition=one_line(task.condition, MAX_CONDITION_CHARS),
            predicate=one_line(task.watch),
            state="invalid" if entry.watch is None else _WORDS[truth],
            reason=reason,
            age_s=None if since_ns is None else round(max(0, now_ns - since_ns) / 1e9, 3),
            last_seq=(entry.watch.memory.seq or None) if entry.watch else None,
            delivery=lane.fate,
            delivery_reason=lane.reason,
            pending=lane.pending,
            lost=lane.lost,
        )

    # --- tasks --------------------------------------------------------------------------------

    async def _follow_tasks(self) -> None:
        while True:
            try:
                listed = await self._tasks.list_tasks()
            except TaskSourceError as error:
                # What was listed goes on: a vision node that restarts has not ended its tasks.
                if str(error) != self.problem:
                    log.warning("tasks_unavailable", reason=str(error))
                self.problem = str(error)
            else:
                self.problem = None
                self._reconcile(listed)
            await asyncio.sleep(self._reconcile_interval_s)

    def _reconcile(self, listed: Sequence[Task]) -> None:
        wanted: dict[str, Task] = {}
        for task in listed:
            if task.watched and wanted.setdefault(task.skill_id, task) is not task:
                shown = one_line(task.skill_id, MAX_ID_CHARS)
                self.problem = f"skill_id {shown} is listed twice, only its first watch counts"
        if len(wanted) > MAX_WATCHES:
            self.problem = f"{len(wanted)} watches, only {MAX_WATCHES} are watched"
            wanted = dict(list(wanted.items())[:MAX_WATCHES])
        for skill_id in self._entries.keys() - wanted.keys():
            del self._entries[skill_id]  # its memory stays in the outbox, should it come back
            log.info("watch_ended", skill_id=skill_id)
        added = []
        for skill_id, task in wanted.items():
            definition = _identity(task)
            entry = self._entries.get(skill_id)
            if entry is None or entry.definition != definition:
                added.append(self._begin(task, definition))
            else:
                self._outbox.recall(skill_id)  # or it would be the first to be forgotten
        heard = self._listen()
        # A stream that speaks on a change alone has perhaps spoken already. But where another
        # watch was before, what is there may still be the answer to that one's question.
        self._read_present(entry for entry in added if entry.output not in self._heard)
        self._heard = heard

    def _begin(self, task: Task, definition: str) -> _Entry:
        entry = self._entries[task.skill_id] = _Entry(task, definition)
        known = self._outbox.recall(task.skill_id)
        memory = known.memory if known else Memory()
        if known and known.definition != definition:
            memory = Memory(seq=memory.seq)
        try:
            if one_line(task.skill_id, MAX_ID_CHARS) != task.skill_id or not task.skill_id:
                raise InvalidWatchError(f"skill_id: not plain text of 1 to {MAX_ID_CHARS}")
            parsed = parse(task.watch)
        except InvalidWatchError as error:
            entry.invalid = str(error)
            log.warning("watch_invalid", skill_id=task.skill_id, reason=entry.invalid)
            return entry
        window_s = self._buffer.freshness_window_s
        entry.watch, entry.saved = Watch(parsed, window_s=window_s, memory=memory), memory
        entry.output = clean_topic(task.skill), clean_topic(parsed.stream)  # as a stream has them
        log.info("watch_began", skill_id=task.skill_id, skill=entry.output[0], seq=memory.seq)
        return entry

    def _listen(self) -> set[tuple[str, str]]:
        watched: dict[tuple[str, str], list[tuple[_Entry, Watch]]] = defaultdict(list)
        for entry in self._entries.values():
            if entry.watch is not None:
                watched[entry.output].append((entry, entry.watch))
        now_ns, window_ns = self._clock_ns(), self._buffer.freshness_window_s * 1e9
        for output in self._heard - watched.keys():
            self._buffer.listen(*output, None)
            self._left_ns[output] = now_ns
        self._left_ns = {o: ns for o, ns in self._left_ns.items() if now_ns - ns <= window_ns}
        for output, watches in watched.items():
            self._buffer.listen(*output, partial(self._take, watches))
        return set(watched)

    def _read_present(self, entries: Iterable[_Entry]) -> None:
        for entry in entries:
            view = self._buffer.find(*entry.output)
            if entry.watch and view and view.observation and view.state == "fresh":
                received_ns = self._clock_ns() - int((view.age_s or 0.0) * 1e9)
                if received_ns <= self._left_ns.get(entry.output, -1):
                    continue
                self._take([(entry, entry.watch)], view.observation, received_ns)

    # --- observations -------------------------------------------------------------------------

    def _take(
        self, watches: Sequence[tuple[_Entry, Watch]], seen: Observation | None, received_ns: int
    ) -> None:
        for entry, watch in watches:
            self._settle(entry, watch, watch.observe(seen, received_ns))

    def _settle(self, entry: _Entry, watch: Watch, edge: Edge | None) -> None:
        if watch.memory is not entry.saved:
            entry.saved = watch.memory
            event = self._event(entry, edge) if edge else None
            record = Record(entry.task.skill_id, entry.definition, watch.memory)
            self._outbox.save(record, event)
        due = watch.deadline_ns
        if due is not None and (self._deadline_ns is None or due < self._deadline_ns):
            self._deadline_ns = due
            self._earlier.set()

    async def _keep_deadlines(self) -> None:
        """Let holds and cooldowns end in time; sleeps as long as nothing can come due."""
        while True:
            wait_s = None
            if self._deadline_ns is not None:
                wait_s = max(0.0, (self._deadline_ns - self._clock_ns()) / 1e9)
            self._earlier.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self._earlier.wait()
            except TimeoutError:
                self._advance()

    def _advance(self) -> None:
        now_ns, self._deadline_ns = self._clock_ns(), None
        for entry in self._entries.values():
            if entry.watch is not None:
                self._settle(entry, entry.watch, entry.watch.advance(now_ns))

    def _event(self, entry: _Entry, edge: Edge) -> Event:
        task, (skill, _) = entry.task, entry.output
        detections, overlay = (self._fresh(skill, o) for o in ("detections", "overlay"))
        payload: dict[str, object] = {
            "skill": skill,
            "condition": one_line(task.condition, MAX_CONDITION_CHARS),
            "value": _bounded(edge.value),
            "detection_summary": tell(*detections, self._limits).line
            if detections and detections[0].detections
            else "",
            "overlay_ref": tell(*overlay, self._limits).data if overlay else None,
            "seq": edge.seq,
            "initial": edge.initial,
            "occurred_at": datetime.fromtimestamp(self._wall_clock_s(), UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
        }
        if lost := self._outbox.make_room(task.skill_id):
            payload["lost"] = lost
        body = {
            "type": "watch_event",
            "task_id": task.skill_id,
            "server": "perception",
            "payload": payload,
        }
        text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        # Random, for a process without a state directory counts anew from 1.
        event_id = f"evt_{uuid.uuid4().hex}"
        log.info("watch_fired", event_id=event_id, skill_id=task.skill_id, seq=edge.seq)
        return Event(event_id, task.skill_id, edge.seq, text.encode(), self._clock_ns())

    def _fresh(self, skill: str, output: str) -> tuple[Observation, StreamInfo] | None:
        """Return a fresh message of a skill's output with its stream, None if there is none."""
        view = self._buffer.find(skill, output)
        if view is None or view.state != "fresh" or view.observation is None:
            return None
        return view.observation, view.info


_WORDS: dict[bool | None, Literal["true", "false", "unknown"]] = {
    True: "true",
    False: "false",
    None: "unknown",
}


def _identity(task: Task) -> str:
    """Return what changes with all that gives a watch's answers another meaning."""
    about = json.dumps([task.skill, task.condition, canonical(task.watch)])
    return hashlib.sha256(about.encode()).hexdigest()


def _bounded(value: JsonValue) -> JsonValue:
    text = json.dumps(value, ensure_ascii=False)
    return value if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]}…"
