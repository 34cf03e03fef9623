"""A recorded bag, and the settings that serve it: the whole service, without ROS."""

from pathlib import Path

from rosbags.rosbag2 import Writer

from support import STAMPED_STRING, STORE, stamped_string


def record(path: Path) -> list[str]:
    """Write a bag in which there is a cup, and return the settings that play it."""
    with Writer(path, version=9) as writer:
        connection = writer.add_connection(
            "/vision/describe/scene", STAMPED_STRING, typestore=STORE
        )
        for i in range(5):
            writer.write(connection, 1_000_000_000 + i * 20_000_000, stamped_string("a cup"))
    return ["source=bag", f"source.path={path}", "tasks=static"]
