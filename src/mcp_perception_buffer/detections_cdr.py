"""A short cut for the one message that comes most: detections, straight from CDR to the model.

`decode` takes it where the installed definition is the one below, and reads everything that is
unusual or wrong by rosbags instead. Of a mask nothing is read but its size, to step over it.
"""

from __future__ import annotations

import math
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Any

from rosbags.interfaces import Nodetype

from mcp_perception_buffer.model import Box, Detection, Observation, Point, Stamp
from mcp_perception_buffer.text import label

if TYPE_CHECKING:
    from collections.abc import Mapping

# Header (stamp, frame_id), then the detections: label, score, box, has_mask, mask (stamp,
# frame_id, height, width, encoding, is_bigendian, step, data), has_point, point, track_id.
LAYOUT = (
    "int32 uint32 string [string float32 float32 float32 float32 float32 bool int32 uint32 string"
    " uint32 uint32 string uint8 uint32 [uint8] bool float64 float64 float64 string]"
)
MAX_NAME_BYTES = 256

_head = Struct("<iII").unpack_from
_size = Struct("<I").unpack_from
_score_box = Struct("<5fB").unpack_from
_point = Struct("<3d").unpack_from
# Behind `has_mask`, an image without frame_id and encoding: their sizes and ends, the data's size.
_bare_image = Struct("<11xIB3x8xIB3x4xI").unpack_from
_BARE = [1, 0, 1, 0]
_BARE_BYTES = 43


class UnusualError(ValueError):
    """Not for the short cut."""


def layout(type_name: str, fields: Mapping[str, Any]) -> str:
    """Return the basic types that a message consists of, in the notation of `LAYOUT`."""
    return " ".join(_describe(desc, fields) for _, desc in fields[type_name][1])


def _describe(desc: Any, fields: Mapping[str, Any]) -> str:
    kind, what = desc
    if kind == Nodetype.BASE:
        return str(what[0])
    if kind == Nodetype.NAME:
        return layout(what, fields)
    inner = f"[{_describe(what[0], fields)}]"
    return inner if kind == Nodetype.SEQUENCE else f"{inner}*{what[1]}"


def read(cdr: bytes, max_detections: int) -> Observation:
    """Read a little-endian message of the layout above.

    Raises:
        UnusualError, IndexError, struct.error, ValueError: it is not one, or not a usual one.
    """
    if cdr[:2] != b"\x00\x01":
        raise UnusualError
    sec, nanosec, size = _head(cdr, 4)
    pos = 16 + size
    frame_id = _name(cdr[16:pos])
    pos = pos + 3 & -4
    (count,) = _size(cdr, pos)
    if count > max_detections:
        raise UnusualError
    pos += 4
    found = []
    for _ in range(count):
        start = (pos + 3 & -4) + 4
        pos = start + _size(cdr, start - 4)[0]
        name = _name(cdr[start:pos])
        pos = pos + 3 & -4
        score, x, y, width, height, has_mask = _score_box(cdr, pos)
        pos += 21
        *names, size = _bare_image(cdr, pos)
        pos = pos + _BARE_BYTES + size if names == _BARE else _after_mask(cdr, pos)
        has_point = cdr[pos]
        pos = (pos + 4 & -8) + 4  # aligned to 8 behind the four bytes of the encapsulation
        point = None
        if has_point:
            px, py, pz = _point(cdr, pos)
            if px * 0.0 + py * 0.0 + pz * 0.0 == 0.0:  # all are finite
                point = Point(px, py, pz)
        start = pos + 28
        pos = start + _size(cdr, pos + 24)[0]
        track_id = _name(cdr[start:pos])
        # All zero means no box; one number that is none makes the box useless.
        real = x * 0.0 + y * 0.0 + width * 0.0 + height * 0.0 == 0.0
        box = Box(x, y, width, height) if real and (x or y or width or height) else None
        given = score if math.isfinite(score) else None
        found.append(Detection(name, given, box, point, track_id or None, bool(has_mask)))
    if not pos <= len(cdr) <= pos + 3:
        raise UnusualError
    found.sort(key=_falling_score)
    return Observation(Stamp(sec, nanosec), frame_id, detections=tuple(found))


def _after_mask(cdr: bytes, pos: int) -> int:
    """Step over an image's fields; return where the next one begins."""
    start = (pos + 3 & -4) + 12
    pos = start + _size(cdr, start - 4)[0]
    _name(cdr[start:pos])
    start = (pos + 3 & -4) + 12
    pos = start + _size(cdr, start - 4)[0]
    _name(cdr[start:pos])
    pos = (pos + 1 + 3 & -4) + 8
    return pos + int(_size(cdr, pos - 4)[0])


@lru_cache(maxsize=2048)
def _name(raw: bytes) -> str:
    """Read a short text with the zero byte that ends it."""
    if not raw.endswith(b"\x00") or len(raw) > MAX_NAME_BYTES:
        raise UnusualError
    return label(raw[:-1].decode())


def _falling_score(detection: Detection) -> float:
    return math.inf if detection.score is None else -detection.score
