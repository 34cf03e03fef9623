"""What changed between two moments: labels, tracks, outputs and streams that came, went or turned.

The buffer is looked at once a second for as long as somebody holds a cursor. A label or a track
counts where it is in most of a stream's last three messages, so that one odd frame is no change.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Literal, NamedTuple

from mcp_perception_buffer.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mcp_perception_buffer.buffer import Buffer
    from mcp_perception_buffer.model import Observation, StreamView

LOOK_INTERVAL_S = 1.0
WAITED_FOR_INTERVAL_S = 0.2  # where somebody waits for a change
# Nobody asks any more: the buffer is left alone until somebody does.
SLEEP_AFTER_S = 600.0
MAX_CHANGES = 1000
CONFIRMING = 3  # messages of which most have to agree
MAX_LABELS = 200  # of one stream, and as many tracks
MAX_VALUE_CHARS = 120

What = Literal["stream", "label", "track", "output"]


class Change(NamedTuple):
    """One thing that is not as it was. `before` is None for what came, `after` for what left."""

    seq: int
    at_ns: int  # on the buffer's clock
    skill: str
    robot: str
    what: What
    name: str  # the label, track, output or topic
    before: str | None
    after: str | None


class Since(NamedTuple):
    """The changes after a cursor, oldest first."""

    changes: list[Change]
    cursor: str
    incomplete: str | None  # why more may have changed than is told


class _Known(NamedTuple):
    """What was last known of a stream."""

    skill: str
    robot: str
    output: str
    received: int
    state: str
    labels: dict[str, int]
    tracks: dict[str, str]  # with its label
    value: str | None


class Changes:
    """Follows the buffer and keeps the last changes. Not thread-safe."""

    def __init__(
        self,
        buffer: Buffer,
        *,
        min_score: float = 0.05,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Prepare; nothing is looked at before somebody asks.

        Args:
            buffer: what is followed.
            min_score: detections below it do not count.
            clock_ns: the buffer's clock.
        """
        self._buffer = buffer
        self._min_score = min_score
        self._clock_ns = clock_ns
        self._epoch = secrets.token_hex(4)  # of this process: a cursor of another one is known
        self._known: dict[str, _Known] | None = None
        self._changes: deque[Change] = deque(maxlen=MAX_CHANGES)
        self._seq = 0
        self._slept_seq = -1  # the last change before a time in which nobody looked
        self._asked_ns = 0
        self._awake = asyncio.Event()
        self._waiters: set[asyncio.Event] = set()
        self._hurry = asyncio.Event()

    @property
    def awake(self) -> bool:
        """Whether the buffer is looked at."""
        return self._awake.is_set()

    @property
    def waiting(self) -> int:
        """How many callers wait for a change."""
        return len(self._waiters)

    def cursor(self) -> str:
        """Return a mark of this moment, and follow the buffer from here on."""
        now_ns = self._clock_ns()
        if self._known is not None and not self._awake.is_set():
            self._slept_seq = self._seq
            self._seq += 1  # or a cursor of now would be one from before that time
        self._asked_ns = now_ns
        if not self._awake.is_set():
            self._awake.set()
            self.look()
        return f"{self._epoch}.{self._seq}"

    def since(self, cursor: str, *, skill: str | None = None, robot: str | None = None) -> Since:
        """Return what changed after a cursor.

        Raises:
            ArgumentError: it is no cursor at all.
        """
        epoch, _, number = cursor.partition(".")
        if not (number.isdecimal() and len(number) < 16 and len(epoch) == len(self._epoch)):
            raise ArgumentError("since is no cursor: take `cursor` of an earlier answer")
        self.cursor()
        self.look()
        after = int(number) if epoch == self._epoch else -1
        oldest = self._changes[0].seq if self._changes else self._seq + 1
        found = [
            change
            for change in self._changes
            if change.seq > after
            and (skill is None or change.skill == skill)
            and (robot is None or change.robot == robot)
        ]
        incomplete = None
        if epoch != self._epoch or after > self._seq:
            incomplete = "that cursor is from before a restart of this service"
        elif after <= self._slept_seq:
            incomplete = "nobody asked for long: what came and went meanwhile is not known"
        elif after < oldest - 1:
            incomplete = f"only the last {MAX_CHANGES} changes are kept"
        return Since(found, f"{self._epoch}.{self._seq}", incomplete)

    async def run(self) -> None:
        """Look at the buffer while somebody is interested, until cancelled."""
        while True:
            await self._awake.wait()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_INTERVAL_S):
                    await self._hurry.wait()
                    await asyncio.sleep(WAITED_FOR_INTERVAL_S)
            if self._clock_ns() - self._asked_ns > SLEEP_AFTER_S * 1e9 and not self._waiters:
                self._awake.clear()
            else:
                self.look()

    async def wait(
        self, cursor: str, timeout_s: float, *, skill: str | None = None, robot: str | None = None
    ) -> Since:
        """Return what changed after a cursor as soon as something has, or nothing in time.

        Raises:
            ArgumentError: it is no cursor at all.
        """
        moved = asyncio.Event()
        self._waiters.add(moved)
        self._hurry.set()
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    found = self.since(cursor, skill=skill, robot=robot)
                    if found.changes or found.incomplete:
                        return found
                    moved.clear()
                    await moved.wait()
        except TimeoutError:
            return self.since(cursor, skill=skill, robot=robot)
        finally:
            self._waiters.discard(moved)
            if not self._waiters:
                self._hurry.clear()

    def look(self) -> None:
        """Compare the buffer with what was last known of it."""
        known, now = self._known or {}, dict[str, _Known]()
        began = self._seq
        for view in self._buffer.snapshot().streams:
            topic, before = view.info.topic, known.get(view.info.topic)
            now[topic] = after = self._know(view, before)
            if self._known is not None and after is not before:
                self._note(topic, before, after)
        for topic, before in known.items():
            if topic not in now:
                self._add(before, "stream", topic, before.state, None)
        self._known = now
        if self._seq != began:
            for moved in self._waiters:
                moved.set()

    def _know(self, view: StreamView, before: _Known | None) -> _Known:
        unchanged = before is not None and before.received == view.received
        if unchanged and before is not None and before.state == view.state:
            return before
        info = view.info
        if unchanged and before is not None:
            return before._replace(state=view.state)
        labels: dict[str, int] = {}
        tracks: dict[str, str] = {}
        value = None
        if info.kind == "detections":
            # Most often nothing is new: then the newest message alone says so.
            newest = [view.observation] if view.observation is not None else []
            labels, tracks = self._labels(newest), self._tracks(newest)
            if before is None or (labels, tracks) != (before.labels, before.tracks):
                recent = self._buffer.recent(info.topic, CONFIRMING)
                # Two messages may disagree; then what was known before has the casting vote.
                casting = before if len(recent) == 2 else None
                labels, tracks = self._labels(recent, casting), self._tracks(recent, casting)
        elif info.kind == "semantic" and view.observation is not None:
            value = json.dumps(view.observation.value, ensure_ascii=False)
            value = value[:MAX_VALUE_CHARS] + ("…" if len(value) > MAX_VALUE_CHARS else "")
        return _Known(
            info.skill, info.robot, info.output, view.received, view.state, labels, tracks, value
        )

    def _labels(self, recent: list[Observation], casting: _Known | None = None) -> dict[str, int]:
        """Return how many of each label most messages agree on."""
        counts = [Counter(self._certain(seen)) for seen in recent]
        counts += [Counter(casting.labels)] if casting else []
        names = list(dict.fromkeys(label for one in counts for label in one))[:MAX_LABELS]
        middle = (len(counts) - 1) // 2
        agreed = {name: sorted(one[name] for one in counts)[middle] for name in names}
        return {name: number for name, number in agreed.items() if number}

    def _certain(self, seen: Observation) -> Iterator[str]:
        for found in seen.detections:
            if found.score is None or found.score >= self._min_score:
                yield found.label

    def _tracks(self, recent: list[Observation], casting: _Known | None = None) -> dict[str, str]:
        """Return the tracks that are in most messages, with their newest label."""
        labels: dict[str, str] = dict(casting.tracks) if casting else {}
        seen = Counter(labels.keys())
        for observation in recent:
            mine = {d.track_id: d.label for d in observation.detections if d.track_id is not None}
            seen.update(mine.keys())
            labels |= mine
        most = len(recent) // 2 + 1  # of two messages both, or one that was known before
        return {track: labels[track] for track, n in seen.most_common(MAX_LABELS) if n >= most}

    def _note(self, topic: str, before: _Known | None, after: _Known) -> None:
        if before is None:
            self._add(after, "stream", topic, None, after.state)
            return
        if before.state != after.state:
            self._add(after, "stream", topic, before.state, after.state)
        for name in sorted(before.labels.keys() | after.labels.keys()):
            was, now = before.labels.get(name, 0), after.labels.get(name, 0)
            if was != now:
                self._add(
                    after, "label", name, str(was) if was else None, str(now) if now else None
                )
        for track in sorted(before.tracks.keys() | after.tracks.keys()):
            old, new = before.tracks.get(track), after.tracks.get(track)
            if old != new:
                self._add(after, "track", track, old, new)
        if before.value != after.value:
            self._add(after, "output", after.output, before.value, after.value)

    def _add(
        self, of: _Known, what: What, name: str, before: str | None, after: str | None
    ) -> None:
        self._seq += 1
        at_ns = self._clock_ns()
        self._changes.append(
            Change(self._seq, at_ns, of.skill, of.robot, what, name, before, after)
        )
