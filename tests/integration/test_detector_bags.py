"""Bags of other people's detectors, without ROS: over the official client, and in the demo."""

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from rosbags.rosbag2 import Reader

from bag_scenes import gone, playing
from mcp_perception_buffer.settings import load_settings
from mcp_perception_buffer.sim import bags
from processes import Service, service
from support import REPOSITORY, STORE, eventually

BAGS = REPOSITORY / "tests" / "bags"
YOLO, OAK = "/yolo/tracking", "/oak/nn/spatial_detections"
# Where the person has come to in the last image, and where the cup stands.
PERSON = {"x": 274, "y": 120, "width": 80, "height": 240}
CUP = {"x": 420, "y": 300, "width": 48, "height": 64}


@contextlib.asynccontextmanager
async def serving(name: str, *words: str, **options: Any) -> AsyncIterator[Service]:
    """Play a bag with the settings that these words on the command line give."""
    settings, _ = load_settings(words)
    async with service(**{**dict(settings), **playing(BAGS / name, **options)}) as running:
        yield running


async def last_seen(name: str, topic: str, skill: str, *words: str) -> Any:
    """What is known of a skill once its bag has been played to its end."""
    async with serving(name, *words, loop=False, rate=20) as running:
        await eventually(gone(running, topic))
        view = running.buffer.view(topic)
        assert view is not None
        assert (view.received, view.undecodable, view.dropped) == (40, 0, 0)
        return await running.ask("get_latest", skill=skill)


def recorded(bag: Path) -> tuple[set[tuple[str, str, str]], list[tuple[str, int, bytes]]]:
    with Reader(bag) as reader:
        known = {(c.topic, c.msgtype, c.msgdef.data) for c in reader.connections}
        return known, [(c.topic, stamp, bytes(cdr)) for c, stamp, cdr in reader.messages()]


@pytest.mark.parametrize("shape", bags.SHAPES)
def test_the_simulator_still_writes_the_bags_that_are_kept(shape: str, tmp_path: Path) -> None:
    bags.write_bag(tmp_path / "bag", shape, STORE)
    assert recorded(tmp_path / "bag") == recorded(BAGS / shape)


async def test_of_a_yolo_bag_names_boxes_masks_and_tracks_are_known_after_its_end() -> None:
    latest = await last_seen("yolo", YOLO, "yolo/tracking", "streams=yolo_ros")
    assert (latest["state"], latest["stale"]) == ("gone", True)
    assert latest["frame_id"] == "camera_rgb_optical_frame"
    person, cup = latest["detections"]
    assert (person["label"], person["score"], person["track_id"]) == ("person", 0.93, "1")
    assert (cup["label"], cup["score"], cup["track_id"]) == ("cup", 0.71, "3")
    assert (person["box"], cup["box"]) == (PERSON, CUP)
    assert person["mask_ref"]["topic"] == YOLO
    assert cup["mask_ref"] is None


async def test_what_is_detected_but_not_tracked_has_no_track() -> None:
    latest = await last_seen("yolo", "/yolo/detections", "yolo", "streams=yolo_ros")
    assert [found["track_id"] for found in latest["detections"]] == [None, None]


async def test_of_an_oak_bag_names_and_points_in_their_frame_are_known_after_its_end() -> None:
    latest = await last_seen("depthai", OAK, "oak/nn", "streams=depthai", "labels=coco80")
    assert (latest["state"], latest["stale"]) == ("gone", True)
    assert latest["frame_id"] == "oak_rgb_camera_optical_frame"
    person, cup = latest["detections"]
    assert (person["label"], person["score"], person["box"]) == ("person", 0.93, PERSON)
    assert person["point"] == {"x": -0.03, "y": 0, "z": 2.5}
    assert (cup["label"], cup["box"], cup["point"]) == ("cup", CUP, None)  # too near for depth


async def test_classes_without_names_are_told_by_their_numbers() -> None:
    latest = await last_seen("depthai", OAK, "oak/nn", "streams=depthai")
    assert [found["label"] for found in latest["detections"]] == ["class 0", "class 41"]


@pytest.mark.parametrize(
    ("name", "preset", "skill", "camera"),
    [
        ("yolo", "yolo_ros", "yolo/tracking", "/camera/rgb/image_raw"),
        ("depthai", "depthai", "oak/nn", "/oak/rgb/camera_info"),
    ],
)
async def test_while_a_bag_is_played_what_comes_and_goes_is_fresh_and_the_camera_is_alive(
    name: str, preset: str, skill: str, camera: str
) -> None:
    async with serving(name, f"streams={preset}", "labels=coco80", rate=4) as running:

        async def seen(labels: set[str]) -> Any:
            latest = await running.ask("get_latest", skill=skill)
            return {found["label"] for found in latest["detections"]} == labels and latest

        with_dog, without = {"person", "dog", "cup"}, {"person", "cup"}
        for labels in (with_dog, without, with_dog):  # it begins anew, too
            latest = await eventually(lambda labels=labels: seen(labels))
            assert (latest["state"], latest["stale"]) == ("fresh", False)
            assert 0 <= latest["age_s"] <= 5
        size = running.buffer.view(camera)
        scene = await running.ask("what_do_you_see")
    assert scene["camera"]["alive"]
    assert size is not None
    assert size.observation is not None
    assert size.observation.image == (640, 480)


async def test_only_what_follows_the_start_is_played() -> None:
    async with serving("yolo", "streams=yolo_ros", loop=False, rate=20, start=3.15) as running:
        await eventually(gone(running, YOLO))
        view = running.buffer.view(YOLO)
    assert view is not None
    assert view.received == 8  # of 3.2 to 3.9 s, at 10 Hz


@pytest.mark.parametrize(
    ("name", "skills"), [("yolo", {"yolo", "yolo/tracking"}), ("depthai", {"oak/nn"})]
)
async def test_every_detector_is_found_where_nothing_is_said_but_auto(
    name: str, skills: set[str]
) -> None:
    async with serving(name, "streams=auto", loop=False, rate=20) as running:
        await eventually(lambda: all(view.received for view in running.buffer.snapshot().streams))
        scene = await running.ask("what_do_you_see")
        unmapped = running.buffer.unmapped
    assert set(scene["skills"]) == skills
    assert unmapped == ()


async def test_without_any_setting_the_line_that_would_map_a_detector_is_known() -> None:
    async with serving("depthai") as running:
        [missed] = running.buffer.unmapped
    assert missed.topic == OAK
    assert "{topic: /oak/nn/spatial_detections, skill: oak/nn}" in missed.advice


# --- the demo -----------------------------------------------------------------------------------

# As where neither ROS nor the extra `demo` is installed.
BARE = """import sys
sys.modules |= dict.fromkeys(("rclpy", "ros2_vision_interfaces", "cv2", "skimage"))
from mcp_perception_buffer.cli import main
main()
"""


async def run_demo(*args: str, port: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", BARE, "demo", *args),
        env={**os.environ, "MCP_PORT": str(port)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@pytest.mark.parametrize(
    ("args", "port", "shown_at_last"),
    [
        ([BAGS / "yolo"], 19204, "yolo/tracking.*person"),
        ([BAGS / "depthai", "labels=coco80"], 19205, "oak/nn.*person"),
    ],
)
async def test_the_demo_shows_a_bag_without_ros_and_ends_with_ctrl_c(
    args: list[Any], port: int, shown_at_last: str
) -> None:
    process = await run_demo("--bag", *map(str, args), port=port)
    assert process.stdout is not None
    shown = ""
    try:
        async with asyncio.timeout(60):
            while not re.search(shown_at_last, shown, re.DOTALL):
                line = (await process.stdout.readline()).decode()
                assert line, "the demo ended by itself"
                shown += line
        process.send_signal(signal.SIGINT)
        _, err = await asyncio.wait_for(process.communicate(), 5)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    assert process.returncode == 0
    assert '{"mcpServers": {"perception": {"type": "http"' in shown
    assert b"Traceback" not in err


@pytest.mark.parametrize(
    ("args", "said", "code"),
    [
        (["--bag", "nowhere"], "the bag nowhere cannot be read: there is no such folder", 1),
        (["--bag", "nowhere", "--camera", "0"], "leave --camera out", 2),
        (["--bag", "nowhere", "source.rate=0"], "source.rate = 0", 2),
    ],
)
async def test_a_demo_that_cannot_be_shown_says_so_in_one_line(
    args: list[str], said: str, code: int
) -> None:
    process = await run_demo(*args, port=19206)
    _, err = await asyncio.wait_for(process.communicate(), 30)
    [line] = err.decode().splitlines()
    assert line.startswith("error: ")
    assert said in line
    assert process.returncode == code
