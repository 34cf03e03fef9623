"""What several tests share: messages as bytes, a clock that only tests move, bounded waiting."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rosbags.typesys.store import Typestore

from mcp_perception_buffer.buffer import Buffer
from mcp_perception_buffer.decoding.decoder import Decoder, packaged_definition
from mcp_perception_buffer.model import Kind, Snapshot, StreamInfo
from mcp_perception_buffer.sim import messages
from mcp_perception_buffer.sim.messages import read_definitions
from mcp_perception_buffer.sources.topics import TopicFilter

REPOSITORY = Path(__file__).parents[1]
INTERFACES = REPOSITORY / "src" / "ros2_vision_interfaces" / "msg"
DETECTORS = REPOSITORY / "tests" / "interfaces"  # packages that public detectors publish
DETECTIONS = "ros2_vision_interfaces/msg/VisionDetectionArray"
STAMPED_STRING = "ros2_vision_interfaces/msg/StampedString"
IMAGE = "sensor_msgs/msg/Image"


def definition(type_name: str) -> str:
    """The repository's own definitions, and the common ones."""
    package, _, name = type_name.partition("/msg/")
    if package == "ros2_vision_interfaces":
        return (INTERFACES / f"{name}.msg").read_text()
    path = DETECTORS / package / "msg" / f"{name}.msg"
    return path.read_text() if path.is_file() else packaged_definition(type_name)


STORE = read_definitions(REPOSITORY / "src", DETECTORS)


def make(type_name: str, **fields: Any) -> Any:
    return STORE.types[type_name](**fields)


def filled(type_name: str, given: dict[str, Any] | None = None, store: Typestore = STORE) -> Any:
    """A message of nested plain values; what is not given is what ROS fills in."""
    return messages.filled(type_name, given, store)


def stream(kind: Kind, type_name: str, topic: str = "/vision/f/x", **more: Any) -> StreamInfo:
    return StreamInfo(topic, "f", kind, kind, type_name, **more)


def header(sec: int = 1, nanosec: int = 2, frame_id: str = "camera") -> Any:
    stamp = make("builtin_interfaces/msg/Time", sec=sec, nanosec=nanosec)
    return make("std_msgs/msg/Header", stamp=stamp, frame_id=frame_id)


def serialise(message: Any) -> bytes:
    return bytes(STORE.serialize_cdr(message, message.__msgtype__))


def stamped_string(data: str, **head: Any) -> bytes:
    return serialise(make(STAMPED_STRING, header=header(**head), data=data))


def image(width: int = 0, height: int = 0, **head: Any) -> Any:
    pixels = np.full(width * height, 255, dtype=np.uint8)
    return make(
        IMAGE,
        header=header(**head),
        height=height,
        width=width,
        encoding="mono8",
        is_bigendian=0,
        step=width,
        data=pixels,
    )


def detection(
    label: str = "cup",
    score: float = 0.91,
    box: tuple[float, float, float, float] = (120, 80, 64, 48),
    point: tuple[float, float, float] | None = None,
    mask: tuple[int, int] | None = None,
    track_id: str = "",
) -> Any:
    x, y, width, height = box
    return make(
        "ros2_vision_interfaces/msg/VisionDetection",
        label=label,
        score=score,
        box=make("ros2_vision_interfaces/msg/BoundingBox", x=x, y=y, width=width, height=height),
        has_mask=mask is not None,
        mask=image(*(mask or (0, 0))),
        has_point=point is not None,
        point=make("geometry_msgs/msg/Point", **dict(zip("xyz", point or (0, 0, 0), strict=True))),
        track_id=track_id,
    )


def detections(*found: Any, **head: Any) -> bytes:
    return serialise(make(DETECTIONS, header=header(**head), detections=list(found)))


class FakeClock:
    """Nanoseconds that move only by `advance`."""

    def __init__(self) -> None:
        self.ns = 1_000_000_000_000

    def __call__(self) -> int:
        return self.ns

    def advance(self, seconds: float) -> None:
        self.ns += int(seconds * 1e9)


class Scene:
    """A buffer fed by hand, with real bytes and a fake clock."""

    def __init__(self, **options: Any) -> None:
        self.clock = FakeClock()
        self.topics = TopicFilter(camera_topic="/camera/image_raw")
        self.buffer = Buffer(Decoder(definition).decode, clock_ns=self.clock, **options)
        self.buffer.discovering = False

    def put(self, topic: str, cdr: bytes, type_name: str | None = None) -> None:
        info = self.topics.classify(topic, "")
        assert info is not None
        default = {"detections": DETECTIONS, "semantic": STAMPED_STRING}.get(info.kind, IMAGE)
        info = self.topics.classify(topic, type_name or default)
        assert info is not None
        self.buffer.open(info)
        self.buffer.put(topic, cdr, self.clock())

    def open(self, topic: str, type_name: str = STAMPED_STRING) -> None:
        info = self.topics.classify(topic, type_name)
        assert info is not None
        self.buffer.open(info)

    def snapshot(self) -> Snapshot:
        return self.buffer.snapshot()


async def eventually(condition: Callable[[], Any], *, timeout_s: float = 20.0) -> Any:
    """Wait until `condition` (plain or a coroutine function) is true, and return what it gave."""
    async with asyncio.timeout(timeout_s):
        while True:
            result = condition()
            if asyncio.iscoroutine(result):
                result = await result
            if result:
                return result
            await asyncio.sleep(0.02)
