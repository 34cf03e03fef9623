import json
import math
import random
from typing import Any

import numpy as np
import pytest

from mcp_perception_buffer.decoding.decoder import MAX_DETECTIONS, Decoder
from mcp_perception_buffer.decoding.values import MAX_ITEMS, read_value
from mcp_perception_buffer.errors import DecodeError, UnknownTypeError
from mcp_perception_buffer.model import Box, Kind, Observation, Point, Stamp
from support import (
    DETECTIONS,
    IMAGE,
    STAMPED_STRING,
    STORE,
    definition,
    detection,
    detections,
    image,
    make,
    serialise,
    stamped_string,
    stream,
)


@pytest.fixture
def decoder() -> Decoder:
    return Decoder(definition)


def see(decoder: Decoder, cdr: bytes) -> Observation:
    return decoder.decode(stream("detections", DETECTIONS), cdr)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("true", True),
        ("True", True),
        ("False", False),
        (" false ", False),
        ("3.5", 3.5),
        ("-7", -7),
        ('["cup","plate"]', ["cup", "plate"]),
        ('{"n": 1}', {"n": 1}),
        ("a cup", "a cup"),
        ("null", "null"),
        ('"quoted"', '"quoted"'),
        ("NaN", "NaN"),
        ("-Infinity", "-Infinity"),
        ("1e999", "1e999"),
        ("[1, NaN]", "[1, NaN]"),
        ("[1, 1e999]", "[1, 1e999]"),
        ("truetype", "truetype"),
        ("[unclosed", "[unclosed"),
        ("", ""),
        ("9" * 5000, "9" * 3999 + "…"),
        ("[" * 5000, "[" * 3999 + "…"),
    ],
)
def test_a_semantic_output_is_read_by_the_rule_of_its_interface(data: str, value: object) -> None:
    assert read_value(data) == value
    assert type(read_value(data)) is type(value)


def test_nested_values_stay_bounded_and_encodable() -> None:
    value = read_value(json.dumps({"list": list(range(1000)), "text": "a\n\ud800b" * 10}))
    assert isinstance(value, dict)
    items, text = value["list"], value["text"]
    assert isinstance(items, list)
    assert len(items) == MAX_ITEMS + 1
    assert items[-1] == f"… {1000 - MAX_ITEMS} more"
    assert isinstance(text, str)
    text.encode()
    assert read_value("[" * 20 + "]" * 20) == [[[[[[[["…"]]]]]]]]
    assert read_value(str(2**70)) == str(2**70)


def test_a_detection_keeps_everything_but_its_mask(decoder: Decoder) -> None:
    cdr = detections(
        detection("plate", 0.77, (40, 60, 90, 88)),
        detection("cup", 0.91, (120, 80, 64, 48), point=(1, 2, 3), mask=(64, 48), track_id="7"),
    )
    seen = see(decoder, cdr)
    cup, plate = seen.detections
    assert (seen.stamp, seen.frame_id) == (Stamp(1, 2), "camera")
    assert cup.label == "cup"
    assert cup.score == pytest.approx(0.91)
    assert (cup.box, cup.point, cup.track_id) == (Box(120, 80, 64, 48), Point(1, 2, 3), "7")
    assert cup.has_mask
    assert (plate.point, plate.track_id, plate.has_mask) == (None, None, False)


def test_detections_come_by_falling_score_and_unknown_scores_last(decoder: Decoder) -> None:
    seen = see(decoder, detections(*(detection(f"at {s}", s) for s in (0.1, math.nan, 0.9, 0.5))))
    assert [d.label for d in seen.detections] == ["at 0.9", "at 0.5", "at 0.1", "at nan"]
    assert seen.detections[-1].score is None


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_none_become_none(decoder: Decoder, bad: float) -> None:
    [seen] = see(
        decoder, detections(detection(score=bad, box=(1, bad, 3, 4), point=(bad, 0, 0)))
    ).detections
    assert (seen.score, seen.box, seen.point) == (None, None, None)


def test_a_box_of_zeros_is_no_box(decoder: Decoder) -> None:
    [seen] = see(decoder, detections(detection(box=(0, 0, 0, 0)))).detections
    assert seen.box is None


def test_looked_and_saw_nothing_is_an_observation(decoder: Decoder) -> None:
    assert see(decoder, detections()).detections == ()


def test_hostile_labels_and_frames_are_cleaned(decoder: Decoder) -> None:
    cdr = detections(detection("cup\u202e\nIGNORE" + "x" * 9999), frame_id="cam\x1b[2J")
    seen = see(decoder, cdr)
    assert seen.detections[0].label.startswith("cup IGNORE")
    assert len(seen.detections[0].label) == 64
    assert seen.frame_id == "cam [2J"


def test_of_an_image_only_the_header_is_read(decoder: Decoder) -> None:
    cdr = serialise(image(640, 480, sec=9, frame_id="optical"))[:64]
    seen = decoder.decode(stream("camera", IMAGE), cdr)
    assert (seen.stamp, seen.frame_id) == (Stamp(9, 2), "optical")


@pytest.mark.parametrize(
    ("type_name", "fields", "value"),
    [
        ("std_msgs/msg/String", {"data": "[1,2]"}, [1, 2]),
        ("std_msgs/msg/Bool", {"data": True}, True),
        ("std_msgs/msg/Float32", {"data": 0.5}, 0.5),
        ("std_msgs/msg/Float64", {"data": math.nan}, None),
        ("std_msgs/msg/Int32", {"data": -3}, -3),
        (
            "std_msgs/msg/Float32MultiArray",
            {
                "layout": make("std_msgs/msg/MultiArrayLayout", dim=[], data_offset=0),
                "data": np.arange(1000, dtype=np.float32),
            },
            [*map(float, range(MAX_ITEMS)), f"… {1000 - MAX_ITEMS} more"],
        ),
    ],
)
def test_plain_ros_types_are_semantic_outputs_too(
    decoder: Decoder, type_name: str, fields: dict[str, Any], value: object
) -> None:
    assert decoder.why_unreadable("semantic", type_name) is None
    cdr = serialise(make(type_name, **fields))
    assert decoder.decode(stream("semantic", type_name), cdr).value == value


@pytest.mark.parametrize(
    ("kind", "type_name", "reason"),
    [
        ("detections", STAMPED_STRING, "no detections found in ros2_vision_interfaces"),
        ("overlay", STAMPED_STRING, "an image must be"),
        ("semantic", "nobody_msgs/msg/Thing", "no definition of nobody_msgs/msg/Thing"),
        ("semantic", "geometry_msgs/msg/Point", "field `data`"),
        ("semantic", "sensor_msgs/msg/Image", "never sent"),
        ("semantic", "sensor_msgs/msg/CompressedImage", "never sent"),
        ("semantic", "sensor_msgs/msg/PointCloud2", "never sent"),
        ("semantic", "std_msgs/msg/ByteMultiArray", "never sent"),
    ],
)
def test_what_cannot_be_read_is_told_with_the_reason(
    decoder: Decoder, kind: Kind, type_name: str, reason: str
) -> None:
    assert reason in (decoder.why_unreadable(kind, type_name) or "")


def test_an_unknown_type_is_an_error_of_its_own() -> None:
    with pytest.raises(UnknownTypeError, match="nobody_msgs"):
        definition("nobody_msgs/msg/Thing")


def test_a_message_that_claims_too_many_detections_is_refused_unread(decoder: Decoder) -> None:
    many = detections(*[detection()] * (MAX_DETECTIONS + 1))
    with pytest.raises(DecodeError, match="1001 detections in one message"):
        see(decoder, many)
    assert len(see(decoder, detections(*[detection()] * MAX_DETECTIONS)).detections) == 1000


GOOD = {
    "detections": (DETECTIONS, detections(detection("tür", mask=(8, 8), point=(1, 2, 3)))),
    "semantic": (STAMPED_STRING, stamped_string('{"a": [1, "tür"]}')),
    "overlay": (IMAGE, serialise(image(8, 8))),
}


@pytest.mark.parametrize("kind", GOOD)
def test_no_bytes_raise_anything_but_a_decode_error(decoder: Decoder, kind: Kind) -> None:
    type_name, good = GOOD[kind]
    chance = random.Random(20261201)
    refused = 0
    for _ in range(2000):
        bad = bytearray(good)
        match chance.randrange(3):
            case 0:
                del bad[chance.randrange(len(bad)) :]
            case 1:
                for _ in range(chance.randint(1, 8)):
                    bad[chance.randrange(len(bad))] = chance.randrange(256)
            case _:
                bad = bytearray(chance.randbytes(chance.randrange(200)))
        try:
            seen = decoder.decode(stream(kind, type_name), bytes(bad))
        except DecodeError:
            refused += 1
        else:
            json.dumps([seen.value, seen.frame_id, seen.detections], allow_nan=False).encode()
    assert refused > 500


def test_big_endian_messages_are_read(decoder: Decoder) -> None:
    message = make("std_msgs/msg/Int32", data=5)
    cdr = bytes(STORE.serialize_cdr(message, message.__msgtype__, little_endian=False))
    assert decoder.decode(stream("semantic", "std_msgs/msg/Int32"), cdr).value == 5


def test_two_types_that_hold_each_other_are_told() -> None:
    texts = {"a_msgs/msg/Egg": "Hen[] hens", "a_msgs/msg/Hen": "Egg[] eggs"}
    said = Decoder(texts.__getitem__).why_unreadable("detections", "a_msgs/msg/Egg")
    assert said is not None
    assert "the definition of a_msgs/msg/Egg cannot be used" in said
