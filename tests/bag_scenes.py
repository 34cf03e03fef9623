"""Bags made for a test, and the settings that play one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rosbags.rosbag2 import Writer
from rosbags.rosbag2.enums import StoragePlugin

from mcp_perception_buffer.component import Component
from processes import Service
from support import (
    DETECTIONS,
    IMAGE,
    STAMPED_STRING,
    STORE,
    detection,
    detections,
    filled,
    image,
    serialise,
    stamped_string,
)

RECORDED = [
    ("/vision/find_object/detections", DETECTIONS, detections(detection(mask=(64, 48)))),
    ("/vision/find_object/overlay", IMAGE, serialise(image(64, 48))),
    ("/vision/describe/scene", STAMPED_STRING, stamped_string("a cup")),
    ("/camera/image_raw", IMAGE, serialise(image(64, 48))),
    ("/elsewhere/text", STAMPED_STRING, stamped_string("not wanted")),
    ("/vision/odd/where", "geometry_msgs/msg/Point", bytes(28)),
]
BOXES = "team_msgs/msg/Boxes"
ONE_BOX = {"boxes": [{"class_name": "cup", "confidence": 0.5, "xmax": 4, "ymax": 3}]}


def boxes() -> bytes:
    return serialise(filled(BOXES, ONE_BOX))


def write(
    path: Path, *recorded: tuple[str, str, bytes], plugin: StoragePlugin = StoragePlugin.MCAP
) -> Path:
    """Five messages a topic, 20 ms from one to the next."""
    with Writer(path, version=9, storage_plugin=plugin) as writer:
        for topic, type_name, cdr in recorded:
            connection = writer.add_connection(topic, type_name, typestore=STORE)
            for i in range(5):
                writer.write(connection, 1_000_000_000 + i * 20_000_000, cdr)
    return path


def playing(bag: Path, **options: Any) -> dict[str, Any]:
    return {
        "source": Component.of("mcp_perception_buffer.sources.bag.BagSource", path=bag, **options),
        "tasks": Component.of("mcp_perception_buffer.tasks.static.StaticTaskSource", tasks=[]),
    }


def gone(serving: Service, topic: str) -> Callable[[], bool]:
    def check() -> bool:
        view = serving.buffer.view(topic)
        return view is not None and view.state == "gone"

    return check
