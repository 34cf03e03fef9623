"""Points, extents and orientations in space: their search in a type and their reading.

A `find_…` function returns what reads that part from a message object, or None where the type has
no such part. What is no measurement is read as None.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from mcp_perception_buffer.decoding.text import label
from mcp_perception_buffer.decoding.types import FLOATS, TEXT, Read, getter
from mcp_perception_buffer.model import Point, Quaternion, Size

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp_perception_buffer.decoding.names import Names

Pose = tuple[Point | None, Quaternion | None, str | None]  # the last is the frame, if it is told


_POSITIONS = ("", "position", "point", "pose.position", "pose.pose.position")


def find_pose(names: Names, type_name: str, root: str = "") -> Callable[[Any], Pose] | None:
    """Find a point in space, an orientation beside it and the frame that they are in."""
    for holder in names.of("point"):
        found = names.types.find(type_name, holder)
        if found is None:
            continue
        for inner in _POSITIONS:
            path = f"{holder}.{inner}".rstrip(".")
            if (read := _find_xyz(names, type_name, path, Point)) is not None:
                turned = _find_orientation(names, type_name, path)
                frame = _find_frame(names, type_name, path)
                gate = names.first(type_name, "has_point", ("bool",))
                return _pose(read, turned, frame, getter(gate) if gate else None)
    return None


def _pose(
    read: Read, turned: Read | None, frame: Read | None, gate: Read | None
) -> Callable[[Any], Pose]:
    def read_pose(message: Any) -> Pose:
        if gate is not None and not gate(message):
            return None, None, None
        point = read(message)
        if point is None:
            return None, None, None
        frame_id = label(frame(message)) or None if frame else None
        return point, turned(message) if turned else None, frame_id

    return read_pose


def _find_orientation(names: Names, type_name: str, path: str) -> Read | None:
    head, _, last = path.rpartition(".")
    beside = f"{head}.orientation".lstrip(".") if last == "position" else f"{path}.orientation"
    if names.types.find(type_name, f"{beside}.w") is None:
        return None
    get = getter(*(f"{beside}.{axis}" for axis in "xyzw"))

    def read(message: Any) -> Quaternion | None:
        found = Quaternion(*get(message))
        return found if any(found) and all(map(math.isfinite, found)) else None

    return read


def _find_frame(names: Names, type_name: str, path: str) -> Read | None:
    """Look for a frame in what holds the point, from the inside out."""
    paths = []
    while path:
        paths += [f"{path}.{name}" for name in names.of("frame_id")]
        path = path.rpartition(".")[0]
    paths += names.of("frame_id")
    found = names.types.first(type_name, paths, among=TEXT)
    return getter(found) if found else None


def find_size(names: Names, type_name: str) -> Read | None:
    """Find the extents in space."""
    for path in names.of("size"):
        if (read := _find_xyz(names, type_name, path, Size)) is not None:
            return read
    return None


def _find_xyz(
    names: Names, type_name: str, path: str, make: type[Point] | type[Size]
) -> Read | None:
    get: Read
    whole = names.types.find(type_name, path)
    if whole is not None and whole.base in FLOATS and whole.length == 3:
        get_array = getter(path)
        get = lambda message: get_array(message).tolist()  # noqa: E731
    elif names.types.first(type_name, (f"{path}.z",), among=FLOATS):
        get = getter(*(f"{path}.{axis}" for axis in "xyz"))
    else:
        return None

    def read_size(message: Any) -> Size | None:
        x, y, z = get(message)
        return Size(x, y, z) if min(x, y, z) > 0 and math.isfinite(x + y + z) else None

    def read_point(message: Any) -> Point | None:
        x, y, z = get(message)
        # The origin is where a detector without depth leaves it.
        return Point(x, y, z) if (x or y or z) and math.isfinite(x + y + z) else None

    return read_size if make is Size else read_point
