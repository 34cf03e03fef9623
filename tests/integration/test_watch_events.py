"""From an observation to a signed request at a real local HTTP brain."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from brain import SECRET, Brain
from mcp_perception_buffer.events import outbox
from mcp_perception_buffer.events.base import Fate
from mcp_perception_buffer.events.delivery import Delivery
from mcp_perception_buffer.events.outbox import Outbox
from mcp_perception_buffer.events.webhook import WebhookSink
from mcp_perception_buffer.tasks.base import Task, TaskSourceError
from mcp_perception_buffer.watcher import Watcher
from processes import fresh_domain, publisher
from support import definition as find_definition
from support import detection, detections, eventually, image, serialise, stamped_string
from watching import TOPIC, running, task


@pytest.fixture
async def brain() -> AsyncIterator[Brain]:
    async with Brain() as brain:
        yield brain


# --- what an event says -------------------------------------------------------------------------


async def test_a_rising_edge_posts_one_signed_event(brain: Brain) -> None:
    async with running(brain) as it:
        it.scene.put("/vision/find_object/detections", detections(detection(mask=(2, 2))))
        it.scene.put("/vision/find_object/overlay", serialise(image()))
        for value in ("false", "false", "true", "true"):
            it.say(value)
        await it.settled()
        [received] = brain.received
        assert received.body == {
            "type": "watch_event",
            "task_id": "task-1",
            "server": "perception",
            "payload": {
                "skill": "find_object",
                "condition": "a cup is there",
                "value": True,
                "detection_summary": "1 cup: cup 0.91 [120,80 64x48], mask",
                "overlay_ref": {
                    "topic": "/vision/find_object/overlay",
                    "stamp": {"sec": 1, "nanosec": 2},
                },
                "seq": 1,
                "initial": False,
                "occurred_at": received.payload["occurred_at"],
            },
        }
        assert received.payload["occurred_at"].endswith("Z")
        assert len(received.payload["occurred_at"]) == len("2026-12-01T03:00:00.123Z")
        assert not brain.refused


async def test_no_event_while_the_condition_stays_false(brain: Brain) -> None:
    async with running(brain) as it:
        for _ in range(20):
            it.say("false")
        await it.asked_again()
        assert it.view.state == "false"
        assert await it.settled() == []


async def test_what_is_stale_or_missing_is_not_claimed(brain: Brain) -> None:
    async with running(brain) as it:
        it.scene.put("/vision/find_object/detections", detections(detection()))
        it.scene.put("/vision/find_object/overlay", serialise(image()))
        it.scene.clock.advance(6)
        it.say("true")
        [payload] = await it.settled()
        assert payload["initial"] is True
        assert payload["detection_summary"] == ""
        assert payload["overlay_ref"] is None


async def test_a_frozen_stream_makes_no_event_until_it_moves_again(brain: Brain) -> None:
    async with running(brain) as it:
        for value in ("false",) * 12 + ("true",) * 3:
            it.scene.put(TOPIC, stamped_string(value))  # always of one stamp
            it.scene.clock.advance(0.5)
        assert (it.view.state, it.view.reason) == ("unknown", "frozen")
        assert await it.settled() == []
        it.scene.put(TOPIC, stamped_string("true", nanosec=3))
        assert len(await it.settled()) == 1


async def test_a_watch_on_what_cannot_be_read_says_so(brain: Brain) -> None:
    async with running(brain) as it:
        assert it.view.reason == "nothing received yet"
        for _ in range(3):
            it.scene.put(TOPIC, b"garbage")
        assert it.view.state == "unknown"
        assert it.view.reason.startswith("received 3, none readable: ")
        it.say("false")
        assert (it.view.state, it.view.reason) == ("false", None)


async def test_accents_emoji_and_floats_verify_over_the_raw_bytes(brain: Brain) -> None:
    spoken = task(
        '{"detections": {"label": "tür ☕", "min_score": 0.5}}', condition="Tür offen? ☕"
    )
    async with running(brain, spoken) as it:
        it.scene.put(
            "/vision/find_object/detections",
            detections(detection("tür ☕", 0.1 + 0.7, (1.5, 2.25, 1e-7, 3e5))),
        )
        [payload] = await it.settled()
        assert not brain.refused
        assert payload["condition"] == "Tür offen? ☕"
        assert payload["value"] == 1
        assert payload["detection_summary"].startswith('1 "tür ☕": "tür ☕" 0.80')
        assert "tür ☕".encode() in brain.received[0].raw


@pytest.mark.parametrize("value", ["3.5000000000000004", '["cup", 1e-9]', '{"a": {"b": null}}'])
async def test_a_value_arrives_as_it_was_published(brain: Brain, value: str) -> None:
    async with running(brain, task('{"output": "triggered", "not_equals": "none"}')) as it:
        it.say(value)
        [payload] = await it.settled()
        assert payload["value"] == json.loads(value)


async def test_a_very_long_value_is_cut(brain: Brain) -> None:
    async with running(brain, task('{"output": "triggered", "contains": "x"}')) as it:
        it.say(json.dumps(["x", *["y" * 3000] * 10]))
        [payload] = await it.settled()
        assert payload["value"].startswith('["x", "yyy')
        assert len(payload["value"]) < 5000


# --- which messages count -----------------------------------------------------------------------


async def test_every_message_is_judged_although_newer_ones_came(brain: Brain) -> None:
    async with running(brain) as it:
        for _ in range(100):  # without giving the loop a turn
            it.say("true")
            it.say("false")
        payloads = await it.settled()
        assert [payload["seq"] for payload in payloads] == list(range(1, 101))


async def test_an_undecodable_message_is_no_value(brain: Brain) -> None:
    async with running(brain) as it:
        it.say("true")
        it.scene.put(TOPIC, b"\x00\x01\x00\x00nonsense")
        it.say("true")
        assert len(await it.settled()) == 1
        assert it.view.state == "true"


async def test_a_value_that_was_there_before_its_watch_counts_while_fresh(brain: Brain) -> None:
    async with running(brain, task(skill_id="other", skill="other")) as it:
        it.say("true")
        it.say("true", "/vision/slow/triggered")
        it.scene.clock.advance(6)
        it.say("true")
        await it.listed(task(), task(skill_id="slow", skill="slow"))
        payloads = await it.settled()
        assert [payload["skill"] for payload in payloads] == ["find_object"]


async def test_a_value_that_answered_another_watch_does_not_count(brain: Brain) -> None:
    async with running(brain) as it:
        it.say("true")
        await it.listed(task(condition="a dog is there"))
        await it.listed(task(skill_id="task-9", condition="a cat is there"))
        assert [payload["condition"] for payload in await it.settled()] == ["a cup is there"]
        it.say("true")
        assert [p["condition"] for p in await it.settled()] == ["a cup is there", "a cat is there"]


async def test_nor_does_it_count_for_a_watch_that_begins_a_little_later(brain: Brain) -> None:
    other = task(skill_id="task-2", condition="a plate is there")
    async with running(brain) as robot:
        robot.say("true")
        await robot.settled()
        await robot.listed()
        robot.scene.clock.advance(1)
        await robot.listed(other)
        assert robot.view.state == "unknown"
        robot.say("true")  # and this is an answer to the new one
        payloads = await robot.settled()
    assert [payload["condition"] for payload in payloads] == ["a cup is there", "a plate is there"]


async def test_watches_of_one_stream_do_not_disturb_each_other(brain: Brain) -> None:
    tasks = [
        task('{"output": "n", "gt": 1}', skill_id="low"),
        task('{"output": "n", "gt": 5}', skill_id="high"),
        task('{"output": "n", "greater": 5}', skill_id="wrong"),
        task("", skill_id="plain"),
    ]
    async with running(brain, *tasks) as it:
        for value in ("0", "2", "9", "2", "9", "0", "3"):
            it.say(value, "/vision/find_object/n")
        await it.settled()
        assert Counter(one.body["task_id"] for one in brain.accepted) == {"low": 2, "high": 2}
        [high, low, wrong] = it.watcher.views().watches
        assert (high.skill_id, high.state, high.last_seq, high.delivery) == (
            "high", "false", 2, Fate.DELIVERED,
        )  # fmt: skip
        assert (low.skill_id, low.state, low.predicate) == ("low", "true", tasks[0].watch)
        assert (wrong.state, wrong.reason) == ("invalid", "greater: unknown key")
        assert wrong.last_seq is None


@pytest.mark.parametrize("hold", ["for_s", "clear_for_s"])
async def test_time_alone_ends_a_hold(brain: Brain, hold: str) -> None:
    timed = task(json.dumps({"output": "triggered", "equals": True, hold: 0.05}))
    async with running(brain, timed) as it:
        it.say("true")
        it.say("false" if hold == "clear_for_s" else "true")
        await it.asked_again()
        assert len(await it.settled()) == (hold == "clear_for_s")
        it.scene.clock.advance(0.05)
        await it.asked_again()
        if hold == "clear_for_s":
            await eventually(lambda: (k := it.outbox.recall("task-1")) and k.memory.armed)
        else:
            await eventually(lambda: it.view.last_seq == 1)
            assert len(await it.settled()) == 1


# --- tasks come and go --------------------------------------------------------------------------


async def test_a_vision_node_that_restarts_fires_nothing_again(brain: Brain) -> None:
    async with running(brain) as it:
        it.say("true")
        for away in ([], TaskSourceError("nobody offers it"), [task(state="stopped")]):
            it.tasks.tasks = away
            await it.asked_again()
            expected = ("nobody offers it",) if isinstance(away, TaskSourceError) else ()
            assert it.watcher.views().problems == expected
            it.scene.clock.advance(30)
            # The same definition, in another spelling.
            await it.listed(task('{"equals":true,"output":"triggered"}'))
            it.say("true")
        assert len(await it.settled()) == 1
        it.say("false")
        it.say("true")
        assert [payload["seq"] for payload in await it.settled()] == [1, 2]


@pytest.mark.parametrize(
    "changed",
    [
        task('{"output": "triggered", "not_equals": false}'),
        task(condition="another question"),
    ],
)
async def test_a_changed_definition_starts_anew_and_counts_on(brain: Brain, changed: Task) -> None:
    async with running(brain) as it:
        it.say("false")
        it.say("true")
        await it.settled()
        await it.listed(changed)
        assert it.view.state == "unknown"
        it.say("true")
        payloads = await it.settled()
        assert [(p["seq"], p["initial"]) for p in payloads] == [(1, False), (2, True)]


async def test_nonsense_from_the_task_source_is_bounded_and_shown(brain: Brain) -> None:
    tasks = [
        task(skill_id=""),
        task(skill_id="line\nbreak"),
        task("[]", skill_id="list"),
        task("x" * 100_000, skill_id="long"),
        task(skill_id="twice"),
        task(skill_id="twice", skill="other"),
        task(skill_id="odd", skill="no/../topic name\x00", condition="\ud800"),
    ]
    async with running(brain, *tasks) as it:
        states = {view.skill_id: view.state for view in it.watcher.views().watches}
        assert states == {
            "": "invalid", "line break": "invalid", "list": "invalid", "long": "invalid",
            "twice": "unknown", "odd": "unknown",
        }  # fmt: skip
        await it.listed(*(task(skill_id=str(i)) for i in range(1000)))
        views = it.watcher.views()
        assert len(views.watches) == 256
        assert views.problems == ("1000 watches, only 256 are watched",)
        it.say("true")
        assert len(await it.settled()) == 256


async def test_of_many_watches_those_that_are_listed_are_not_forgotten(
    brain: Brain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "MAX_LANES", 4)
    async with running(brain) as robot:
        robot.say("true")
        await robot.settled()
        for number in range(8):
            await robot.listed(task(), task(skill_id=f"other-{number}"))
            robot.say("false")
        [other, first] = sorted(robot.watcher.views().watches, key=lambda one: one.skill_id)
        assert other.skill_id == "other-7"
        assert (first.last_seq, first.delivery) == (1, "delivered")


async def test_nothing_listens_once_the_watcher_ended(brain: Brain) -> None:
    async with running(brain) as it:
        it.say("false")
    it.say("true")
    assert it.outbox.depth == 0
    assert not brain.received


# --- restarts -----------------------------------------------------------------------------------


async def test_a_restart_of_the_service_fires_nothing_again(brain: Brain, tmp_path: Path) -> None:
    for _ in range(3):
        async with running(brain, state_dir=tmp_path) as it:
            it.say("true")
            await it.settled()
    async with running(brain, state_dir=tmp_path) as it:
        assert (it.view.last_seq, it.view.delivery) == (1, Fate.DELIVERED)
        it.say("false")
        it.say("true")
        payloads = await it.settled()
        assert [(p["seq"], p["initial"]) for p in payloads] == [(1, True), (2, False)]


async def test_without_a_state_directory_a_restart_begins_anew(brain: Brain) -> None:
    for _ in range(2):
        async with running(brain) as it:
            it.say("true")
            await it.settled()
    assert [one.payload["seq"] for one in brain.accepted] == [1, 1]
    assert len({one.verified.msg_id for one in brain.accepted}) == 2


# --- with ROS -----------------------------------------------------------------------------------


@pytest.mark.ros
async def test_an_edge_published_by_another_process_reaches_the_brain(
    brain: Brain, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("rclpy", reason="run with --extra ros")
    from mcp_perception_buffer.buffer import Buffer
    from mcp_perception_buffer.decoding.decoder import Decoder
    from mcp_perception_buffer.sources.ros import RosSource
    from mcp_perception_buffer.sources.topics import TopicFilter
    from mcp_perception_buffer.tasks.ros_service import RosTaskSource

    domain = fresh_domain()
    monkeypatch.setenv("ROS_DOMAIN_ID", domain)
    buffer, outbox = Buffer(Decoder(find_definition).decode), Outbox()
    source = RosSource(buffer, TopicFilter())
    watcher = Watcher(buffer, RosTaskSource(source), outbox, reconcile_interval_s=0.2)
    delivery = Delivery(outbox, WebhookSink(brain.url, secrets=[SECRET]))

    async with publisher("--rate", "50", domain=domain) as node, outbox:
        await node.say(TOPIC, "false")
        parts = [
            asyncio.create_task(source.run(lambda: None)),
            *(asyncio.create_task(part.run()) for part in (outbox, watcher, delivery)),
        ]
        try:

            def state() -> str | None:
                return next((view.state for view in watcher.views().watches), None)

            await eventually(lambda: state() == "false")
            before = len(brain.received)
            for seq in range(1, 4):
                await node.say(TOPIC, "true")
                await brain.hears(before + seq)
                await node.say(TOPIC, "false")
                await eventually(lambda: state() == "false")
            assert not brain.refused
            last = brain.received[-1]
            assert last.body["task_id"] == "task-1"
            assert last.payload["condition"] == "a cup is on the table"
            assert last.payload["initial"] is False
            assert last.payload["detection_summary"].startswith("1 cup, 1 plate: cup 0.91")
            assert last.payload["overlay_ref"]["topic"] == "/vision/find_object/overlay"
            seqs = [one.payload["seq"] for one in brain.received]
            assert seqs == list(range(1, len(seqs) + 1))
        finally:
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)
