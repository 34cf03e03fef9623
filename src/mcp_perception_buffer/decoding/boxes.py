"""Boxes in the image, whichever way a type gives them: their search and their reading.

A `find_…` function returns what reads that part from a message object, or None where the type has
no such part. What is no measurement is read as None.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from mcp_perception_buffer.decoding.fields import FLAT_M
from mcp_perception_buffer.decoding.types import NUMBERS, Field, Read, getter
from mcp_perception_buffer.model import Box

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp_perception_buffer.decoding.names import Names

MAX_CORNERS = 100


def find_box(names: Names, type_name: str) -> Read | None:
    """Find a box in the image, in any of its forms, in a holder or in the detection itself."""
    for holder in names.of("box"):
        found = names.types.find(type_name, holder)
        if found is None:
            continue
        if found.is_list:
            read = _find_corners(names, found)
        else:
            read = _find_box_in(names, found.message, holder) if found.message else None
        if read is not None:
            return read
    return _find_box_in(names, type_name, "")


def _find_box_in(names: Names, type_name: str, holder: str) -> Read | None:
    at = {
        row: names.first(type_name, row, NUMBERS)
        for row in (
            "center_x",
            "center_y",
            "width",
            "height",
            "theta",
            "left",
            "top",
            "right",
            "bottom",
        )
    }
    path = {row: f"{holder}.{where}".lstrip(".") for row, where in at.items() if where}
    solid = any(names.types.find(type_name, axis) for axis in ("size.z", "center.position.z"))
    for rows, form in _FORMS:
        if all(row in path for row in rows) and not (solid and form is not _from_corners):
            return _formed(getter(*(path[row] for row in rows)), form)
    for found in names.find(type_name, "corners") if holder else ():
        moved = found._replace(path=f"{holder}.{found.path}")
        if found.is_list and (read := _find_corners(names, moved)):
            return read
    return None


def _formed(get: Read, form: Callable[..., Box | None]) -> Read:
    return lambda message: form(*get(message))


def _from_corner(left: float, top: float, width: float, height: float) -> Box | None:
    # A NaN is not positive, and spoils the sum.
    if width > 0 and height > 0 and math.isfinite(left + top + width + height):
        return Box(left, top, width, height)
    return None


def _from_corners(left: float, top: float, right: float, bottom: float) -> Box | None:
    return _from_corner(left, top, right - left, bottom - top)


def _from_center(x: float, y: float, width: float, height: float) -> Box | None:
    return _from_corner(x - width / 2, y - height / 2, width, height)


def _from_rotated(x: float, y: float, width: float, height: float, theta: float) -> Box | None:
    if theta and width > 0 and height > 0 and math.isfinite(theta):
        cos, sin = abs(math.cos(theta)), abs(math.sin(theta))
        width, height = width * cos + height * sin, width * sin + height * cos
    return _from_center(x, y, width, height)


# Two corners come first: a centre or a corner may be given with them, and says less.
_FORMS: tuple[tuple[tuple[str, ...], Callable[..., Box | None]], ...] = (
    (("left", "top", "right", "bottom"), _from_corners),
    (("center_x", "center_y", "width", "height", "theta"), _from_rotated),
    (("center_x", "center_y", "width", "height"), _from_center),
    (("left", "top", "width", "height"), _from_corner),
)


def _find_corners(names: Names, found: Field) -> Read | None:
    """Read the hull of points that have `x` and `y`, or are arrays of two numbers each."""
    if not found.message or (found.length or 3) < 3:
        return None
    get_points = _find_points(names, found)
    if get_points is None:
        return None

    def read(message: Any) -> Box | None:
        points = get_points(message)
        if len(points) < 3:
            return None
        xs, ys = [float(p[0]) for p in points], [float(p[1]) for p in points]
        return _from_corners(min(xs), min(ys), max(xs), max(ys))

    return read


def _find_points(names: Names, found: Field) -> Read | None:
    get_all = getter(found.path)
    if all(names.types.first(found.message, (axis,), among=NUMBERS) for axis in "xy"):
        get = getter("x", "y")
        return lambda message: [get(point) for point in get_all(message)[:MAX_CORNERS]]
    numbers = names.types.numbers_in(found.message)
    if numbers is None or numbers.length != 2:
        return None
    if found.length and names.joins_points:
        return lambda message: get_all(message)[: 2 * MAX_CORNERS].reshape(-1, 2).tolist()
    get = getter(numbers.path)
    return lambda message: [get(point) for point in get_all(message)[:MAX_CORNERS]]


def find_flat_box(names: Names, type_name: str) -> Read | None:
    """Read a box in space as one in the image where it is flat; see `FLAT_M`."""
    for holder in names.of("box"):
        if names.types.find(type_name, f"{holder}.center.position.z") is None:
            continue
        if names.types.find(type_name, f"{holder}.size.z") is None:
            continue
        get = getter(
            *(f"{holder}.center.position.{axis}" for axis in "xyz"),
            *(f"{holder}.size.{axis}" for axis in "xyz"),
        )

        def read(message: Any, get: Read = get) -> Box | None:
            x, y, z, width, height, depth = get(message)
            return _from_center(x, y, width, height) if z == 0 and depth <= FLAT_M else None

        return read
    return None
