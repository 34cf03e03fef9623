"""Definitions whose inner messages are laid out flat: the same bytes become far fewer objects.

In CDR nothing marks where a message in a message begins or ends: it lies there as its fields do.
`types.getter` knows what becomes of a path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from rosbags.interfaces import Nodetype

from mcp_perception_buffer.decoding.types import describe, joined

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rosbags.interfaces.typing import Fielddefs, FieldDesc, Typesdict

    from mcp_perception_buffer.decoding.types import Definitions


def flatten(types: Definitions, type_name: str, *, join_points: bool = True) -> Typesdict:
    """Return a type and those of its lists' elements, under their own names, laid out flat.

    Args:
        types: has their definitions.
        type_name: the type.
        join_points: make an array of messages that are arrays of numbers one array of all numbers.
    """
    made: Typesdict = {}
    _flatten(types, type_name, join_points, made)
    return made


def _flatten(types: Definitions, type_name: str, join_points: bool, made: Typesdict) -> None:
    fields: Fielddefs = []
    made[type_name] = [], fields
    for path, desc in _leaves(types, type_name, ""):
        element = describe(path, desc)
        points = types.numbers_in(element.message) if element.message else None
        if join_points and points is not None and element.length:
            numbers = (Nodetype.BASE, (points.base, 0)), element.length * (points.length or 1)
            fields.append((joined(path), cast("FieldDesc", (Nodetype.ARRAY, numbers))))
            continue
        if element.message and element.message not in made:
            _flatten(types, element.message, join_points, made)
        fields.append((joined(path), desc))


def _leaves(types: Definitions, type_name: str, below: str) -> Iterator[tuple[str, FieldDesc]]:
    """Yield the fields of a message and of those in it, lists aside, in the order of the bytes."""
    for name, desc in types.raw(type_name):
        path = f"{below}.{name}".lstrip(".")
        if desc[0] == Nodetype.NAME:
            yield from _leaves(types, str(desc[1]), path)
        else:
            yield path, desc
