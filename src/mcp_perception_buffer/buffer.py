"""Latest value and short history per stream, with its freshness.

The consumers put raw messages in, tools take snapshots out. A message is decoded when it is first
read, since most are overwritten before anybody asks; but one that follows two that were read is
decoded and put into words at once, so that who asks that often need not wait for it.
"""

from __future__ import annotations

import struct
import time
from collections import deque
from typing import TYPE_CHECKING

from mcp_perception_buffer.errors import DecodeError
from mcp_perception_buffer.model import (
    IMAGES,
    Link,
    Observation,
    Snapshot,
    Stamp,
    State,
    StreamInfo,
    StreamView,
    Unmapped,
    Unsupported,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    Listener = Callable[[Observation | None, int], None]

# A message above this is reduced to its model on arrival, so that masks and images are not kept.
EAGER_BYTES = 8192
# After an undecodable message a stream's next ones are decoded on arrival, this many: bad ones are
# then never stored, and cannot push the last good one out.
SUSPECT_MESSAGES = 64
# How many marks the measured rate looks back, and how far apart they are at least: messages are
# taken in groups, so that the time between two of them says nothing.
RATE_MARKS = 32
RATE_MARK_NS = 50_000_000
# The usual rate is a mean over about this many measured ones.
USUAL_SAMPLES = 100
# So many messages with one stamp, over the freshness window or longer, are a frozen stream.
FROZEN_MESSAGES = 5


class Buffer:
    """All streams' newest messages. Not thread-safe: put and read on the same thread."""

    def __init__(
        self,
        decode: Callable[[StreamInfo, bytes], Observation],
        *,
        history_depth: int = 10,
        freshness_window_s: float = 5.0,
        retention_s: float = 60.0,
        prepare: Callable[[Observation, StreamInfo], object] = lambda seen, info: None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Keep `history_depth` messages a stream, and a gone stream for `retention_s`.

        Args:
            decode: a stream and CDR bytes to an observation, or `DecodeError`.
            history_depth: messages kept per stream, the newest included.
            freshness_window_s: older values are stale.
            retention_s: how long a gone stream's values stay readable after the last one.
            prepare: called with a message that is decoded ahead of the answer it is for.
            clock_ns: a monotonic clock; ages never come from another.
        """
        self._decode = decode
        self._history_depth = history_depth
        self.freshness_window_s = freshness_window_s
        self._window_ns = int(freshness_window_s * 1e9)
        self._retention_ns = int(retention_s * 1e9)
        self._prepare = prepare
        self._clock_ns = clock_ns
        self._streams: dict[str, _Stream] = {}
        self._topics: dict[tuple[str, str], str] = {}  # by skill and output
        self._listeners: dict[tuple[str, str], Listener] = {}
        self.discovering = True
        self.unsupported: tuple[Unsupported, ...] = ()
        self.unmapped: tuple[Unmapped, ...] = ()

    def open(self, info: StreamInfo, *, publishers: int = 1) -> None:
        """Start a stream, or go on with the one of the same topic and type."""
        stream = self._streams.get(info.topic)
        if stream is None or stream.info != info:
            stream = _Stream(info, self._history_depth, self._clock_ns())
            self._streams[info.topic] = stream
            self._topics[info.key] = info.topic
        stream.publishers = publishers

    def set_publishers(self, topic: str, count: int) -> None:
        """Note how many publishers a topic has now; with none, its stream is gone."""
        self._streams[topic].publishers = count

    def set_link(self, topic: str, link: Link) -> None:
        """Note how a topic's subscription stands with its publishers."""
        self._streams[topic].link = link

    def put(self, topic: str, cdr: bytes, received_ns: int) -> None:
        """Take one message; of several the newest comes last.

        Args:
            topic: an open stream's topic.
            cdr: the serialised message.
            received_ns: when this process received it, on the buffer's clock.
        """
        stream = self._streams[topic]
        stream.arrived(cdr, received_ns)
        entry = _Entry(received_ns, cdr)
        listener = self._listeners.get(stream.key)
        eager = listener is not None or stream.decode_on_arrival(cdr)
        if eager and not self._reduce(stream, entry):
            return
        stream.entries.append(entry)
        seen = entry.observation
        # What a latched publisher repeats keeps its age, and may be too old to be told.
        if (
            listener is not None
            and seen is not None
            and self._clock_ns() - received_ns <= self._window_ns
        ):
            frozen = stream.repeats(seen.stamp, self._window_ns)
            listener(None if frozen else seen, received_ns)
        if stream.asked_often and seen is not None and stream.info.kind not in IMAGES:
            self._prepare(seen, stream.info)

    def listen(self, skill: str, output: str, listener: Listener | None) -> None:
        """Hand each decodable message of a skill's output to `listener`, or end that with None.

        Called as it is put, with the observation, or None while the stream is frozen and its
        messages say nothing about now, and `received_ns`; must return at once and not raise. One
        listener an output; its stream need not be open yet.
        """
        if listener is None:
            self._listeners.pop((skill, output), None)
        else:
            self._listeners[skill, output] = listener

    def view(self, topic: str) -> StreamView | None:
        """Return one stream as it is now, None if it is not open; no other one is decoded."""
        stream = self._streams.get(topic)
        return self._view(stream, self._clock_ns()) if stream else None

    def find(self, skill: str, output: str) -> StreamView | None:
        """Return the stream of a skill's output as `view` does."""
        topic = self.topic_of(skill, output)
        return self.view(topic) if topic is not None else None

    def recent(self, topic: str, count: int) -> list[Observation]:
        """Return a stream's last decodable messages, oldest first, at most `count` of them."""
        stream = self._streams.get(topic)
        if stream is None:
            return []
        found: list[Observation] = []
        for entry in list(reversed(stream.entries))[:count]:
            if self._reduce(stream, entry) and entry.observation is not None:
                found.append(entry.observation)
            else:
                stream.entries.remove(entry)
        if not found and stream.last_good and stream.last_good.observation:
            found.append(stream.last_good.observation)
        return found[::-1]

    def topic_of(self, skill: str, output: str) -> str | None:
        """Return the topic from which a skill's output comes, None if there is none yet."""
        return self._topics.get((skill, output))

    def count_dropped(self, topic: str) -> None:
        """Count a message that had to be dropped before it reached the buffer."""
        self._streams[topic].dropped += 1

    def count_lost(self, topic: str, count: int) -> None:
        """Count messages that were published but never reached this process."""
        self._streams[topic].lost += count

    def expire(self) -> None:
        """Forget streams that are gone and past their retention, or never said anything.

        The camera stays: that it is missing is an answer, too.
        """
        now = self._clock_ns()
        for topic, stream in list(self._streams.items()):
            if stream.publishers or stream.info.kind == "camera":
                continue
            if not stream.received or now - stream.last_ns > self._retention_ns:
                del self._streams[topic]
                if self._topics.get(stream.key) == topic:
                    del self._topics[stream.key]

    def snapshot(self) -> Snapshot:
        """Return all streams as they are now."""
        self.expire()
        now = self._clock_ns()
        views = tuple(self._view(self._streams[topic], now) for topic in sorted(self._streams))
        return Snapshot(
            self.freshness_window_s, self.discovering, views, self.unsupported, self.unmapped
        )

    def _view(self, stream: _Stream, now: int) -> StreamView:
        entry = self._newest(stream)
        stream.asked = True
        # A message may be stamped after `now` was read; an age is never negative.
        age_ns = max(0, now - entry.received_ns) if entry else None
        fresh = age_ns is not None and age_ns <= self._window_ns
        stamp = entry.observation.stamp if entry and entry.observation else None
        frozen = fresh and stream.repeats(stamp, self._window_ns)
        state: State
        if stream.publishers == 0:
            state = "gone"
        elif age_ns is None:
            state = "unreadable" if stream.undecodable else "never"
        else:
            state = "fresh" if fresh and not frozen else "stale"
        # By position, in the order of its fields: by name it takes twice as long.
        return StreamView(
            stream.info,
            state,
            stream.publishers,
            entry.observation if entry else None,
            age_ns / 1e9 if age_ns is not None else None,
            stream.rate_hz() if fresh else 0.0,
            stream.received,
            stream.dropped,
            stream.undecodable,
            stream.last_error,
            frozen and stream.publishers > 0,
            max(0, now - stream.last_ns) / 1e9,
            stream.usual_hz,
            stream.lost,
            stream.link,
        )

    def _newest(self, stream: _Stream) -> _Entry | None:
        """Return the newest decodable entry; undecodable ones before it are counted and go."""
        while stream.entries:
            if self._reduce(stream, stream.entries[-1]):
                return stream.entries[-1]
            stream.entries.pop()
        return stream.last_good

    def _reduce(self, stream: _Stream, entry: _Entry) -> bool:
        """Decode an entry unless it is; its bytes go either way."""
        if entry.observation is None:
            cdr, entry.cdr = entry.cdr, b""
            try:
                entry.observation = self._decode(stream.info, cdr)
            except DecodeError as error:
                stream.undecodable += 1
                stream.last_error = str(error)
                stream.suspect_for = SUSPECT_MESSAGES
                return False
            if stream.last_good is None or entry.received_ns >= stream.last_good.received_ns:
                stream.last_good = entry
            stream.suspect_for = max(0, stream.suspect_for - 1)
        return True


class _Entry:
    """A message: its bytes until it is decoded, then its observation."""

    __slots__ = ("cdr", "observation", "received_ns")

    def __init__(self, received_ns: int, cdr: bytes) -> None:
        self.received_ns = received_ns
        self.cdr = cdr
        self.observation: Observation | None = None


class _Stream:
    def __init__(self, info: StreamInfo, history_depth: int, opened_ns: int) -> None:
        self.info = info
        self.key = info.key
        self.last_ns = opened_ns  # of the last message of any kind, or of the beginning
        self.entries: deque[_Entry] = deque(maxlen=history_depth)
        self.marks: deque[tuple[int, int]] = deque(maxlen=RATE_MARKS)  # time, messages until then
        self.publishers = 1
        self.received = 0
        self.dropped = 0
        self.undecodable = 0
        self.last_error: str | None = None
        self.last_good: _Entry | None = None
        self.suspect_for = 0
        self.asked = False  # for the last message
        self.asked_often = False  # for both messages before the last one
        self._asked_before = False  # for the one before the last
        self.lost = 0
        self.link: Link | None = None
        self.usual_hz: float | None = None
        self._next_mark_ns = opened_ns
        self._measured = 0
        self._head = b""
        self._head_since_ns = 0
        self._head_count = 0

    def arrived(self, cdr: bytes, received_ns: int) -> None:
        self.received += 1
        self.last_ns = received_ns
        self.asked_often = self.asked and self._asked_before
        self._asked_before, self.asked = self.asked, False
        marks = self.marks
        if received_ns >= self._next_mark_ns:
            marks.append((received_ns, self.received))
            self._next_mark_ns = received_ns + RATE_MARK_NS
        elif len(marks) == 1:  # what was waiting for us says nothing about the rate
            marks[0] = received_ns, self.received
        if self.received % RATE_MARKS == 0 and (rate_hz := self.rate_hz()):
            self._measured = min(self._measured + 1, USUAL_SAMPLES)
            usual = self.usual_hz or 0.0
            self.usual_hz = usual + (rate_hz - usual) / self._measured
        head = cdr[4:12]  # the stamp, where a message begins with its header
        if head != self._head:
            self._head, self._head_since_ns, self._head_count = head, received_ns, 0
        self._head_count += 1

    def repeats(self, stamp: Stamp | None, window_ns: int) -> bool:
        """Say whether messages kept arriving over the window while their stamp stood still.

        A stamp of zero was never set and says nothing.
        """
        return (
            self._head_count >= FROZEN_MESSAGES
            and self.last_ns - self._head_since_ns >= window_ns
            and stamp is not None
            and any(stamp)
            and self._head in (struct.pack("<iI", *stamp), struct.pack(">iI", *stamp))
        )

    def decode_on_arrival(self, cdr: bytes) -> bool:
        return (
            self.asked_often
            or len(cdr) > EAGER_BYTES
            or self.suspect_for > 0
            or self.last_good is None
            or self.info.kind in IMAGES
        )

    def rate_hz(self) -> float:
        if len(self.marks) < 2:
            return 0.0
        (began_ns, before), (ended_ns, after) = self.marks[0], self.marks[-1]
        lasted_ns = ended_ns - began_ns
        return (after - before) * 1e9 / lasted_ns if lasted_ns >= RATE_MARK_NS else 0.0
