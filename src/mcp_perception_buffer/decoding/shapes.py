"""Finds out from a type's definition where its detections are, and what reads each of them.

Nothing here goes by the name of a type: a sibling type, or another version of one, is read as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rosbags.interfaces import Nodetype

from mcp_perception_buffer.decoding.boxes import find_box, find_flat_box
from mcp_perception_buffer.decoding.elements import (
    falling_score,
    find_count,
    find_hypotheses,
    find_label,
    find_score,
    find_track,
)
from mcp_perception_buffer.decoding.names import Names
from mcp_perception_buffer.decoding.space import Pose, find_pose, find_size
from mcp_perception_buffer.decoding.types import (
    FLOATS,
    NUMBERS,
    TEXT,
    Definitions,
    Field,
    Read,
    getter,
)
from mcp_perception_buffer.model import NO_LABEL, Detection, Hypothesis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rosbags.interfaces.typing import Fielddefs, FieldDesc

    from mcp_perception_buffer.model import Reading

MAX_SHOWN_FIELDS = 12


class Shape(NamedTuple):
    """How the detections of one type are read."""

    read: Callable[[Any], tuple[Detection, ...]]  # by falling score
    # Whether a detection without a score has one that is outside of its scale.
    scored: bool
    # The fields up to the list and its length, to know that before the rest; None: no list.
    head: Fielddefs | None


class Unfit(Exception):  # noqa: N818
    """A type has no detections that could be found; the text says what it has instead."""


def find_shape(types: Definitions, type_name: str, reading: Reading) -> Shape:
    """Return how detections are read from a type whose definitions are loaded.

    A type is one detection itself, or has a list of them, or a message with such a list.

    Raises:
        Unfit: none of these; the text names its fields and a setting that would map them.
    """
    names = Names(types, reading)
    if "list" not in reading.fields and (one := _find_detection(names, type_name, alone=True)):
        return Shape(_alone(one.read), one.scored, None)
    for listed, masks in _lists(names, type_name):
        if (one := _find_detection(names, listed.message, alone=False)) is not None:
            head = _head(types, type_name, listed.path) if not listed.length else None
            return Shape(_all(getter(listed.path), one.read, masks), one.scored, head)
    raise Unfit(_advice(types, type_name))


def _lists(names: Names, type_name: str) -> Iterator[tuple[Field, Read | None]]:
    """Yield the lists of messages in a type, then those one level deeper, and masks beside them."""
    if "list" in names.reading.fields:
        yield from ((f, None) for f in names.find(type_name, "list") if f.message and f.is_list)
        return
    fields = list(names.types.fields(type_name))
    for found in fields:
        if found.message and found.is_list:
            yield found, None
    masks = _find_masks(names, type_name)
    for outer in fields:
        if outer.message and not outer.is_list:
            for inner in names.types.fields(outer.message):
                if inner.message and inner.is_list:
                    yield inner._replace(path=f"{outer.path}.{inner.path}"), masks


def _find_masks(names: Names, type_name: str) -> Read | None:
    """Find a list of masks beside the list of detections, in the same order."""
    listed = next((f for f in names.find(type_name, "mask") if f.is_list and f.message), None)
    return getter(listed.path) if listed else None


def _alone(read: Callable[[Any], Detection]) -> Callable[[Any], tuple[Detection, ...]]:
    return lambda message: (read(message),)


def _all(
    get: Read, read_one: Callable[[Any], Detection], masks: Read | None
) -> Callable[[Any], tuple[Detection, ...]]:
    def read(message: Any) -> tuple[Detection, ...]:
        found = [read_one(element) for element in get(message)]
        if masks is not None:
            for index in range(min(len(found), len(masks(message)))):
                found[index] = found[index]._replace(has_mask=True)
        if len(found) > 1:
            found.sort(key=_falling)
        return tuple(found)

    return read


def _falling(detection: Detection) -> float:
    return falling_score(detection.score)


def _find_detection(names: Names, type_name: str, *, alone: bool) -> Parts | Guessed | None:
    """Find out how one detection is read; None if the type is none.

    A message that is `alone` may be a classification, which has hypotheses and no place.
    """
    read_label = find_label(names, type_name)
    hypotheses = find_hypotheses(names, type_name)
    if read_label is None and hypotheses is None:
        return None
    box, pose = find_box(names, type_name), find_pose(names, type_name)
    flat = find_flat_box(names, type_name) if pose else None
    if box is None and pose is None and not (alone and hypotheses):
        return None
    if alone and hypotheses is None and (box is None or read_label is None):
        return None
    parts = Parts(
        label=read_label or _no_label,
        score=find_score(names, type_name) or _nothing,
        box=box or flat or _nothing,
        pose=pose or _no_pose,
        track=find_track(names, type_name) or _nothing,
        mask=find_count(names, type_name, "mask", "has_mask") or _nothing,
        size=find_size(names, type_name) or _nothing,
        keypoints=find_count(names, type_name, "keypoints", "has_keypoints") or _nothing,
    )
    if hypotheses is None:
        return parts
    read_guesses, path = hypotheses
    listed = names.types.find(type_name, path)
    guess_pose = find_pose(names, listed.message) if listed else None
    return Guessed(parts, read_guesses, guess_pose or _no_pose, flat or _nothing)


class Parts(NamedTuple):
    """What reads each part of a detection; see `elements`."""

    label: Callable[[Any], str]
    score: Read
    box: Read
    pose: Callable[[Any], Pose]
    track: Read
    mask: Read
    size: Read
    keypoints: Read

    @property
    def scored(self) -> bool:
        """Whether it has a score, so that None is one outside of its scale."""
        return self.score is not _nothing

    def read(self, message: Any) -> Detection:
        """Return a detection from a message object."""
        point, turned, frame_id = self.pose(message)
        return Detection(
            self.label(message),
            self.score(message),
            self.box(message),
            point,
            self.track(message),
            bool(self.mask(message)),
            frame_id,
            self.size(message),
            turned,
            self.keypoints(message),
        )


class Guessed(NamedTuple):
    """The same where a list of hypotheses says what it is, and perhaps where."""

    parts: Parts
    guesses: Callable[[Any], Sequence[tuple[Hypothesis, Any]]]  # best first, with its message
    pose: Callable[[Any], Pose]  # of a hypothesis
    flat: Read
    scored: bool = True

    def read(self, message: Any) -> Detection:
        """Return a detection; the best hypothesis leads where it has no name of its own."""
        parts = self.parts
        label, score = parts.label(message), parts.score(message)
        guesses = self.guesses(message)
        point, turned, frame_id = parts.pose(message)
        size = parts.size(message)
        if self.flat(message) is not None:  # its box is in pixels, and so would be its point
            point = turned = size = None
        others: tuple[Hypothesis, ...] = ()
        if guesses:
            best, where = guesses[0]
            if point is None:
                point, turned, frame_id = self.pose(where)
            if label == NO_LABEL:
                label, score = best.label, best.score if score is None else score
                guesses = guesses[1:]
            others = tuple([other for other, _ in guesses])
        return Detection(
            label,
            score,
            parts.box(message),
            point,
            parts.track(message),
            bool(parts.mask(message)),
            frame_id,
            size,
            turned,
            parts.keypoints(message),
            others,
        )


def _nothing(message: Any) -> None:
    return None


def _no_label(message: Any) -> str:
    return NO_LABEL


def _no_pose(message: Any) -> Pose:
    return None, None, None


def _head(types: Definitions, type_name: str, path: str) -> Fielddefs:
    """Return the fields before a list, and its length in its place.

    Laid out one after another, fields of an inner message lie as they do inside of it.
    """
    before: list[tuple[str, FieldDesc]] = []
    for name in path.split("."):
        for field, desc in types.raw(type_name):
            if field == name:
                type_name = str(desc[1])
                break
            before.append((f"before_{len(before)}", desc))
    return [*before, ("count", (Nodetype.BASE, ("uint32", 0)))]


def _advice(types: Definitions, type_name: str) -> str:
    """Say what a type has, and what would map it."""
    has = [f.path for f in types.fields(type_name)]
    listed = next((f for f in types.fields(type_name) if f.message and f.is_list), None)
    element = listed.message if listed else type_name
    if listed:
        inner = [f"{listed.path}[].{f.path}" for f in types.fields(element)]
        has = [path for path in has if path != listed.path] + inner
    shown = ", ".join(has[:MAX_SHOWN_FIELDS]) + (", …" if len(has) > MAX_SHOWN_FIELDS else "")
    guess = {"list": listed.path} if listed else {}
    for row, among in (("label", TEXT), ("score", FLOATS)):
        single = (f.path for f in types.fields(element) if f.base in among and not f.is_list)
        guess[row] = next(single, "…")
    four = next((f.path for f in types.fields(element) if f.base in NUMBERS and f.length == 4), "")
    for index, row in enumerate(("left", "top", "right", "bottom")):
        guess[row] = f"{four}.{index}" if four else "…"
    fields = ", ".join(f"{row}: {path}" for row, path in guess.items())
    return f"no detections found in {type_name}: it has {shown}; map it with fields: {{{fields}}}"
