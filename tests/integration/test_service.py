"""The main job on real ROS 2: a publisher in another process, the real app, the official client."""

import signal
from collections.abc import Callable
from typing import Any, Literal

import httpx2 as httpx
import pytest
from mcp.client import Client
from mcp.client.sse import sse_client

from processes import Service, ask, publisher, service
from support import eventually

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy", reason="run with --extra ros")

DETECTIONS = "/vision/find_object/detections"


async def listed(running: Service) -> dict[str, str]:
    streams = (await running.ask("list_streams"))["streams"]
    return {stream["topic"]: stream["state"] for stream in streams}


def all_fresh(running: Service, count: int = 6) -> Callable[[], Any]:
    async def check() -> bool:
        states = await listed(running)
        return len(states) == count and set(states.values()) == {"fresh"}

    return check


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("path", ["/mcp", "/mcp/", "/sse"])
async def test_a_brain_is_told_what_is_seen_over_every_transport(
    running: Service, domain: str, path: str, mode: Literal["auto", "legacy"]
) -> None:
    async with publisher(domain=domain):
        await eventually(all_fresh(running))
        url = running.url + path
        async with Client(sse_client(url) if path == "/sse" else url, mode=mode) as client:
            scene = await ask(client, "what_do_you_see")
    found = scene["skills"]["find_object"]["detections"]
    assert [one["label"] for one in found["best"]] == ["cup", "plate"]
    assert found["age_s"] < 1.0
    assert scene["skills"]["describe_scene"]["outputs"]["scene"]["value"] == (
        "a cup and a plate on a table"
    )
    assert scene["camera"]["alive"]


async def test_detections_carry_a_mask_reference_and_never_pixels(
    running: Service, domain: str
) -> None:
    async with publisher("--mask", "640x480", domain=domain):
        await eventually(all_fresh(running))
        async with running.client() as client:
            result = await client.call_tool("get_latest", {"skill": "find_object"})
            overlay = await ask(client, "get_overlay_ref", skill="find_object")
    assert len(result.model_dump_json()) < 5000
    latest = result.structured_content
    assert latest is not None
    assert latest["detections"][0]["mask_ref"] == {"topic": DETECTIONS, "stamp": latest["stamp"]}
    assert latest["stamp"]["sec"] > 1_700_000_000
    assert overlay["topic"] == "/vision/find_object/overlay"


async def test_a_new_topic_is_subscribed_to_and_a_silent_one_leaves_the_list(
    running: Service, domain: str
) -> None:
    async with publisher(domain=domain) as vision:
        await eventually(all_fresh(running))
        await vision.say("/vision/late_skill/answer", "[1, 2]")

        async def answered() -> bool:
            skills = (await running.ask("what_do_you_see"))["skills"]
            return "late_skill" in skills and bool(skills["late_skill"]["outputs"])

        await eventually(answered)
        assert vision.process.returncode is None
    # Its subscriptions end with the publisher; what it said stays named as silent.
    await eventually(lambda: _is_silent(running, DETECTIONS))
    assert DETECTIONS not in await listed(running)


async def _is_silent(running: Service, topic: str) -> bool:
    return topic in (await running.ask("list_streams"))["silent"]


async def test_a_killed_vision_node_turns_stale_and_its_restart_fresh(
    running: Service, domain: str
) -> None:
    async with publisher(domain=domain) as first:
        await eventually(all_fresh(running))
        await first.end(signal.SIGKILL)

        async def flagged() -> bool:
            scene = await running.ask("what_do_you_see")
            skills = scene["skills"].values()
            outputs = [o for skill in skills for o in skill["outputs"].values()]
            return len(outputs) == 3 and all(output["stale"] for output in outputs)

        await eventually(flagged)
        assert (await listed(running)) == {}
    async with publisher(domain=domain):
        await eventually(all_fresh(running))


async def test_without_a_vision_node_the_service_says_so(running: Service) -> None:
    first = await running.ask("list_streams")
    assert (first["streams"], first["discovering"]) == ([], True)
    assert "discovering" in await running.read("what_do_you_see")

    async def certain() -> bool:
        return not (await running.ask("list_streams"))["discovering"]

    await eventually(certain)
    assert "Nothing is being published" in await running.read("what_do_you_see")
    async with httpx.AsyncClient(base_url=running.url) as http:
        health = await http.get("/healthz")
        assert (health.status_code, health.json()["status"]) == (200, "degraded")
        assert "nothing is being published" in health.json()["reasons"]


async def test_probes_answer_any_host_and_tell_nothing_private(
    running: Service, domain: str
) -> None:
    async with publisher(domain=domain), httpx.AsyncClient(base_url=running.url) as http:
        await eventually(all_fresh(running))
        for path in ("/healthz", "/livez", "/readyz"):
            answer = await http.get(path, headers={"Host": "probe.example:1"})
            assert answer.status_code == 200
            assert "vision" not in answer.text
            assert "/" not in answer.text


BAD_PUBLISHER = """
import time, rclpy
from std_msgs.msg import String
from sensor_msgs.msg import Image
from geometry_msgs.msg import Point
rclpy.init()
node = rclpy.create_node("bad")
text = node.create_publisher(String, "/vision/mixed/text", 10)
wrong = node.create_publisher(String, "/vision/mixed/detections", 10)
point = node.create_publisher(Point, "/vision/mixed/where", 10)
print("ready", flush=True)
while True:
    text.publish(String(data="still here"))
    wrong.publish(String(data="not detections"))
    point.publish(Point())
    time.sleep(0.05)
"""


async def test_what_cannot_be_read_is_listed_and_costs_nothing_else(
    running: Service, domain: str
) -> None:
    async with publisher(code=BAD_PUBLISHER, domain=domain), publisher(domain=domain):
        await eventually(all_fresh(running, 7))
        listing = await running.ask("list_streams")
    reasons = {entry["topic"]: entry["reason"] for entry in listing["unsupported"]}
    assert reasons.keys() == {"/vision/mixed/detections", "/vision/mixed/where"}
    assert "no detections found in std_msgs/msg/String" in reasons["/vision/mixed/detections"]


async def test_the_application_starts_again_in_the_same_process(domain: str) -> None:
    async with publisher(domain=domain):
        for _ in range(2):
            async with service() as running:
                await eventually(all_fresh(running))


async def test_publishers_of_any_quality_of_service_are_received(
    running: Service, domain: str
) -> None:
    async with publisher("--best-effort", domain=domain) as first:
        await eventually(all_fresh(running))
        await first.end()
    async with publisher("--latched", domain=domain):
        await eventually(all_fresh(running))
