"""What a detection is: name, score, hypotheses, track, and the number of masks and keypoints.

A `find_…` function returns what reads that part from a message object, or None where the type has
no such part. What is no measurement is read as None.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from mcp_perception_buffer.decoding.fields import HYPOTHESIS_ID, PERCENT
from mcp_perception_buffer.decoding.fields import TRACK_IN_LABEL_ID as TRACKS
from mcp_perception_buffer.decoding.text import label
from mcp_perception_buffer.decoding.types import INTEGERS, NUMBERS, TEXT, Field, Read, getter
from mcp_perception_buffer.model import NO_LABEL, Hypothesis

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mcp_perception_buffer.decoding.names import Names

MAX_HYPOTHESES = 10  # kept of one detection, the leading one included
MAX_NAME_CHARS = 256  # of which a label's are kept once it is cleaned
ROUNDING = 1e-6  # by which a score of 1 may be more, as float32


def find_label(names: Names, type_name: str, below: str = "") -> Read | None:
    """Find the name, or else the class, of a detection or a hypothesis."""
    text = names.first(type_name, "label", TEXT, below)
    number = names.first(type_name, "class_id", INTEGERS, below)
    if type_name.partition("/")[0] in TRACKS:
        number = None
    if text is None and number is None:
        return None
    named = _named(names.reading.labels)
    if number is None:
        get_text = getter(text or "")
        return lambda message: named(get_text(message)[:MAX_NAME_CHARS], None)
    if text is None:
        get_number = getter(number)
        return lambda message: named("", get_number(message))
    get_both = getter(text, number)

    def read(message: Any) -> str:
        name, class_id = get_both(message)
        return named(name[:MAX_NAME_CHARS], class_id)

    return read


def _named(labels: Mapping[str, str]) -> Callable[[str, int | None], str]:
    @lru_cache(maxsize=2048)
    def named(text: str, number: int | None) -> str:
        name = label(text)
        if name and not _NUMBER.fullmatch(name):
            return name
        if not name and number is None:
            return NO_LABEL
        class_id = name or str(number)
        if class_id.isdecimal():
            class_id = str(int(class_id))  # as a map of labels has it
        return label(labels.get(class_id, "")) or f"class {class_id}"

    return named


# A name that says nothing: the id of a class.
_NUMBER = re.compile(r"[+-]?[\d.]+")


def find_score(names: Names, type_name: str, below: str = "") -> Read | None:
    """Find the score, as a number from 0 to 1."""
    path = names.first(type_name, "score", NUMBERS, below)
    if path is None:
        return None
    get = getter(path)
    if type_name.partition("/")[0] in PERCENT:
        return lambda message: x / 100 if 1 <= (x := get(message)) <= 99 else None
    return lambda message: min(x, 1.0) if 0 <= (x := get(message)) <= 1 + ROUNDING else None


def falling_score(score: float | None) -> float:
    """Return what sorts by falling score, unknown ones last."""
    return math.inf if score is None else -score


def find_hypotheses(names: Names, type_name: str) -> tuple[Read, str] | None:
    """Find a list of hypotheses; also returns where it is. Read: all of them, best first."""
    for found in names.find(type_name, "hypotheses"):
        if not found.message or not found.is_list:
            continue
        for below in ("", "hypothesis"):
            read_label = find_label(names, found.message, below)
            read_score = find_score(names, found.message, below)
            if read_label is None and not below:  # as vision_msgs had it at first
                read_label = _find_id(names, found.message)
            if read_label is not None and read_score is not None:
                return _hypotheses(getter(found.path), read_label, read_score), found.path
    return None


def _find_id(names: Names, type_name: str) -> Read | None:
    path = names.types.first(type_name, (HYPOTHESIS_ID,), among=TEXT)
    if path is None:
        return None
    get, named = getter(path), _named(names.reading.labels)
    return lambda message: named(get(message)[:MAX_NAME_CHARS], None)


def _hypotheses(get: Read, read_label: Read, read_score: Read) -> Read:
    def read(message: Any) -> tuple[tuple[Hypothesis, Any], ...]:
        listed = get(message)
        found = [(Hypothesis(read_label(h), read_score(h)), h) for h in listed[:MAX_HYPOTHESES]]
        if len(found) > 1:
            found.sort(key=lambda pair: falling_score(pair[0].score))
        return tuple(found)

    return read


def find_track(names: Names, type_name: str) -> Read | None:
    """Find the number or name of a track; a negative one and an empty one are none."""
    text = names.first(type_name, "track_id", TEXT)
    path = text or next(
        (
            f.path
            for f in names.find(type_name, "track_id")
            if f.base in INTEGERS and (f.path != "id" or "track_id" in names.reading.fields)
        ),
        None,
    )
    if path is None and type_name.partition("/")[0] in TRACKS:
        path = names.types.first(type_name, ("label_id",), among=INTEGERS)
    if path is None:
        return None
    get = getter(path)
    gate = names.first(type_name, "is_tracked", ("bool",))
    tracked = getter(gate) if gate else None

    def read(message: Any) -> str | None:
        if tracked is not None and not tracked(message):
            return None
        value = get(message)
        if isinstance(value, str):
            return (label(value) or None) if value and value != "-1" else None
        return str(value) if value >= 0 else None

    return read


def find_count(names: Names, type_name: str, row: str, gate_row: str) -> Read | None:
    """Find how many masks or keypoints there are; read as None where there are none."""
    gate = names.first(type_name, gate_row, ("bool",))
    for found in names.find(type_name, row):
        where: Field | None = found
        if found.message and not found.is_list:
            inner = (f for f in names.types.fields(found.message) if f.is_list)
            where = next((f._replace(path=f"{found.path}.{f.path}") for f in inner), None)
        if where is not None and where.is_list:
            count = _counter(names, where)
            return _count(getter(where.path), count, getter(gate) if gate else None)
    return getter(gate) if gate else None


def _count(get: Read, count: Callable[[Any], int], gate: Read | None) -> Read:
    def read(message: Any) -> int | None:
        if gate is not None and not gate(message):
            return None
        return count(get(message)) or None

    return read


def _counter(names: Names, found: Field) -> Callable[[Any], int]:
    """Return what counts: of a fixed array of points, those that their detector has filled."""
    if not (found.length and found.message):
        return len
    if names.joins_points and (numbers := names.types.numbers_in(found.message)):
        each = numbers.length or 1
        # As Python's numbers: NumPy's own would warn of a signalling NaN.
        return lambda array: sum(1 for point in array.reshape(-1, each).tolist() if any(point))
    return lambda points: sum(1 for point in points if any(map(_is_set, vars(point).values())))


def _is_set(value: Any) -> bool:
    if hasattr(value, "tolist"):
        return any(value.tolist())  # NumPy's own would warn of a signalling NaN
    return isinstance(value, (int, float)) and value != 0
