"""Watches through the whole service: real DDS in, a real brain that verifies signatures out."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import SecretStr

from brain import SECRET, Brain
from processes import Service, publisher, service
from support import eventually

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy", reason="run with --extra ros")

TRIGGERED = "/vision/find_object/triggered"


def push_to(brain: Brain, **more: Any) -> dict[str, Any]:
    return {
        "callback_url": f"{brain.url}?token=SEKRET",
        "event_secret": SecretStr(SECRET),
        "backoff_first_s": 0.05,
        **more,
    }


async def watch_state(running: Service) -> dict[str, Any]:
    answer: dict[str, Any] = await running.ask("get_watch_state")
    return answer


def state_is(running: Service, state: str) -> Callable[[], Any]:
    async def check() -> bool:
        watches = (await watch_state(running))["watches"]
        return [watch["state"] for watch in watches] == [state]

    return check


async def test_a_watched_output_that_flips_true_posts_one_signed_event(domain: str) -> None:
    async with Brain() as brain, service(**push_to(brain)) as running:
        async with publisher(domain=domain) as vision:
            await vision.say(TRIGGERED, "false")
            await eventually(state_is(running, "false"))
            already = len(brain.accepted)  # seen true before it was told otherwise
            await vision.say(TRIGGERED, "true")
            await eventually(lambda: len(brain.accepted) > already)
            await eventually(state_is(running, "true"))
            await vision.say(TRIGGERED, "false")
            await eventually(state_is(running, "false"))
            assert len(brain.accepted) == already + 1
            [watch] = (await watch_state(running))["watches"]
        event = json.loads(brain.accepted[-1].raw)
        assert (event["type"], event["task_id"], event["server"]) == (
            "watch_event", "task-1", "perception",
        )  # fmt: skip
        payload = event["payload"]
        assert payload["skill"] == "find_object"
        assert payload["condition"] == "a cup is on the table"
        assert payload["value"] is True
        assert payload["seq"] == watch["last_seq"]
        assert payload["detection_summary"].startswith("1 cup, 1 plate: cup 0.91")
        assert payload["overlay_ref"]["topic"] == "/vision/find_object/overlay"
        assert watch["delivery"] == "delivered"


async def test_nothing_is_pushed_when_watch_push_is_off(
    domain: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Brain() as brain, service(**push_to(brain, watch_push=False)) as running:
        async with publisher(domain=domain) as vision:
            for value in ("false", "true", "false"):
                await vision.say(TRIGGERED, value)
                await eventually(state_is(running, value))
        assert brain.accepted == []
    assert "watch_push is false" in capsys.readouterr().out


async def test_a_dead_brain_degrades_and_its_token_shows_nowhere(
    domain: str, capsys: pytest.CaptureFixture[str]
) -> None:
    import httpx2 as httpx

    async with Brain() as brain:
        settings = push_to(brain)
    async with service(**settings) as running, publisher(domain=domain):
        await eventually(state_is(running, "true"))

        async def degraded() -> bool:
            async with httpx.AsyncClient(base_url=running.url) as http:
                answer = await http.get("/healthz")
            assert answer.status_code == 200
            assert "SEKRET" not in answer.text
            return "events are not delivered" in answer.json()["reasons"]

        await eventually(degraded)
        state = await watch_state(running)
        assert state["outbox_depth"] == 1
        assert "SEKRET" not in json.dumps(state)
    assert "SEKRET" not in "".join(capsys.readouterr())
