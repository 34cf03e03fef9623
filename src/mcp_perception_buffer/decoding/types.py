"""Looks into message definitions: what a dotted path leads to, and how to get there."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from rosbags.interfaces import Nodetype
from rosbags.typesys.base import normalize_fieldname

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rosbags.interfaces.typing import Fielddefs, FieldDesc

# Reads something from a message object.
Read = Callable[[Any], Any]

TEXT = ("string",)
FLOATS = ("float32", "float64")
INTEGERS = (
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "byte",
    "char",
)
NUMBERS = (*FLOATS, *INTEGERS)


class Field(NamedTuple):
    """One field of a type, or an element of an array.

    `base` is a basic type such as `"float32"`, or "" for a message; `length` is None for one value,
    0 for a sequence, else that of an array.
    """

    path: str
    base: str
    message: str
    length: int | None

    @property
    def is_list(self) -> bool:
        """Whether it is a sequence or an array."""
        return self.length is not None


def describe(path: str, desc: FieldDesc) -> Field:
    """Return a field by rosbags' description of it."""
    kind, what = desc
    length: int | None = None
    if kind in (Nodetype.ARRAY, Nodetype.SEQUENCE):
        (kind, what), count = cast("tuple[FieldDesc, int | None]", what)
        length = count or 0
    if kind == Nodetype.NAME:
        return Field(path, "", str(what), length)
    return Field(path, str(what[0]), "", length)


class Definitions:
    """The fields of message types, as far as they were loaded."""

    def __init__(self, fielddefs: Mapping[str, tuple[Any, Fielddefs]]) -> None:
        self._fielddefs = fielddefs

    def fields(self, type_name: str) -> Iterator[Field]:
        """Yield a type's fields in their order."""
        for name, desc in self._fielddefs[type_name][1]:
            yield describe(name, desc)

    def raw(self, type_name: str) -> Fielddefs:
        """Return a type's fields as rosbags has them."""
        return self._fielddefs[type_name][1]

    def numbers_in(self, type_name: str) -> Field | None:
        """Return the only field of a message that is nothing but an array of numbers."""
        fields = list(self.fields(type_name))
        only = fields[0] if len(fields) == 1 else None
        return only if only and only.base in NUMBERS and only.length else None

    def find(self, type_name: str, path: str) -> Field | None:
        """Return what a dotted path below a type leads to, None if it leads nowhere."""
        found = Field("", "", type_name, None)
        for name in path.split("."):
            if name.isdecimal() and found.length is not None:
                if found.length and int(name) >= found.length:
                    return None
                found = found._replace(path=f"{found.path}.{name}", length=None)
                continue
            if found.base or found.is_list or found.message not in self._fielddefs:
                return None
            step = next((f for f in self.fields(found.message) if f.path == name), None)
            if step is None:
                return None
            found = step._replace(path=f"{found.path}.{name}".lstrip("."))
        return found

    def first(
        self, type_name: str, paths: Iterable[str], *, among: tuple[str, ...], below: str = ""
    ) -> str | None:
        """Return the first of `paths` that is one value of a basic type `among` those given."""
        for path in paths:
            whole = f"{below}.{path}".lstrip(".")
            found = self.find(type_name, whole)
            if found is not None and found.base in among and not found.is_list:
                return whole
        return None


def getter(*paths: str) -> Callable[[Any], Any]:
    """Return what gets the values at these paths, a tuple of them if there are several.

    It reads messages that are laid out flat; see `flat`.
    """
    if any(part.isdecimal() for path in paths for part in path.split(".")):
        steps = [_walker(path) for path in paths]
        return steps[0] if len(steps) == 1 else lambda message: tuple(s(message) for s in steps)
    return attrgetter(*map(_attribute, paths))


def joined(path: str) -> str:
    """Return what the field at a path is called in a message that is laid out flat."""
    return path.replace(".", "__")  # which no name of a field has in it


@cache
def _attribute(path: str) -> str:
    return normalize_fieldname(joined(path))


def _walker(path: str) -> Callable[[Any], Any]:
    # Attributes up to an index are one; `a.b.0.c` is `a__b`, 0 and `c`.
    parts = re.split(r"\.?\b(\d+)\b\.?", path)
    steps = [int(p) if p.isdecimal() else _attribute(p) for p in parts if p]

    def walk(message: Any) -> Any:
        for step in steps:
            message = message[step] if isinstance(step, int) else getattr(message, step)
        # Of an array of numbers: a NumPy scalar, which is no number to JSON.
        return message.item() if hasattr(message, "item") else message

    return walk
