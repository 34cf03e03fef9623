"""Watches: whether a condition holds, and when that is an event; pure, time is an argument.

Between the buffer, whose observations of a watched stream come in one by one, and the outbox,
which the `Watcher` hands each `Edge` to.
"""

from __future__ import annotations

import json
import operator
import struct
from dataclasses import dataclass as plain_dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, NoReturn

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from mcp_perception_buffer.decoding.text import label as clean_label
from mcp_perception_buffer.decoding.text import one_line
from mcp_perception_buffer.decoding.values import read_value
from mcp_perception_buffer.errors import PerceptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp_perception_buffer.model import JsonValue, Observation

MAX_WATCH_CHARS = 4000
MAX_REASON_CHARS = 300
_OPERATORS = ("equals", "not_equals", "gt", "gte", "lt", "lte", "contains")

# An operator that is not there is None; a null that was written out is refused.
Number = float | None
Seconds = Annotated[float, Field(ge=0, le=86_400)]
_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class InvalidWatchError(PerceptionError):
    """A watch definition cannot be used; the text says which part of it and why."""


@dataclass(frozen=True, config=_STRICT)
class Objects:
    """So many detections of a label (without one: of any) with at least this score."""

    label: str = Field("", min_length=1)
    min_count: int = Field(1, ge=1, le=1000)
    min_score: float = Field(0.0, ge=0, le=1)

    def count(self, seen: Observation) -> int:
        """Return how many detections match; one without a score never meets a `min_score`."""
        return sum(
            (not self.label or found.label == self._label)
            and (not self.min_score or (found.score or 0.0) >= self._score)
            for found in seen.detections
        )

    @cached_property
    def _label(self) -> str:
        return clean_label(self.label)  # as the decoder cleans those it is compared with

    @cached_property
    def _score(self) -> float:
        # Scores are float32: one published as 0.7 reads 0.699999988 and has to meet 0.7.
        return float(struct.unpack("f", struct.pack("f", self.min_score))[0])


@dataclass(frozen=True, config=_STRICT)
class Definition:
    """What a task's `watch` says; several comparisons must hold together."""

    output: str = Field("", min_length=1)
    equals: Any = None
    not_equals: Any = None
    gt: Number = None
    gte: Number = None
    lt: Number = None
    lte: Number = None
    contains: Any = None
    detections: Objects | None = None
    for_s: Seconds = 0.0
    clear_for_s: Seconds = 0.0
    cooldown_s: Seconds = 0.0
    initial: Literal["fire", "arm"] = "fire"

    @property
    def stream(self) -> str:
        """The watched topic's part after the skill."""
        return self.output or "detections"

    def truth(self, seen: Observation) -> bool | None:
        """Return whether the condition holds in one message, None if it cannot tell.

        Equality is total: a value of another type is not equal, and `true` is not `1`. An order
        needs two numbers, `contains` a text in a text or anything in a list; what has neither,
        and a null (how the decoder shows a NaN), leaves the condition unknown.
        """
        if self.detections is not None:
            return self.detections.count(seen) >= self.detections.min_count
        if seen.value is None:
            return None
        results = [holds(seen.value, operand) for holds, operand in self._comparisons]
        if False in results:
            return False
        return None if None in results else True

    def value(self, seen: Observation) -> JsonValue:
        """Return what an event reports: the output's value, or how many detections match."""
        return self.detections.count(seen) if self.detections is not None else seen.value

    @cached_property
    def _comparisons(self) -> list[tuple[Callable[[Any, Any], bool | None], Any]]:
        operands = {name: getattr(self, name) for name in _OPERATORS}
        for name in ("equals", "not_equals"):
            if isinstance(operands[name], str):
                # As the stream's own text is read, so that "true" in a watch is true there, too.
                operands[name] = read_value(operands[name])
        return [(_HOLDS[name], value) for name, value in operands.items() if value is not None]


def parse(text: str) -> Definition:
    """Read a task's `watch`, a JSON object.

    Raises:
        InvalidWatchError: not JSON, an unknown key, a value of the wrong type or range, or a
            combination that says nothing.
    """
    if len(text) > MAX_WATCH_CHARS:
        raise InvalidWatchError(f"longer than {MAX_WATCH_CHARS} characters")
    try:
        data = json.loads(text, parse_constant=_not_json)
        definition = _ADAPTER.validate_json(text)
    except ValidationError as error:
        raise InvalidWatchError(_readable(error)) from error
    except (ValueError, RecursionError) as error:
        raise InvalidWatchError(one_line(f"not JSON: {error}", MAX_REASON_CHARS)) from error
    if nulls := [name for name, value in data.items() if value is None]:
        raise InvalidWatchError(one_line(f"{nulls[0]}: must not be null", MAX_REASON_CHARS))
    compared = any(name in data for name in _OPERATORS)
    if definition.detections is not None and (definition.output or compared):
        raise InvalidWatchError("watches either an output or detections, not both")
    if definition.detections is None and not (definition.output and compared):
        raise InvalidWatchError(
            "needs an output with one of " + ", ".join(_OPERATORS) + "; or detections"
        )
    if definition.output in ("detections", "overlay"):
        raise InvalidWatchError(f"{definition.output} is no output that has a value")
    if definition.contains == "":
        raise InvalidWatchError("contains: an empty text is in every text")
    return definition


def canonical(text: str) -> str:
    """Return the same text for the same definition, however it is spaced and ordered."""
    try:
        return json.dumps(json.loads(text[: MAX_WATCH_CHARS + 1]), sort_keys=True)
    except (ValueError, RecursionError):
        return text[: MAX_WATCH_CHARS + 1]


class Memory(NamedTuple):
    """What of a watch outlives its stream and its process; the rest is learnt anew."""

    seq: int = 0  # of its last event
    armed: bool | None = None  # whether the next true is an event; None: no valid value yet
    cleared: bool = False  # a valid false was seen
    fired_ns: int | None = None  # when the last event was, monotonic


@plain_dataclass(frozen=True, slots=True)
class Edge:
    """A condition became true. `initial`: it had never been seen false."""

    seq: int
    initial: bool
    value: JsonValue


class Watch:
    """One watch's state. Fires when the condition turns true, once until it was validly false.

    A truth counts for `window_s` after its message; then, or when a message cannot tell, the
    condition is unknown. Unknown never fires and never re-arms, and a `for_s` or `clear_for_s`
    that was running begins anew: a hold has to be seen without a gap. A `cooldown_s` counts from
    one event to the next; an edge within it waits, and is an event at its end if it still holds.
    """

    def __init__(
        self, definition: Definition, *, window_s: float, memory: Memory | None = None
    ) -> None:
        self.definition = definition
        self.memory = memory or Memory()
        self._window_ns = int(window_s * 1e9)
        self._for_ns = int(definition.for_s * 1e9)
        self._clear_for_ns = int(definition.clear_for_s * 1e9)
        self._cooldown_ns = int(definition.cooldown_s * 1e9)
        self._truth: bool | None = None
        self._reason = "nothing received yet"
        self._since_ns: int | None = None
        self._fresh_until_ns = 0
        self._seen: Observation | None = None

    def observe(self, seen: Observation | None, at_ns: int) -> Edge | None:
        """Take the next message of the stream, received at `at_ns`, and say if it is an event.

        None is a message of a frozen stream, which repeats what was and says nothing about now.
        """
        # What came due before this message is judged by the values before it.
        edge = self.advance(at_ns)
        if seen is None:
            self._turn(None, at_ns, "frozen")
            return edge
        truth = self.definition.truth(seen)
        self._seen = seen
        self._fresh_until_ns = at_ns + self._window_ns
        if truth is None:
            self._turn(None, at_ns, "the value cannot be compared")
        else:
            self._turn(truth, at_ns)
            if self.memory.armed is None:
                armed = not truth or self.definition.initial == "fire"
                self.memory = self.memory._replace(armed=armed)
            if not truth and not self.memory.cleared:
                self.memory = self.memory._replace(cleared=True)
        # Two edges cannot meet here: between them lies a false that re-arms.
        return self._settle(at_ns) or edge

    def advance(self, now_ns: int) -> Edge | None:
        """Let time pass up to `now_ns`: holds and cooldowns end, values become stale."""
        if self._truth is None:
            return None
        edge = self._settle(min(now_ns, self._fresh_until_ns))
        if now_ns > self._fresh_until_ns:
            self._turn(None, self._fresh_until_ns, "stale")
        return edge

    @property
    def deadline_ns(self) -> int | None:
        """When `advance` changes something without a further message; None: it will not.

        Becoming stale is none of it: only the next message has to know, and it finds out.
        """
        due = self._due_ns()
        return due if due is not None and due <= self._fresh_until_ns else None

    def status(self, now_ns: int) -> tuple[bool | None, int | None, str | None]:
        """Return the truth at `now_ns`, since when (None: ever), and why it is unknown."""
        if self._truth is not None and now_ns > self._fresh_until_ns:
            return None, self._fresh_until_ns, "stale"
        return self._truth, self._since_ns, None if self._truth is not None else self._reason

    def _turn(self, truth: bool | None, at_ns: int, reason: str = "") -> None:
        if truth is not self._truth or self._since_ns is None:
            self._since_ns = at_ns
        self._truth, self._reason = truth, reason

    def _due_ns(self) -> int | None:
        """When the present truth, if it lasts, fires or re-arms."""
        if self._truth is None or self._since_ns is None or self._truth is not self.memory.armed:
            return None
        if not self._truth:
            return self._since_ns + self._clear_for_ns
        due = self._since_ns + self._for_ns
        if self.memory.fired_ns is not None:
            due = max(due, self.memory.fired_ns + self._cooldown_ns)
        return due

    def _settle(self, now_ns: int) -> Edge | None:
        due = self._due_ns()
        if due is None or now_ns < due:
            return None
        if not self._truth:
            self.memory = self.memory._replace(armed=True)
            return None
        assert self._seen is not None  # a truth comes from a message
        edge = Edge(
            seq=self.memory.seq + 1,
            initial=not self.memory.cleared,
            value=self.definition.value(self._seen),
        )
        self.memory = Memory(edge.seq, armed=False, cleared=self.memory.cleared, fired_ns=now_ns)
        return edge


def _equal(value: Any, operand: Any) -> bool:
    if isinstance(value, bool) or isinstance(operand, bool):
        return value is operand  # in Python true is 1
    if isinstance(value, list) and isinstance(operand, list):
        return len(value) == len(operand) and all(map(_equal, value, operand))
    if isinstance(value, dict) and isinstance(operand, dict):
        return value.keys() == operand.keys() and all(_equal(value[k], operand[k]) for k in value)
    return bool(value == operand)


def _contains(value: Any, operand: Any) -> bool | None:
    if isinstance(value, list):
        return any(_equal(item, operand) for item in value)
    if isinstance(value, str) and isinstance(operand, str):
        return operand in value
    return None


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool | None]:
    def holds(value: Any, operand: Any) -> bool | None:
        numeric = isinstance(value, (int, float)) and not isinstance(value, bool)
        return compare(value, operand) if numeric else None

    return holds


_HOLDS: dict[str, Callable[[Any, Any], bool | None]] = {
    "equals": _equal,
    "not_equals": lambda value, operand: not _equal(value, operand),
    "gt": _ordered(operator.gt),
    "gte": _ordered(operator.ge),
    "lt": _ordered(operator.lt),
    "lte": _ordered(operator.le),
    "contains": _contains,
}
_ADAPTER = TypeAdapter(Definition)


def _not_json(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _readable(error: ValidationError) -> str:
    parts = []
    for item in error.errors(include_url=False, include_context=False, include_input=False):
        known = item["type"] not in ("unexpected_keyword_argument", "extra_forbidden")
        where = ".".join(map(str, item["loc"]))
        what = item["msg"] if known else "unknown key"
        parts.append(f"{where}: {what}" if where else what)
    return one_line("; ".join(parts), MAX_REASON_CHARS)
