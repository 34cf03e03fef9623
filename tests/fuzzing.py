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
from mcp_perception_buffer.model import Reading
from mcp_perception_buffer.sources.topics import Rule, TopicFilter
from support import (
    DETECTIONS,
    IMAGE,
    STAMPED_STRING,
    Scene,
    detection,
    detections,
    filled,
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
# One good message of each shape in which detectors publish, as nested plain values.
HEAD = {"stamp": {"sec": 1, "nanosec": 2}, "frame_id": "camera"}
AT = {"x": 0.5, "y": -0.25, "z": 1.5}
SIZE = {"x": 0.1, "y": 0.2, "z": 0.3}
POSE = {"position": AT, "orientation": {"w": 1.0}}
GUESSES = [{"class_id": "17", "score": 0.9}, {"class_id": "mug", "score": 0.2}]
RESULTS = [{"hypothesis": guess, "pose": {"pose": POSE}} for guess in GUESSES]
BOX_2D = {"center": {"position": {"x": 50, "y": 40}, "theta": 0.1}, "size_x": 30, "size_y": 20}
DETECTION_2D = {"header": HEAD, "results": RESULTS, "bbox": BOX_2D, "id": "t-1"}
DETECTION_3D = {"results": RESULTS, "bbox": {"center": POSE, "size": SIZE}, "id": "t-1"}
YOLO = {
    "class_id": 41,
    "class_name": "cup",
    "score": 0.9,
    "id": "7",
    "bbox": {"center": BOX_2D["center"], "size": {"x": 30, "y": 20}},
    "bbox3d": {"center": POSE, "size": SIZE, "frame_id": "map"},
    "mask": {"width": 64, "height": 48, "data": [{"x": 1, "y": 2}, {"x": 3, "y": 4}]},
    "keypoints": {"data": [{"id": 1, "point": {"x": 1, "y": 2}, "score": 0.5}]},
}
SPATIAL = {"results": GUESSES, "bbox": BOX_2D, "position": AT, "is_tracking": True}
ZED = {
    "label": "person",
    "label_id": 3,
    "confidence": 88.0,
    "position": [0.5, 0.25, 1.5],
    "tracking_available": True,
    "bounding_box_2d": {"corners": [{"kp": [x, y]} for x, y in ((1, 2), (9, 2), (9, 8), (1, 8))]},
    "dimensions_3d": [0.5, 1.8, 0.4],
    "skeleton_available": True,
    "skeleton_2d": {"keypoints": [{"kp": [1, 2]}] * 70},
}
TWICE = {"header": HEAD, "detections": [DETECTION_2D] * 2}
DETECTORS: dict[str, dict[str, Any]] = {
    "vision_msgs/msg/Detection2DArray": TWICE,
    "vision_msgs/msg/Detection3DArray": {"header": HEAD, "detections": [DETECTION_3D, {}]},
    "vision_msgs/msg/Classification": {"header": HEAD, "results": GUESSES},
    "vision_msgs/msg/Detection2D": DETECTION_2D,
    "yolo_msgs/msg/DetectionArray": {"header": HEAD, "detections": [YOLO, {"class_id": 3}]},
    "depthai_ros_msgs/msg/SpatialDetectionArray": {"header": HEAD, "detections": [SPATIAL] * 2},
    "zed_msgs/msg/ObjectsStamped": {"header": HEAD, "objects": [ZED]},
    "ultralytics_ros/msg/YoloResult": {
        "header": HEAD,
        "detections": TWICE,
        "masks": [{"width": 4, "height": 2, "step": 4, "data": [255] * 8}],
    },
    "team_msgs/msg/Boxes": {
        "header": HEAD,
        "boxes": [{"class_name": "cup", "confidence": 0.5, "xmin": 1, "xmax": 9, "ymax": 8}, {}],
    },
}
# Their topics, and how these are read.
RULES = [Rule("/detector/*", kind="detections", reading=Reading({"17": "cat"}))]
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
    *(
        (f"/detector/{name.replace('/msg/', '_').lower()}", name, serialise(filled(name, given)))
        for name, given in DETECTORS.items()
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
        self._scene.topics = TopicFilter(camera_topic="/camera/image_raw", rules=RULES)
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
