"""A simulation whose /clock runs, jumps and begins anew: what is seen stays as fresh as it is."""

import sys
from itertools import pairwise
from typing import Any

import httpx2 as httpx
import pytest

from processes import node, publisher, service
from support import eventually

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy", reason="run with --extra ros")

SIM_TIME = ["-p", "use_sim_time:=true"]
HOUR = 3600
TEXT, CAMERA = "/vision/a/text", "/camera/image_raw"
SPECS = [
    {"topic": TEXT, "type": "ros2_vision_interfaces/msg/StampedString", "rate": 50},
    {"topic": CAMERA, "type": "sensor_msgs/msg/Image", "rate": 50},
]
# Ready once the vision node and the service both follow the clock.
FOLLOWED = """
import rclpy
rclpy.init()
node = rclpy.create_node("probe")
while node.count_subscribers("/clock") < 2:
    rclpy.spin_once(node, timeout_sec=0.05)
print("ready", flush=True)
"""


def clock(*starts: int) -> dict[str, Any]:
    """A second from each of these moments on, one after another and all over again."""
    times = [
        {"clock": {"sec": sec, "nanosec": tick * 20_000_000}}
        for sec in starts
        for tick in range(50)
    ]
    return {"topic": "/clock", "type": "rosgraph_msgs/msg/Clock", "rate": 50, "fields": times}


async def test_a_clock_that_jumps_and_begins_anew_ages_and_freezes_nothing(
    domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["mcp-perception-buffer", "--ros-args", *SIM_TIME])
    async with (
        node(domain, clock(100, 100 + HOUR, 0)),
        node(domain, *SPECS, ros_args=SIM_TIME),
        service(freshness_window_s=1.0) as running,
        publisher(code=FOLLOWED, domain=domain),
        httpx.AsyncClient(base_url=running.url) as http,
    ):

        async def arriving() -> bool:
            listed = (await running.ask("list_streams"))["streams"]
            return {entry["topic"] for entry in listed if entry["received"]} == {TEXT, CAMERA}

        await eventually(arriving)
        seen: list[int] = []

        async def went_round() -> bool:
            for entry in (await running.ask("list_streams"))["streams"]:
                assert (entry["state"], entry["frozen"]) == ("fresh", False)
                assert 0 <= entry["last_update_age_s"] < 1.0
            scene = await running.ask("what_do_you_see")
            text = scene["skills"]["a"]["outputs"]["text"]
            assert not text["stale"]
            assert 0 <= text["age_s"] < 1.0
            assert scene["camera"]["alive"]
            if text["stamp"]:  # none where the clock stands at zero, which means no time
                seen.append(text["stamp"]["sec"])
            return {(100, 100 + HOUR), (100 + HOUR, 0), (0, 100)} <= set(pairwise(seen))

        await eventually(went_round)
        health = await http.get("/healthz")
        assert (health.status_code, health.json()["status"]) == (200, "ok")
        said = (await running.ask("diagnose", skill="a"))["checks"]
        assert not [check for check in said if check["status"] == "problem"]
