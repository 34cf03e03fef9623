"""Turns CDR bytes into observations; pure.

The buffer calls this when a message is first needed. Wire decoding is rosbags' work, from the
message definitions of the ROS installation; here is what they mean and what is kept.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rosbags.interfaces import Nodetype
from rosbags.serde import SerdeError
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from rosbags.typesys.base import TypesysError
from rosbags.typesys.store import Typestore

from mcp_perception_buffer.decoding.text import label, one_line
from mcp_perception_buffer.decoding.values import read_value
from mcp_perception_buffer.errors import DecodeError, UnknownTypeError
from mcp_perception_buffer.model import (
    IMAGES,
    Box,
    Detection,
    Kind,
    Observation,
    Point,
    Stamp,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rosbags.interfaces.typing import FieldDesc

DETECTIONS_TYPE = "ros2_vision_interfaces/msg/VisionDetectionArray"
IMAGE_TYPES = ("sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage")
BYTES = ("byte", "char", "int8", "uint8")  # a sequence of them is no value, but pixels or the like
HEADER_TYPE = "std_msgs/msg/Header"

MAX_DETECTIONS = 1000  # 5.5 ms of decoding; a message that claims more is refused unread
MAX_SEQUENCE = 64 * 1024 * 1024  # bytes of the largest mask that is believed


class Decoder:
    """Decodes messages of every type whose definition can be found."""

    def __init__(self, find_definition: Callable[[str], str]) -> None:
        """Decode from the definitions that `find_definition` gives.

        Args:
            find_definition: `"std_msgs/msg/String"` to the text of its `.msg` file; raises
                `UnknownTypeError` for a type that is not installed.
        """
        self._find_definition = find_definition
        self._store = Typestore(max_sequence_length=MAX_SEQUENCE)

    def why_unsupported(self, kind: Kind, type_name: str) -> str | None:
        """Say why a topic of this kind and type cannot be read, or None if it can."""
        if kind == "detections" and type_name != DETECTIONS_TYPE:
            return f"detections must be {DETECTIONS_TYPE}"
        if kind in IMAGES and type_name not in IMAGE_TYPES:
            return f"an image must be {' or '.join(IMAGE_TYPES)}"
        try:
            self._load(type_name)
        except UnknownTypeError as error:
            return str(error)
        return self._why_no_value(type_name) if kind == "semantic" else None

    def decode(self, kind: Kind, type_name: str, cdr: bytes) -> Observation:
        """Return what one message says.

        Of images only the header is read. Text is cleaned and capped, NaN and infinities become
        None, detections are sorted by falling score.

        Args:
            kind: what the topic carries.
            type_name: for example `"std_msgs/msg/String"`.
            cdr: the serialised message with its encapsulation header, as rclpy hands it out raw.

        Raises:
            DecodeError: the bytes are not a message of this type, or exceed the bounds above.
        """
        try:
            self._load(type_name)
            if kind in IMAGES:
                header, _ = self._read_prefix(HEADER_TYPE, cdr)
                return Observation(*_header(header))
            if kind == "detections":
                self._check_detection_count(cdr)
            # A view, or rosbags would copy the pixels of every mask.
            message: Any = self._store.deserialize_cdr(memoryview(cdr), type_name)
            stamp, frame_id = _header(getattr(message, "header", None))
            if kind == "detections":
                found = sorted(map(_detection, message.detections), key=_falling_score)
                return Observation(stamp, frame_id, detections=tuple(found))
            return Observation(stamp, frame_id, value=read_value(message.data))
        except (SerdeError, TypesysError, UnknownTypeError) as error:
            raise DecodeError(one_line(str(error), 200)) from error
        # Bytes come from anyone on the network: no kind of them may raise anything else.
        except Exception as error:
            raise DecodeError(one_line(f"{type(error).__name__}: {error}", 200)) from error

    def _load(self, type_name: str) -> None:
        if type_name in self._store.fielddefs:
            return
        types = get_types_from_msg(self._find_definition(type_name), type_name)
        for _, fields in types.values():
            for reference in _references(desc for _, desc in fields):
                if reference not in types:
                    self._load(reference)
        self._store.register(types)

    def _why_no_value(self, type_name: str) -> str | None:
        data = dict(self._store.fielddefs[type_name][1]).get("data")
        if data is None or list(_references([data])):
            return "a semantic output needs a field `data` of a basic type"
        kind, desc = data
        if kind != Nodetype.BASE and desc[0][1][0] in BYTES:
            return "its `data` are bytes, such as pixels, which are never sent"
        return None

    def _read_prefix(self, type_name: str, cdr: bytes) -> tuple[Any, int]:
        """Read a message's first field; returns it and where it ends in `cdr[4:]`."""
        if len(cdr) < 4 or cdr[0] != 0 or cdr[1] > 1:
            raise SerdeError("invalid or unsupported CDR encapsulation")
        msgdef = self._store.get_msgdef(type_name)
        read = msgdef.deserialize_cdr_le if cdr[1] else msgdef.deserialize_cdr_be
        return read(memoryview(cdr)[4:], 0, msgdef.cls, self._store)

    def _check_detection_count(self, cdr: bytes) -> None:
        _, end = self._read_prefix(HEADER_TYPE, cdr)
        start = 4 + (end + 3 & ~3)
        count = int.from_bytes(cdr[start : start + 4], "little" if cdr[1] else "big")
        if count > MAX_DETECTIONS:
            raise DecodeError(f"{count} detections in one message, more than {MAX_DETECTIONS}")


def packaged_definition(type_name: str) -> str:
    """Find a common ROS type in the definitions that rosbags carries, for use without ROS.

    Raises:
        UnknownTypeError: it is none of the common ones.
    """
    store = get_typestore(Stores.LATEST)
    if type_name not in store.fielddefs:
        raise UnknownTypeError(f"no definition of {type_name} is installed")
    return store.generate_msgdef(type_name)[0]


def _references(fields: Iterator[FieldDesc] | list[FieldDesc]) -> Iterator[str]:
    """Yield the message types that fields are made of."""
    for kind, desc in fields:
        if kind == Nodetype.NAME:
            yield desc  # type: ignore[misc]
        elif kind in (Nodetype.ARRAY, Nodetype.SEQUENCE):
            yield from _references([desc[0]])  # type: ignore[list-item]


def _header(header: Any) -> tuple[Stamp | None, str | None]:
    if header is None:
        return None, None
    return Stamp(header.stamp.sec, header.stamp.nanosec), label(header.frame_id)


def _detection(message: Any) -> Detection:
    box, point, score = message.box, message.point, message.score
    corners = Box(box.x, box.y, box.width, box.height)
    position = Point(point.x, point.y, point.z) if message.has_point else None
    return Detection(
        label=label(message.label),
        score=score if math.isfinite(score) else None,
        # All zero means no box; one number that is none makes the box useless.
        box=corners if any(corners) and all(map(math.isfinite, corners)) else None,
        point=position if position and all(map(math.isfinite, position)) else None,
        track_id=label(message.track_id) or None,
        has_mask=message.has_mask,
    )


def _falling_score(detection: Detection) -> float:
    return math.inf if detection.score is None else -detection.score
