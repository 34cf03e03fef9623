"""Messages of any type, made from nested plain values: needs the types' definitions, and no ROS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from rosbags.interfaces import Nodetype
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

if TYPE_CHECKING:
    from pathlib import Path

    from rosbags.typesys.store import Typestore


def read_definitions(*folders: Path) -> Typestore:
    """Return the common types, and those that folders define in files `PACKAGE/msg/TYPE.msg`."""
    store = get_typestore(Stores.LATEST)
    for folder in folders:
        for path in sorted(folder.glob("*/msg/*.msg")):
            name = f"{path.parts[-3]}/msg/{path.stem}"
            store.register(get_types_from_msg(path.read_text(encoding="utf-8"), name))
    return store


def filled(type_name: str, given: dict[str, Any] | None, store: Typestore) -> Any:
    """Return a message; what is not given is what ROS fills in.

    Args:
        type_name: such as `"std_msgs/msg/Header"`.
        given: values by field; dicts for messages, lists for sequences and arrays.
        store: knows the type.
    """
    given = dict(given or {})
    fields = {
        name: _value(desc, given.pop(name, None), store)
        for name, desc in store.fielddefs[type_name][1]
    }
    assert not given, f"{type_name} has no {', '.join(given)}"
    return store.types[type_name](**fields)


def _value(desc: Any, given: Any, store: Typestore) -> Any:
    kind, what = desc
    if kind == Nodetype.NAME:
        return filled(what, given, store)
    if kind == Nodetype.BASE:
        return given if given is not None else {"string": "", "bool": False}.get(what[0], 0)
    inner, length = what
    values = list(given or ()) if kind == Nodetype.SEQUENCE else list(given or [None] * length)
    made = [_value(inner, value, store) for value in values]
    if inner[0] == Nodetype.NAME or inner[1][0] == "string":
        return made
    return np.array(made, dtype=inner[1][0])
