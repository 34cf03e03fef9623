"""Hostile messages: every way to break CDR bytes that a decoder has to survive."""

import json
import math
import random
import struct
from collections.abc import Iterator
from typing import Any

from mcp_perception_buffer.answers.latest import latest
from mcp_perception_buffer.answers.scene import scene as scene_answer
from mcp_perception_buffer.answers.streams import streams
from mcp_perception_buffer.answers.wording import RenderLimits
from mcp_perception_buffer.decoding.decoder import MAX_DETECTIONS
from support import (
    DETECTIONS,
    IMAGE,
    STAMPED_STRING,
    Scene,
    detection,
    detections,
    header,
    image,
    make,
    serialise,
    stamped_string,
)

INTERESTING = (
    *(0, 1, 0x7F, 0x80, 0xFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFE, 1_000_000, 64 << 20),
    *(struct.unpack("<I", struct.pack("<f", x))[0] for x in (math.nan, math.inf, -math.inf, 1e38)),
)
# Topic, type and a good message of every kind that is read.
SEEDS: list[tuple[str, str, bytes]] = [
    (
        "/vision/f/detections",
        DETECTIONS,
        detections(
            detection(mask=(8, 6), point=(1, 2, 3), track_id="t-1"),
            detection("plate", 0.5, (-5, -5, 1e6, 1e6)),
            detection("☕", 0.1, (0, 0, 0, 0)),
        ),
    ),
    ("/vision/f/stamped", STAMPED_STRING, stamped_string('{"a": [1, 2.5, "x"]}')),
    ("/vision/f/overlay", IMAGE, serialise(image(8, 6))),
    ("/camera/image_raw", IMAGE, serialise(image(8, 6))),
    *(
        (f"/vision/f/{name.lower()}", f"std_msgs/msg/{name}", cdr)
        for name, cdr in (
            ("String", serialise(make("std_msgs/msg/String", data="a cup on a table"))),
            ("Bool", serialise(make("std_msgs/msg/Bool", data=True))),
            ("Int64", serialise(make("std_msgs/msg/Int64", data=-7))),
            ("Float64", serialise(make("std_msgs/msg/Float64", data=0.5))),
        )
    ),
    (
        "/vision/g/overlay",
        "sensor_msgs/msg/CompressedImage",
        serialise(
            make(
                "sensor_msgs/msg/CompressedImage",
                header=header(),
                format="jpeg",
                data=image(4, 4).data,
            )
        ),
    ),
]


def mutations(cdr: bytes, random: random.Random) -> Iterator[bytes]:
    """Yield broken variants of a message for ever."""
    while True:
        data = bytearray(cdr)
        for _ in range(random.choice((1, 1, 1, 2, 4, 16))):
            _break(data, random)
        yield bytes(data)


def _break(data: bytearray, random: random.Random) -> None:
    at = random.randrange(len(data) + 1)
    match random.randrange(8):
        case 0:
            del data[at:]  # truncated
        case 1 if at < len(data):
            data[at] ^= 1 << random.randrange(8)
        case 2 if len(data) >= 8:
            word = 4 * random.randrange(1, len(data) // 4)
            data[word : word + 4] = struct.pack("<I", random.choice(INTERESTING))
        case 3:
            data[at : at + random.randrange(32)] = b""  # a hole
        case 4:
            data[at:at] = random.randbytes(random.randrange(1, 64))
        case 5:
            data[at : at + 16] = random.randbytes(16)
        case 6:
            data[at:at] = data[: random.randrange(len(data) + 1)]  # a part repeated
        case 7 if len(data) >= 4:
            data[random.randrange(4)] = random.randrange(256)  # the encapsulation


class Victim:
    """A buffer that takes what comes, and is asked like the real one."""

    def __init__(self) -> None:
        self._scene = Scene(history_depth=3)
        self.put = 0

    def take(self, topic: str, type_name: str, cdr: bytes) -> None:
        self._scene.put(topic, cdr, type_name)
        self.put += 1
        view = self._scene.buffer.view(topic)
        assert view is not None
        if view.observation is not None:
            assert len(view.observation.detections) <= MAX_DETECTIONS
            if view.observation.value is not None:
                assert len(_encoded(view.observation.value)) < 2_000_000

    def ask(self) -> None:
        snapshot = self._scene.snapshot()
        limits = RenderLimits()
        _encoded(scene_answer(snapshot, limits, "now", 0.0))
        _encoded(streams(snapshot, limits))
        for skill in {view.info.skill for view in snapshot.streams} - {""}:
            _encoded(latest(snapshot, skill, limits, 0.0))


def _encoded(answer: Any) -> bytes:
    """What goes to a client: finite numbers, and text that UTF-8 can carry."""
    return json.dumps(answer, allow_nan=False, ensure_ascii=False).encode()
