"""A recorded bag through the whole service, without ROS."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from rosbags.rosbag2 import Writer
from rosbags.rosbag2.enums import StoragePlugin
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from bag_scenes import BOXES, RECORDED, boxes, gone, playing, write
from mcp_perception_buffer.errors import ConfigError
from mcp_perception_buffer.server import running
from mcp_perception_buffer.settings import Settings, load_settings
from processes import ask, service
from support import (
    DETECTIONS,
    IMAGE,
    STAMPED_STRING,
    STORE,
    detection,
    detections,
    eventually,
    filled,
    image,
    serialise,
    stamped_string,
)


@pytest.fixture(params=[StoragePlugin.SQLITE3, StoragePlugin.MCAP])
def bag(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write(tmp_path / "bag", *RECORDED, plugin=request.param)


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


async def test_one_file_of_a_bag_is_enough(bag: Path) -> None:
    [file] = (path for path in bag.iterdir() if path.suffix != ".yaml")
    async with service(**playing(file, loop=False)) as serving:
        await eventually(gone(serving, "/vision/describe/scene"))
        scene = await serving.ask("what_do_you_see")
    assert set(scene["skills"]) == {"describe", "find_object"}


# --- what is played, and when -------------------------------------------------------------------


def write_text(path: Path, *seconds: float) -> Path:
    """One text at each of these times."""
    with Writer(path, version=9) as writer:
        connection = writer.add_connection("/vision/a/text", STAMPED_STRING, typestore=STORE)
        for second in seconds:
            writer.write(connection, int((100 + second) * 1e9), stamped_string(f"at {second:g}"))
    return path


async def test_an_hour_is_over_soon_when_it_is_played_fast_enough(tmp_path: Path) -> None:
    bag = write_text(tmp_path / "bag", 0, 3600)
    async with service(**playing(bag, loop=False, rate=100_000)) as serving:
        await eventually(gone(serving, "/vision/a/text"))
        latest = await serving.ask("get_latest", skill="a")
    assert latest["outputs"]["text"]["value"] == "at 3600"


async def test_what_is_before_the_start_is_never_seen_in_no_round(tmp_path: Path) -> None:
    bag = write_text(tmp_path / "bag", 0, 1, 3600, 3600.1)
    async with service(**playing(bag, start=3600)) as serving:
        await eventually(lambda: len(serving.buffer.recent("/vision/a/text", 4)) == 4)
        seen = serving.buffer.recent("/vision/a/text", 4)
    assert [observation.value for observation in seen] == ["at 3600", "at 3600.1"] * 2


async def test_a_start_past_the_end_is_told(tmp_path: Path) -> None:
    bag = write_text(tmp_path / "bag", 0, 2)
    with pytest.raises(ConfigError, match=r"source.start = 3: past the end .* lasts 2.0 s"):
        async with running(Settings(**playing(bag, start=3)), lambda: None):
            pass


@pytest.mark.parametrize("word", ["rate=0", "rate=-1", "rate=.inf", "rate=fast", "start=-1"])
def test_a_rate_or_start_that_is_none_is_told(word: str) -> None:
    key = word.partition("=")[0]
    with pytest.raises(ConfigError, match=rf"source\.{key} = .*\.yaml"):
        load_settings(["source=bag", "source.path=bag", f"source.{word}"])


# --- what is read of it -------------------------------------------------------------------------


async def test_a_bag_without_any_topic_that_is_wanted_says_which_could_be(tmp_path: Path) -> None:
    bag = write(tmp_path / "bag", ("/front/objects", BOXES, boxes()))
    async with service(**playing(bag)) as serving:
        listing = await serving.ask("list_streams")
        [missed] = serving.buffer.unmapped
    assert listing["streams"] == []
    assert "{topic: /front/objects, skill: front}" in missed.advice


async def test_of_two_topics_for_one_output_the_first_is_read_and_the_other_told(
    tmp_path: Path,
) -> None:
    names = ("/front/detections", "/front/objects")
    bag = write(tmp_path / "bag", *((name, BOXES, boxes()) for name in names))
    async with service(**playing(bag), streams="auto") as serving:
        listing = await serving.ask("list_streams")
    [entry] = listing["unsupported"]
    assert entry["topic"] == "/front/objects"
    assert "come from /front/detections already" in entry["reason"]
    assert "{topic: /front/objects, skill: NAME}" in entry["reason"]


async def test_of_two_types_on_one_topic_one_is_read_and_the_other_told(tmp_path: Path) -> None:
    topic = "/vision/a/detections"
    mixed = (topic, BOXES, boxes()), (topic, DETECTIONS, detections(detection()))
    async with service(**playing(write(tmp_path / "bag", *mixed), loop=False)) as serving:
        await eventually(gone(serving, topic))
        [entry] = (await serving.ask("list_streams"))["unsupported"]
        view = serving.buffer.view(topic)
    assert (entry["type"], entry["reason"]) == (
        BOXES,
        f"conflict: {DETECTIONS} is read from this topic",
    )
    assert view is not None
    assert (view.received, view.undecodable) == (5, 0)


def without_definitions(bag: Path, *, type_name: str) -> Path:
    """As ROS 2 recorded it before Iron; what had the type `BOXES` has the other one."""
    [file] = bag.glob("*.db3")
    with sqlite3.connect(file) as database:
        database.execute("DELETE FROM message_definitions")
        database.execute("UPDATE topics SET type = ? WHERE type = ?", (type_name, BOXES))
    database.close()
    metadata = bag / "metadata.yaml"
    metadata.write_text(metadata.read_text().replace(BOXES, type_name))
    return bag


async def test_a_bag_without_definitions_is_read_as_far_as_its_types_are_known_here(
    tmp_path: Path,
) -> None:
    recorded = (
        ("/camera/image_raw", IMAGE, serialise(image(64, 48))),
        ("/vision/a/text", "std_msgs/msg/String", serialise(filled("std_msgs/msg/String"))),
        ("/vision/b/detections", BOXES, boxes()),
    )
    bag = write(tmp_path / "bag", *recorded, plugin=StoragePlugin.SQLITE3)
    without_definitions(bag, type_name="nowhere_msgs/msg/Boxes")
    async with service(**playing(bag, loop=False)) as serving:
        await eventually(gone(serving, "/vision/a/text"))
        scene = await serving.ask("what_do_you_see")
        [entry] = (await serving.ask("list_streams"))["unsupported"]
        camera = serving.buffer.view("/camera/image_raw")
    assert set(scene["skills"]) == {"a"}
    assert camera is not None
    assert camera.undecodable == 0
    assert "defines nowhere_msgs/msg/Boxes" in entry["reason"]
    assert "install the package nowhere_msgs" in entry["reason"]


DIVIDER = "=" * 80
AS_MSG = f"""Box[] boxes
{DIVIDER}
MSG: idl_msgs/Box
string label
float32 score
int32 xmin
int32 ymin
int32 xmax
int32 ymax
"""
AS_IDL = f"""{DIVIDER}
IDL: idl_msgs/msg/Box
module idl_msgs {{ module msg {{
  struct Box {{ string label; float score; long xmin; long ymin; long xmax; long ymax; }};
}}; }};
{DIVIDER}
IDL: idl_msgs/msg/Boxes
module idl_msgs {{ module msg {{ struct Boxes {{ sequence<idl_msgs::msg::Box> boxes; }}; }}; }};
"""


async def test_a_definition_in_idl_is_read_and_a_broken_one_costs_its_own_topic_alone(
    tmp_path: Path,
) -> None:
    definitions = {
        "broken_msgs/msg/Boxes": "float32 1x",
        "idl_msgs/msg/Boxes": AS_IDL,
    }
    store = get_typestore(Stores.EMPTY)
    store.register(get_types_from_msg(AS_MSG, "idl_msgs/msg/Boxes"))
    box = {"label": "cup", "score": 0.5, "xmax": 4, "ymax": 3}
    message = filled("idl_msgs/msg/Boxes", {"boxes": [box]}, store)
    with Writer(tmp_path / "bag", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        for type_name, text in definitions.items():
            topic = f"/vision/{type_name.partition('/')[0]}/detections"
            connection = writer.add_connection(topic, type_name, msgdef=text, rihs01="RIHS01_0")
            cdr = store.serialize_cdr(message, "idl_msgs/msg/Boxes")
            writer.write(connection, 1_000_000_000, cdr)
    async with service(**playing(tmp_path / "bag", loop=False)) as serving:
        await eventually(gone(serving, "/vision/idl_msgs/detections"))
        latest = await serving.ask("get_latest", skill="idl_msgs")
        listing = await serving.ask("list_streams")
    [found] = latest["detections"]
    assert (found["label"], found["box"]["width"]) == ("cup", 4)
    [broken] = listing["unsupported"]
    assert "the definition of broken_msgs/msg/Boxes cannot be used" in broken["reason"]
