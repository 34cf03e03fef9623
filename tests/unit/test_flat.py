"""Messages that are laid out flat have the values that they have otherwise."""

import random
from typing import Any

import numpy as np
import pytest
from rosbags.interfaces import Nodetype
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

from look_alikes import LOOKS
from mcp_perception_buffer.decoding.flat import flatten
from mcp_perception_buffer.decoding.types import Definitions, joined
from support import STORE

# Every alignment before and after every kind of field.
ODD = {
    "odd_msgs/msg/Pair": "float64[2] kp",
    "odd_msgs/msg/Inner": "int8 a\nfloat64 b\nstring c\nPair[3] pairs\nuint16[] some\nbool class",
    "odd_msgs/msg/Tail": "int8 a\nPair only\nint8 b",
    "odd_msgs/msg/Outer": (
        "string before\nInner one\nint8 x\nTail[] tails\nInner[2] two\nstring[] names\nint8 y\n"
        "float64[] numbers\nPair[] pairs\nstd_msgs/Header header\nTail last\nbyte[5] bytes\nint64 z"
    ),
}


def store() -> Typestore:
    made = get_typestore(Stores.LATEST)
    for name, text in ODD.items():
        made.register(get_types_from_msg(text, name))
    return made


def anything(desc: Any, chance: random.Random, store: Typestore) -> Any:
    kind, what = desc
    if kind == Nodetype.NAME:
        return arbitrary(what, chance, store)
    if kind == Nodetype.BASE:
        text = "".join(chance.choices("aü€ ", k=chance.randrange(9)))
        return {"string": text, "bool": chance.random() < 0.5}.get(what[0], chance.randrange(100))
    inner, length = what
    count = length if kind == Nodetype.ARRAY else chance.randrange(4)
    values = [anything(inner, chance, store) for _ in range(count)]
    if inner[0] == Nodetype.NAME or inner[1][0] == "string":
        return values
    return np.array(values, dtype={"byte": "uint8"}.get(inner[1][0], inner[1][0]))


def arbitrary(type_name: str, chance: random.Random, store: Typestore) -> Any:
    fields = store.fielddefs[type_name][1]
    values = (anything(desc, chance, store) for _, desc in fields)
    return store.types[type_name](*values)


def values(message: Any) -> list[Any]:
    """All values in a message in their order, however it is laid out."""
    if isinstance(message, list):
        return [value for one in message for value in values(one)]
    if isinstance(message, np.ndarray):
        return list(message.tolist())
    if hasattr(message, "__msgtype__"):
        fields = (one for name, one in vars(message).items() if name != "__msgtype__")
        return [value for one in fields for value in values(one)]
    return [message]


@pytest.mark.parametrize("join_points", [True, False])
@pytest.mark.parametrize("little_endian", [True, False])
@pytest.mark.parametrize("type_name", ["odd_msgs/msg/Outer", *(k.type for k in LOOKS.values())])
def test_the_same_bytes_give_the_same_values(
    type_name: str, little_endian: bool, join_points: bool
) -> None:
    known = store() if type_name in ODD else STORE
    flat = Typestore()
    flat.register(flatten(Definitions(known.fielddefs), type_name, join_points=join_points))
    for seed in range(20):
        message = arbitrary(type_name, random.Random(seed), known)
        cdr = known.serialize_cdr(message, type_name, little_endian=little_endian)
        assert values(flat.deserialize_cdr(cdr, type_name)) == values(message)


def test_inner_messages_become_fields_and_points_of_numbers_one_array() -> None:
    made = flatten(Definitions(store().fielddefs), "odd_msgs/msg/Outer")
    assert sorted(made) == [f"odd_msgs/msg/{name}" for name in ("Inner", "Outer", "Pair", "Tail")]
    fields = dict(made["odd_msgs/msg/Outer"][1])
    assert fields[joined("header.stamp.sec")] == (Nodetype.BASE, ("int32", 0))
    assert fields[joined("one.pairs")] == (
        Nodetype.ARRAY, ((Nodetype.BASE, ("float64", 0)), 6),
    )  # fmt: skip
