"""Bags of detectors' messages with exactly known content, written without ROS.

`python -m mcp_perception_buffer.sim.bags FOLDER --shape yolo --definitions tests/interfaces`: what
yolo_ros or an OAK camera would publish while a person walks by, a cup stands and a dog comes and
goes.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rosbags.rosbag2 import StoragePlugin, Writer, WriterError

from mcp_perception_buffer.sim.messages import filled, read_definitions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rosbags.typesys.store import Typestore

    # Topic, type and nested plain values of a message.
    Published = tuple[str, str, dict[str, Any]]

BEGIN_NS = 1_796_083_200_000_000_000  # 1 December 2026
LASTS_S = 4
RATE_HZ = 10
WIDTH, HEIGHT, FOCAL_LENGTH = 640, 480, 500.0  # pixels


class Seen(NamedTuple):
    """One object: its class, its box and movement in pixels, and the time when it is in view."""

    label: str
    class_id: int  # as COCO has it
    score: float
    x: float  # of the top-left corner, at second 0
    y: float
    width: float
    height: float
    right_px_s: float = 0.0
    from_s: float = 0.0
    until_s: float = LASTS_S
    depth_m: float = 0.0  # 0: too near for its camera to tell

    def at(self, second: float) -> tuple[float, float]:
        """Return the centre in pixels."""
        x = self.x + self.right_px_s * second + self.width / 2
        return round(x, 3), self.y + self.height / 2


OBJECTS = (
    Seen("person", 0, 0.93, 40, 120, 80, 240, right_px_s=60, depth_m=2.5),
    Seen("dog", 16, 0.82, 400, 260, 140, 120, right_px_s=-40, from_s=1, until_s=3, depth_m=4.0),
    Seen("cup", 41, 0.71, 420, 300, 48, 64),
)


def in_view(second: float) -> Iterator[tuple[int, Seen]]:
    """Yield the objects that are seen then, each with its number, which is that of its track."""
    for number, seen in enumerate(OBJECTS, start=1):
        if seen.from_s <= second < seen.until_s:
            yield number, seen


def yolo(second: float, header: dict[str, Any]) -> Iterator[Published]:
    """Yield what yolo_ros publishes for one image: as detected, then the same with tracks."""
    header["frame_id"] = "camera_rgb_optical_frame"
    # Nobody reads pixels, so there are none.
    image = {"header": header, "width": WIDTH, "height": HEIGHT, "encoding": "rgb8"}
    yield "/camera/rgb/image_raw", "sensor_msgs/msg/Image", image
    for topic, tracked in (("/yolo/detections", False), ("/yolo/tracking", True)):
        now = in_view(second)
        found = [_yolo_detection(seen, second, number * tracked) for number, seen in now]
        yield topic, "yolo_msgs/msg/DetectionArray", {"header": header, "detections": found}


def _yolo_detection(seen: Seen, second: float, track: int) -> dict[str, Any]:
    x, y = seen.at(second)
    left, top = x - seen.width / 2, y - seen.height / 2
    corners = ((left, top), (left + seen.width, top), (x, top + seen.height))
    contour = [dict(zip("xy", corner, strict=True)) for corner in corners]
    return {
        "class_id": seen.class_id,
        "class_name": seen.label,
        "score": seen.score,
        "id": str(track or ""),
        "bbox": {
            "center": {"position": {"x": x, "y": y}},
            "size": {"x": seen.width, "y": seen.height},
        },
        "mask": {"width": WIDTH, "height": HEIGHT, "data": contour} if seen.class_id == 0 else {},
    }


def depthai(second: float, header: dict[str, Any]) -> Iterator[Published]:
    """Yield what an OAK camera publishes for one image: classes by number, and where they are."""
    header["frame_id"] = "oak_rgb_camera_optical_frame"
    info = {
        "header": header,
        "width": WIDTH,
        "height": HEIGHT,
        "distortion_model": "plumb_bob",
        "k": [FOCAL_LENGTH, 0, WIDTH / 2, 0, FOCAL_LENGTH, HEIGHT / 2, 0, 0, 1],
    }
    yield "/oak/rgb/camera_info", "sensor_msgs/msg/CameraInfo", info
    found = [_spatial_detection(seen, second) for _, seen in in_view(second)]
    yield (
        "/oak/nn/spatial_detections",
        "depthai_ros_msgs/msg/SpatialDetectionArray",
        {"header": header, "detections": found},
    )


def _spatial_detection(seen: Seen, second: float) -> dict[str, Any]:
    x, y = seen.at(second)
    metres = seen.depth_m / FOCAL_LENGTH  # a pixel
    return {
        "results": [{"class_id": str(seen.class_id), "score": seen.score}],
        "bbox": {
            "center": {"position": {"x": x, "y": y}},
            "size_x": seen.width,
            "size_y": seen.height,
        },
        "position": {
            "x": round((x - WIDTH / 2) * metres, 3),
            "y": round((y - HEIGHT / 2) * metres, 3),
            "z": seen.depth_m,
        },
    }


SHAPES: dict[str, tuple[Callable[[float, dict[str, Any]], Iterator[Published]], StoragePlugin]] = {
    "yolo": (yolo, StoragePlugin.MCAP),
    "depthai": (depthai, StoragePlugin.SQLITE3),
}


def published(shape: str, store: Typestore) -> Iterator[tuple[str, str, int, bytes]]:
    """Yield topic, type, time in nanoseconds and CDR bytes of all that a shape's bag holds.

    Raises:
        KeyError: a type is not defined in `store`.
    """
    for index in range(LASTS_S * RATE_HZ):
        stamp_ns = BEGIN_NS + index * 1_000_000_000 // RATE_HZ
        sec, nanosec = divmod(stamp_ns, 1_000_000_000)
        header = {"stamp": {"sec": sec, "nanosec": nanosec}}
        for topic, type_name, fields in SHAPES[shape][0](index / RATE_HZ, header):
            message = filled(type_name, fields, store)
            yield topic, type_name, stamp_ns, bytes(store.serialize_cdr(message, type_name))


def write_bag(folder: Path, shape: str, store: Typestore) -> None:
    """Write the bag of a shape into a folder that does not exist yet.

    Raises:
        WriterError: the folder exists.
        KeyError: a type is not defined in `store`; nothing is written.
    """
    messages = list(published(shape, store))
    with Writer(folder, version=9, storage_plugin=SHAPES[shape][1]) as writer:
        connections = {
            topic: writer.add_connection(topic, type_name, typestore=store)
            for topic, type_name in dict.fromkeys(message[:2] for message in messages)
        }
        for topic, _, stamp_ns, cdr in messages:
            writer.write(connections[topic], stamp_ns, cdr)


def main() -> None:
    """Write one bag."""
    parser = argparse.ArgumentParser(prog="mcp_perception_buffer.sim.bags", description=__doc__)
    parser.add_argument("folder", type=Path, help="is made")
    parser.add_argument("--shape", choices=SHAPES, required=True, help="whose messages")
    parser.add_argument(
        "--definitions", type=Path, required=True, help="has PACKAGE/msg/TYPE.msg of that detector"
    )
    options = parser.parse_args()
    try:
        write_bag(options.folder, options.shape, read_definitions(options.definitions))
    except WriterError as error:
        parser.error(str(error))
    except KeyError as error:
        parser.error(f"{options.definitions} does not define {error}")


if __name__ == "__main__":
    main()
