"""Other people's detectors over real DDS: whatever their type, what they see is answered."""

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from mcp.client import Client
from pydantic import SecretStr

from brain import SECRET, Brain
from interfaces_env import DEFINITIONS, add
from look_alikes import LOOKS, crowd, hypothesis, solid, xyz, yolo
from mcp_perception_buffer.buffer import Buffer
from mcp_perception_buffer.component import Component
from mcp_perception_buffer.decoding.decoder import Decoder
from mcp_perception_buffer.sources import ros_types
from processes import (
    Publisher,
    Service,
    ask,
    fresh_domain,
    node,
    publisher,
    serve,
    service,
    serving_at,
)
from support import definition, eventually, filled, serialise, stream

pytestmark = [pytest.mark.ros, pytest.mark.asyncio(loop_scope="module")]
pytest.importorskip("rclpy", reason="run with --extra ros")


def spec(topic: str, look: str, **options: Any) -> dict[str, Any]:
    """A publisher of one of the looks, with fields of its own if they are given."""
    known = LOOKS[look]
    return {"topic": topic, "type": known.type, "fields": known.fields, "rate": 4, **options}


def sees(topic: str, *found: dict[str, Any], **options: Any) -> dict[str, Any]:
    return spec(topic, "yolo_msgs", fields={"detections": list(found)}, **options)


# Each test has topics of its own, so that none waits for another's.
PUBLISHED = [
    *(spec(f"/looks/{name}", name) for name in LOOKS),
    spec("/named/detections", "array_2d"),
    spec("/nobody/detections", "array_2d"),
    spec("/double/first", "array_2d"),
    spec("/double/second", "array_2d"),
    spec("/slow/detections", "array_2d", rate=0.2),
    sees("/yolo/detections", yolo("bottle", 0.75)),
    sees("/yolo/tracking", yolo("bottle", 0.75, "7")),
    sees("/r1/yolo/detections", yolo("cup", 0.75)),
    sees("/r2/yolo/detections", yolo("dog", 0.75)),
    # The driver of OAK cameras puts a box in pixels into a type for boxes in space.
    spec(
        "/oak/nn/spatial_detections",
        "array_3d",
        fields={
            "detections": [
                {
                    "results": [hypothesis("1", 0.75, xyz(-0.4, 0.1, 1.2))],
                    "bbox": solid(xyz(100, 50, 0), xyz(40, 20, 0.01)),
                }
            ]
        },
    ),
    spec("/zed/zed_node/obj_det/objects", "zed"),
    spec("/detections_output", "array_2d"),
    spec("/detectnet/detections", "array_2d"),
]
STREAMS = [
    *({"topic": f"/looks/{name}", "skill": name} for name in LOOKS),
    {"topic": "/named/detections", "skill": "named", "labels": "coco80"},
    {"topic": "/double/first", "skill": "double"},
    {"topic": "/double/second", "skill": "double"},
    {"topic": "/slow/detections", "skill": "slow"},
    {"topic": "/both/detections", "skill": "both"},
    {"topic": "/foreign/detections", "skill": "foreign"},
    {"topic": "/yolo/detections", "skill": "yolo"},
    {"topic": "/yolo/tracking", "skill": "yolo/tracking"},
    {"topic": "/*/yolo/detections", "skill": "yolo"},
]
WATCH = {
    "skill_id": "somebody",
    "skill": "yolo",
    "condition": "somebody is there",
    "watch": {"detections": {"label": "person"}},
}


class World(NamedTuple):
    """All these detectors, and a service that has their topics mapped."""

    domain: str
    robot: Publisher  # of what stands above
    other: Publisher  # of nothing yet
    service: Service
    brain: Brain

    async def detections(self, skill: str) -> list[dict[str, Any]]:
        return await fresh(self.service.ask, skill)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(robot_interfaces: None) -> AsyncIterator[World]:
    domain = fresh_domain()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("ROS_DOMAIN_ID", domain)
        target = "mcp_perception_buffer.tasks.static.StaticTaskSource"
        async with (
            Brain() as brain,
            node(domain, *PUBLISHED) as robot,
            node(domain) as other,
            service(
                streams=STREAMS,
                tasks=Component.of(target, tasks=[WATCH]),
                callback_url=brain.url,
                event_secret=SecretStr(SECRET),
            ) as running,
        ):
            yield World(domain, robot, other, running, brain)


async def fresh(asked: Callable[..., Awaitable[Any]], skill: str) -> list[dict[str, Any]]:
    """What `get_latest` has of a skill, as soon as that is fresh."""

    async def is_fresh() -> bool:
        skills = (await asked("what_do_you_see"))["skills"]
        return bool(skills.get(skill, {}).get("state") == "fresh")

    await eventually(is_fresh, timeout_s=30)
    found: list[dict[str, Any]] = (await asked("get_latest", skill=skill))["detections"]
    return found


def row(found: dict[str, Any]) -> list[Any]:
    """One detection as one list, to be compared within the precision of a float32."""
    box, point = found["box"] or {}, found["point"] or {}
    sides = [box.get(side) for side in ("x", "y", "width", "height")]
    return [found["label"], found["track_id"], found["score"], *sides, *map(point.get, "xyz")]


# --- types --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LOOKS)
async def test_each_type_of_public_detectors_is_read(world: World, name: str) -> None:
    found = await world.detections(name)
    assert len(found) == len(LOOKS[name].found)
    for one, expected in zip(found, LOOKS[name].found, strict=True):
        assert row(one) == pytest.approx(row(expected))


async def test_digits_for_a_class_are_named_where_there_are_labels(world: World) -> None:
    assert [one["label"] for one in await world.detections("named")] == ["bicycle", "cat"]
    assert [one["label"] for one in await world.detections("array_2d")] == ["class 1", "cat"]


async def test_an_empty_id_is_no_track(world: World) -> None:
    assert [one["track_id"] for one in await world.detections("yolo")] == [None]
    assert [one["track_id"] for one in await world.detections("yolo/tracking")] == ["7"]


async def test_of_positions_the_origin_alone_is_none_and_the_frame_is_kept(world: World) -> None:
    first, second = await world.detections("depthai")
    assert first["point"] is None
    assert [second["point"][axis] for axis in "xyz"] == [-0.4, 0.1, 1.2]
    view = world.service.buffer.find("depthai", "detections")
    assert view is not None
    assert view.observation is not None
    assert view.observation.frame_id == "oak_rgb_camera_optical_frame"


async def test_masks_beside_a_nested_list_are_seen_and_not_copied(world: World) -> None:
    await world.detections("ultralytics")
    [seen] = world.service.buffer.recent("/looks/ultralytics", 1)
    assert [found.has_mask for found in seen.detections] == [True, False]
    width, height, count = 320, 240, 8
    mask = {"height": height, "width": width, "step": width, "data": bytes(width * height)}
    type_name = LOOKS["ultralytics"].type
    fields = {**crowd("ultralytics", count), "masks": [mask] * count}
    cdr = serialise(filled(type_name, fields))
    info = stream("detections", type_name)
    buffer = Buffer(Decoder(definition).decode)
    buffer.open(info)
    buffer.put(info.topic, cdr, 0)  # all that is made once is made
    tracemalloc.start()
    try:
        buffer.put(info.topic, bytes(memoryview(cdr)), 1)
        kept, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    [newest] = buffer.recent(info.topic, 1)
    assert [found.has_mask for found in newest.detections] == [True] * count
    assert kept < len(cdr) / 10
    assert most < len(cdr) * 1.1  # the message itself, as it came


# --- topics -------------------------------------------------------------------------------------


async def test_robots_under_namespaces_are_told_apart(world: World) -> None:
    assert [one["label"] for one in await world.detections("r1/yolo")] == ["cup"]
    assert [one["label"] for one in await world.detections("r2/yolo")] == ["dog"]


async def test_a_watch_on_a_mapped_skill_fires(world: World) -> None:
    await world.detections("yolo")
    await world.robot.say(
        "open", json.dumps(sees("/yolo/detections", yolo("person", 0.5), yolo("bottle", 0.75)))
    )
    await world.brain.hears(1)
    event = world.brain.accepted[0]
    assert event.body["task_id"] == "somebody"
    assert (event.payload["skill"], event.payload["value"]) == ("yolo", True)
    assert world.brain.refused == []


async def test_best_effort_and_reliable_detectors_on_one_topic_are_both_received(
    world: World,
) -> None:
    topic = "/both/detections"

    async def hears(label: str) -> None:
        def heard() -> bool:
            seen = world.service.buffer.recent(topic, 1)
            return [found.label for one in seen for found in one.detections] == [label]

        await eventually(heard)

    await world.robot.say("open", json.dumps(sees(topic, yolo("first", 0.5), reliable=False)))
    await hears("first")
    await world.other.say("open", json.dumps(sees(topic, yolo("second", 0.5))))
    await hears("second")
    await hears("first")
    assert (await world.service.stream(topic))["publishers"] == 2


async def test_of_two_topics_for_one_skill_the_second_is_unsupported_with_what_to_do(
    world: World,
) -> None:
    await world.detections("double")

    async def told() -> str:
        unsupported = (await world.service.ask("list_streams"))["unsupported"]
        reasons = (u["reason"] for u in unsupported if u["topic"] == "/double/second")
        return next(reasons, "")

    reason = await eventually(told)
    assert "/double/first" in reason
    assert "skill" in reason
    assert not await world.service.stream("/double/second")


async def test_a_detector_that_is_not_mapped_is_told_with_the_line_to_paste(world: World) -> None:
    def advice() -> str:
        unmapped = world.service.buffer.unmapped
        return next((u.advice for u in unmapped if u.topic == "/nobody/detections"), "")

    told = await eventually(advice)
    assert "add to streams: - {topic: /nobody/detections, skill: nobody}" in told
    assert "serve streams=auto" in told


FOREIGN = """
import sys
from dataclasses import dataclass
from cyclonedds.domain import DomainParticipant
from cyclonedds.idl import IdlStruct
from cyclonedds.pub import DataWriter
from cyclonedds.topic import Topic

@dataclass
class Detections_(IdlStruct, typename="foreign_msgs::msg::dds_::DetectionArray_"):
    data: str

participant = DomainParticipant(int(sys.argv[1]))
names = "rt/foreign/detections", "rt/elsewhere/detections"
writers = [DataWriter(participant, Topic(participant, name, Detections_)) for name in names]
print("ready", flush=True)
sys.stdin.read()
"""


async def test_a_type_that_is_not_installed_is_told_with_how_to_install_it(world: World) -> None:
    pytest.importorskip("cyclonedds", reason="has no wheel for this machine")

    async def reason() -> str:
        unsupported = (await world.service.ask("list_streams"))["unsupported"]
        reasons = (u["reason"] for u in unsupported if u["topic"] == "/foreign/detections")
        return next(reasons, "")

    def advice() -> str:
        unmapped = world.service.buffer.unmapped
        return next((u.advice for u in unmapped if u.topic == "/elsewhere/detections"), "")

    async with publisher(world.domain, domain=world.domain, code=FOREIGN):
        for told in (await eventually(reason), await eventually(advice)):
            assert "foreign_msgs/msg/DetectionArray" in told
            assert "mcp-perception-buffer interfaces add FOLDER" in told
        assert "{topic: /elsewhere/detections, skill: elsewhere}" in advice()


# --- auto and presets ---------------------------------------------------------------------------


async def test_auto_finds_what_appears_later_and_what_is_installed_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = ros_types._installed
    hide = lambda name, suffix: () if "team_msgs" in name else found(name, suffix)  # noqa: E731
    monkeypatch.setattr(ros_types, "_installed", hide)
    monkeypatch.setattr("mcp_perception_buffer.sources.ros.RECOUNT_INTERVAL_S", 0.2)
    topic, home_made = "/late/detector/detections", "looks/team_turned"
    async with service(streams="auto", reconcile_interval_s=0.2) as running:
        assert [one["label"] for one in await fresh(running.ask, "r1/yolo")] == ["cup"]
        await world.other.say("open", json.dumps(sees(topic, yolo("cat", 0.75))))
        assert [one["label"] for one in await fresh(running.ask, "late/detector")] == ["cat"]
        assert running.buffer.find(home_made, "detections") is None
        assert "interfaces add" in next(
            u.advice for u in running.buffer.unmapped if u.topic == f"/{home_made}"
        )
        monkeypatch.setattr(ros_types, "_installed", found)
        assert [one["label"] for one in await fresh(running.ask, home_made)] == ["cup"]


# The two lines of each common detector: what is added, and what is served.
PRESETS = {
    "yolo_ros": (["yolo_msgs"], [], "yolo/tracking", "bottle"),
    "depthai": (["vision_msgs"], ["labels=coco80"], "oak/nn", "bicycle"),
    "zed": (["zed_msgs"], [], "zed/objects", "Person"),
    "isaac_ros": (["vision_msgs"], ["labels=coco80"], "isaac", "bicycle"),
    "detectnet": (["vision_msgs"], ["labels=labels.txt"], "detectnet", "plate"),
    "auto": (["vision_msgs", "ultralytics_ros"], [], "looks/ultralytics", "class 1"),
}


@pytest.mark.parametrize("preset", PRESETS)
async def test_two_commands_are_all_that_a_common_detector_needs(
    world: World, preset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages, words, skill, label = PRESETS[preset]
    done = await asyncio.to_thread(add, *(DEFINITIONS / name for name in packages))
    assert done.returncode == 0, done.stderr
    (tmp_path / "labels.txt").write_text("cup\nplate\n")
    monkeypatch.chdir(tmp_path)
    async with (
        serve(f"streams={preset}", *words, ROS_DOMAIN_ID=world.domain) as process,
        Client(await serving_at(process)) as client,
    ):
        found = await fresh(partial(ask, client), skill)
        assert found[0]["label"] == label


# --- time, last since it takes some -------------------------------------------------------------


async def test_a_detector_that_speaks_every_five_seconds_is_answered_at_once(world: World) -> None:
    def slow() -> Any:
        view = world.service.buffer.find("slow", "detections")
        return view if view and view.observation else None

    received = (await eventually(slow)).received
    latest = await world.service.ask("get_latest", skill="slow")
    assert [one["label"] for one in latest["detections"]] == ["class 1", "cat"]
    assert slow().age_s >= 0
    await eventually(lambda: slow().received > received)
