"""A recorded bag through the whole service, without ROS."""

from pathlib import Path
from typing import Any

import pytest
from rosbags.rosbag2 import Writer
from rosbags.rosbag2.enums import StoragePlugin

from mcp_perception_buffer.component import Component
from mcp_perception_buffer.errors import UnavailableError
from mcp_perception_buffer.server import running
from mcp_perception_buffer.settings import Settings
from processes import ask, service
from support import (
    DETECTIONS,
    IMAGE,
    STAMPED_STRING,
    STORE,
    detection,
    detections,
    eventually,
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


@pytest.fixture(params=[StoragePlugin.SQLITE3, StoragePlugin.MCAP])
def bag(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "bag"
    with Writer(path, version=9, storage_plugin=request.param) as writer:
        for topic, type_name, cdr in RECORDED:
            connection = writer.add_connection(topic, type_name, typestore=STORE)
            for i in range(5):
                writer.write(connection, 1_000_000_000 + i * 20_000_000, cdr)
    return path


def playing(bag: Path, **options: Any) -> dict[str, Any]:
    return {
        "source": Component.of("mcp_perception_buffer.sources.bag.BagSource", path=bag, **options),
        "tasks": Component.of("mcp_perception_buffer.tasks.static.StaticTaskSource", tasks=[]),
    }


async def test_a_bag_is_answered_from_like_a_live_robot(bag: Path) -> None:
    async with service(**playing(bag)) as serving, serving.client() as client:

        async def seen() -> Any:
            scene = await ask(client, "what_do_you_see")
            complete = len(scene["skills"]) == 2 and scene["camera"]["alive"]
            return scene if complete and scene["skills"]["find_object"]["overlay_ref"] else None

        scene = await eventually(seen)
        listing = await ask(client, "list_streams")
    found = scene["skills"]["find_object"]["detections"]
    assert found["counts"] == {"cup": 1}
    assert scene["skills"]["describe"]["outputs"]["scene"]["value"] == "a cup"
    assert listing["discovering"] is False
    assert [entry["topic"] for entry in listing["unsupported"]] == ["/vision/odd/where"]


async def test_an_ended_bag_leaves_its_last_values_marked_gone(bag: Path) -> None:
    async with service(**playing(bag, loop=False)) as serving, serving.client() as client:

        async def over() -> bool:
            skills = (await ask(client, "what_do_you_see"))["skills"].values()
            return bool(skills) and all(skill["state"] == "gone" for skill in skills)

        await eventually(over)
        latest = await ask(client, "get_latest", skill="find_object")
    assert latest["stale"]
    assert latest["detections"][0]["label"] == "cup"


async def test_a_bag_with_next_to_nothing_in_it_leaves_the_loop_its_time(tmp_path: Path) -> None:
    with Writer(tmp_path / "bag", version=9) as writer:
        writer.add_connection("/vision/a/text", STAMPED_STRING, typestore=STORE)
        other = writer.add_connection("/elsewhere/text", STAMPED_STRING, typestore=STORE)
        writer.write(other, 1_000_000_000, stamped_string("not wanted"))
    async with service(**playing(tmp_path / "bag")) as serving, serving.client() as client:
        listing = await ask(client, "list_streams")
    assert [stream["state"] for stream in listing["streams"]] == ["never"]


async def test_a_bag_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="nothing_here cannot be read"):
        async with running(Settings(**playing(tmp_path / "nothing_here")), lambda: None):
            pass
