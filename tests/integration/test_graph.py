"""A messy graph: whatever happens to one topic, it is said, and the others go on."""

import asyncio
import contextlib
import importlib.abc
import json
import os
import sys
from importlib.metadata import distributions
from typing import Any

import httpx2 as httpx
import pytest

from mcp_perception_buffer.component import Component
from processes import Service, ask, node, publisher, service
from support import REPOSITORY, detections, eventually, stamped_string

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy", reason="run with --extra ros")

STRING = "std_msgs/msg/String"
STAMPED = "ros2_vision_interfaces/msg/StampedString"
DETECTIONS = "ros2_vision_interfaces/msg/VisionDetectionArray"
IMAGE = "sensor_msgs/msg/Image"
TEXT = "/vision/a/text"
CAMERA = "/camera/image_raw"
STEADY = {"topic": "/vision/steady/text", "type": STRING, "rate": 20, "fields": {"data": "on"}}


def spec(topic: str = TEXT, type_name: str = STRING, **options: Any) -> dict[str, Any]:
    return {"topic": topic, "type": type_name, **options}


def says(data: Any, **options: Any) -> dict[str, Any]:
    return spec(fields={"data": data}, **options)


def stamp(sec: int, nanosec: int = 0) -> dict[str, Any]:
    return {"header": {"stamp": {"sec": sec, "nanosec": nanosec}}}


async def reads(running: Service, value: Any, topic: str = TEXT) -> Any:
    async def check() -> bool:
        view = running.buffer.view(topic)
        return bool(view and view.observation and view.observation.value == value)

    return await eventually(check)


async def steady(running: Service) -> None:
    """The bystander of the same test still arrives."""
    before = (await running.stream(STEADY["topic"]))["received"]

    async def more() -> bool:
        now = await running.stream(STEADY["topic"])
        return bool(now["received"] > before and now["state"] == "fresh")

    await eventually(more)


# --- the graph itself ---------------------------------------------------------------------------


async def test_what_the_graph_did_not_tell_is_found_out(
    domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = "mcp_perception_buffer.sources"
    monkeypatch.setattr(f"{sources}.ros.RECOUNT_INTERVAL_S", 0.2)
    deaf = f"{sources}.ros_executor.AsyncioExecutor._note_graph_change"
    monkeypatch.setattr(deaf, lambda self, node: None)
    async with service(reconcile_interval_s=0.2) as running:
        async with node(domain, says("first", rate=5)):
            await reads(running, "first")
            async with node(domain, says("second", rate=5)):
                await reads(running, "second")
                await eventually(lambda: running.buffer.view(TEXT).publishers == 2)
        await eventually(lambda: running.buffer.view(TEXT).state == "gone")


async def test_a_topic_that_cannot_be_subscribed_to_is_said_and_its_end_noticed(
    domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("no more readers")

    monkeypatch.setattr("mcp_perception_buffer.sources.ros.RosStream", refuse)
    async with service() as running:
        async with node(domain, says("x", rate=5)):

            async def reported() -> Any:
                return (await running.ask("list_streams"))["unsupported"]

            [entry] = await eventually(reported)
            assert entry["topic"] == TEXT
            assert "cannot subscribe: no more readers" in entry["reason"]
        await eventually(lambda: running.buffer.view(TEXT) is None)
        assert (await running.ask("list_streams"))["unsupported"] == []


# --- quality of service -------------------------------------------------------------------------


async def test_latched_and_volatile_publishers_of_one_topic_are_all_received(domain: str) -> None:
    latched, volatile = says("latched", latched=True), says("live", reliable=False, silent=True)
    async with node(domain, latched), node(domain, volatile) as live, service() as running:
        # Published once, before the service started, by one of two publishers.
        await reads(running, "latched")
        await live.say("open", json.dumps(says("live", reliable=False, rate=5)))
        await reads(running, "live")
        assert (await running.stream(TEXT))["publishers"] == 2
        assert (await running.stream(TEXT))["note"] is None


async def test_a_subscription_is_made_anew_when_a_later_publisher_offers_less(
    running: Service, domain: str
) -> None:
    async with node(domain, says("first", latched=True, rate=5)) as first:
        await reads(running, "first")
        async with node(domain, says("second", reliable=False, rate=5)):
            await reads(running, "second")
            await reads(running, "first")  # and the first one is still heard
            await first.end()
            await reads(running, "second")


async def test_every_message_is_either_received_or_counted(running: Service, domain: str) -> None:
    async with node(domain, spec("/vision/a/text", silent=True)) as busy:
        await eventually(lambda: running.stream(TEXT))
        await busy.say("open", json.dumps(says("x", rate=20)))
        await reads(running, "x")
        await busy.say("open", json.dumps(says("y", burst=3000)))
        await reads(running, "y")

        async def counted() -> bool:
            now = await running.stream(TEXT)
            return bool(now["lost"] + now["dropped"] > 0)

        await eventually(counted)
        said = (await running.ask("diagnose", skill="a"))["checks"]
        assert any("lost on the way" in c["finding"] or "dropped" in c["finding"] for c in said)


@pytest.mark.skipif(
    any(d.name == "ros-jazzy-rclpy" for d in distributions()),
    reason="Jazzy does not say whose message it is",
)
async def test_what_a_latched_publisher_repeats_is_neither_new_nor_young(domain: str) -> None:
    said = says(["true", "false"], type_name=STAMPED, latched=True, burst=2)
    said["fields"] = [{"data": "true"}, {"data": "false"}]
    other = says("x", type_name=STAMPED, reliable=False, silent=True)
    heard: list[Any] = []
    async with service() as running:
        running.buffer.listen(
            *TEXT.split("/")[2:], lambda seen, _: heard.append(seen and seen.value)
        )

        async def publishers(count: int) -> bool:
            return bool((await running.stream(TEXT))["publishers"] == count)

        async with node(domain, said, STEADY):
            await reads(running, False)
            # What is offered is volatile now, and then latched again.
            async with node(domain, other):
                await eventually(lambda: publishers(2))
                await steady(running)
            await eventually(lambda: publishers(1))
            for _ in range(10):
                await steady(running)
            assert heard == [True, False]
            assert (await running.stream(TEXT))["received"] == 2


# --- types --------------------------------------------------------------------------------------


async def test_of_two_types_on_one_topic_one_is_read_and_the_other_reported(
    running: Service, domain: str
) -> None:
    text, number = says("text", rate=20), says(7, type_name="std_msgs/msg/Int32", rate=20)
    async with contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(node(domain, text, STEADY))
        await reads(running, "text")
        await stack.enter_async_context(node(domain, number))

        async def conflict() -> Any:
            return (await running.ask("list_streams"))["unsupported"]

        [entry] = await eventually(conflict)
        assert (entry["topic"], entry["type"]) == (TEXT, "std_msgs/msg/Int32")
        assert "conflict" in entry["reason"]
        received = (await running.stream(TEXT))["received"]
        await steady(running)
        now = await running.stream(TEXT)
        assert now["type"] == STRING
        assert now["received"] >= received  # the same stream, not begun anew
        await first.say("close", TEXT)
        # The publisher came back with another type, as after an update.
        await reads(running, 7)
        assert (await running.ask("list_streams"))["unsupported"] == []
        await steady(running)


FOREIGN = """
import sys
from dataclasses import dataclass
from cyclonedds.domain import DomainParticipant
from cyclonedds.idl import IdlStruct
from cyclonedds.pub import DataWriter
from cyclonedds.topic import Topic

@dataclass
class String_(IdlStruct, typename="std_msgs::msg::dds_::String_"):
    data: str

participant = DomainParticipant(int(sys.argv[1]))
writer = DataWriter(participant, Topic(participant, "rt/vision/front-left/text", String_))
print("ready", flush=True)
sys.stdin.read()
"""


async def test_of_two_topics_for_one_output_the_first_is_read_until_it_goes(domain: str) -> None:
    one, two = "/one/text", "/two/text"
    rules = [{"topic": topic, "skill": "a", "output": "text"} for topic in (one, two)]
    async with (
        service(streams=rules, reconcile_interval_s=0.2) as running,
        node(domain, says("first", topic=two, rate=5)) as first,
    ):
        await reads(running, "first", two)
        async with node(domain, says("second", topic=one, rate=5)):

            async def reported() -> Any:
                return (await running.ask("list_streams"))["unsupported"]

            [entry] = await eventually(reported)
            assert (entry["topic"], entry["skill"]) == (one, "a")
            assert f"come from {two} already" in entry["reason"]
            await first.end()
            await reads(running, "second", one)
            await eventually(lambda: running.buffer.unsupported == ())


async def test_a_name_that_only_other_dds_software_allows_costs_the_others_nothing(
    running: Service, domain: str
) -> None:
    pytest.importorskip("cyclonedds", reason="has no wheel for this machine")
    async with publisher(domain, domain=domain, code=FOREIGN), node(domain, STEADY):

        async def reported() -> Any:
            return (await running.ask("list_streams"))["unsupported"]

        [entry] = await eventually(reported)
        assert entry["topic"] == "/vision/front-left/text"
        assert "must not contain characters" in entry["reason"]
        await reads(running, "on", STEADY["topic"])
        await steady(running)


class Hidden(importlib.abc.MetaPathFinder):
    """Makes a package look as if it were not installed."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, name: str, path: Any, target: Any = None) -> None:
        if name.split(".")[0] == self._package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


async def test_a_package_that_is_installed_later_is_picked_up(
    domain: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = "ros2_vision_interfaces"
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    hidden = Hidden(package)
    monkeypatch.setattr(sys, "meta_path", [hidden, *sys.meta_path])
    static = Component.of("mcp_perception_buffer.tasks.static.StaticTaskSource", tasks=[])
    stamped = says("here", type_name=STAMPED, rate=20)
    async with service(tasks=static) as running, node(domain, stamped, STEADY):

        async def missing() -> Any:
            return (await running.ask("list_streams"))["unsupported"]

        [entry] = await eventually(missing)
        assert "ros2_vision_interfaces" in entry["reason"]
        await steady(running)
        found = await running.ask("diagnose", skill="a")
        assert found["checks"][0]["status"] == "problem"
        assert "cannot be loaded" in found["summary"]
        assert capsys.readouterr().out.count("topic_unsupported") == 1
        sys.meta_path.remove(hidden)
        await reads(running, "here")
        assert (await running.ask("list_streams"))["unsupported"] == []


# --- time ---------------------------------------------------------------------------------------


async def test_a_camera_that_repeats_itself_is_frozen_and_recovers(
    running: Service, domain: str
) -> None:
    old = stamp(1_700_000_000, 5)
    camera = spec(CAMERA, IMAGE, rate=20, fields=old)
    text = spec(type_name=STAMPED, rate=20, fields=old)
    async with node(domain, camera, text, STEADY) as frozen:
        await eventually(lambda: _is(running, "frozen", True, CAMERA, TEXT))
        assert (await running.stream(TEXT))["state"] == "stale"
        scene = await running.ask("what_do_you_see")
        found = await running.ask("diagnose", skill="a")
        assert not scene["camera"]["alive"]
        assert scene["skills"]["a"]["outputs"]["text"]["stale"]
        words = await running.read("what_do_you_see")
        assert "Camera: FROZEN" in words
        assert "STALE, FROZEN" in words
        assert "FROZEN" in found["summary"]
        for thawed in (camera, text):
            await frozen.say("open", json.dumps({**thawed, "fields": {}}))
        await eventually(lambda: _is(running, "frozen", False, CAMERA, TEXT))
        assert (await running.stream(TEXT))["state"] == "fresh"


async def test_stamps_that_were_never_set_or_run_in_circles_are_not_frozen(
    running: Service, domain: str
) -> None:
    hour = 3600 + 1_800_000_000
    stamps = {
        "zero": [0],  # use_sim_time, and nobody publishes /clock
        "loop": [100, 101, 102],  # a bag that is played again and again
        "ahead": [hour, hour + 1],
    }
    specs = [
        spec(f"/vision/{name}/text", STAMPED, rate=20, fields=[stamp(sec) for sec in secs])
        for name, secs in stamps.items()
    ]
    topics = [entry["topic"] for entry in specs]
    async with node(domain, *specs):
        # Long enough to be taken for frozen.
        await eventually(lambda: _at_least(running, 40, *topics))
        for topic in topics:
            now = await running.stream(topic)
            assert (now["state"], now["frozen"]) == ("fresh", False)
            assert 0 <= now["last_update_age_s"] < 1.0
        zero = await running.ask("diagnose", skill="zero")
        ahead = await running.ask("diagnose", skill="ahead")
        assert "header stamps are zero" in zero["summary"]
        assert "ahead of this machine's clock" in ahead["summary"]


async def _is(running: Service, key: str, value: Any, *topics: str) -> bool:
    return all([(await running.stream(topic)).get(key) == value for topic in topics])


async def _at_least(running: Service, received: int, *topics: str) -> bool:
    return all([(await running.stream(topic)).get("received", 0) >= received for topic in topics])


# --- data ---------------------------------------------------------------------------------------


async def test_hostile_messages_are_counted_and_cost_nobody_else_anything(
    running: Service, domain: str
) -> None:
    good = detections()
    million = good[:-4] + (1_000_000).to_bytes(4, "little")
    hostile = {
        "truncated": (STAMPED, stamped_string("x" * 50)[:-20]),
        "garbage": (STAMPED, b"\xff" * 100),
        "endless": (STRING, b"\0\1\0\0\xff\xff\xff\x7fabc"),
    }
    specs = [
        spec(f"/vision/{name}/text", type_name, cdr=cdr.hex(), rate=20)
        for name, (type_name, cdr) in hostile.items()
    ]
    specs.append(spec("/vision/million/detections", DETECTIONS, cdr=million.hex(), rate=20))
    topics = [entry["topic"] for entry in specs]
    async with node(domain, *specs, STEADY):
        await eventually(lambda: _at_least(running, 5, *topics))
        for topic in topics:
            now = await running.stream(topic)
            assert now["undecodable"] > 0, topic
            assert now["last_error"], topic
            assert "none readable" in now["note"], topic
        await steady(running)


async def test_a_string_of_50_megabytes_is_cut_and_not_kept(running: Service, domain: str) -> None:
    async with node(domain, STEADY) as huge:
        await eventually(lambda: running.stream(STEADY["topic"]))
        await huge.say("open", json.dumps(spec(fill=50_000_000, latched=True)))
        view = await eventually(lambda: (v := running.buffer.view(TEXT)) and v.observation and v)
        assert len(view.observation.value) <= 4000
        await steady(running)
        assert len(json.dumps(await running.ask("what_do_you_see"))) < 20_000


async def test_a_publisher_that_says_nothing_is_told_apart_from_none(
    running: Service, domain: str
) -> None:
    async with node(domain, spec(silent=True)) as quiet:

        async def noted() -> str:
            return (await running.stream(TEXT)).get("note") or ""

        note = await eventually(noted)
        assert "publisher present, no messages for" in note
        assert "FASTDDS_BUILTIN_TRANSPORTS=UDPv4" in note
        await quiet.say("open", json.dumps(says("at last", rate=20)))
        await reads(running, "at last")
        assert (await running.stream(TEXT))["note"] is None


async def test_the_first_message_after_a_silence_is_answered(running: Service, domain: str) -> None:
    rare = spec(rate=0.6, fields=[{"data": "one"}, {"data": "two"}])
    busy = says("x", rate=500) | {"topic": "/vision/busy/text"}
    async with node(domain, rare, busy) as vision:

        async def text() -> dict[str, Any]:
            skills = (await running.ask("what_do_you_see"))["skills"]
            found: dict[str, Any] = skills.get("a", {}).get("outputs", {}).get("text", {})
            return found

        await eventually(lambda: _at_least(running, 100, busy["topic"]))
        await vision.say("close", busy["topic"])

        async def silent() -> Any:
            return TEXT in (await running.ask("list_streams"))["silent"] and await text()

        before = await eventually(silent)
        assert before["stale"]

        async def answered() -> bool:
            now = await text()
            return not now["stale"] and now["value"] != before["value"]

        await eventually(answered)


async def test_hidden_names_are_skipped_unless_asked_for(domain: str) -> None:
    hidden = spec("/vision/_dbg/x", rate=20), spec("/vision/det/_action/feedback", rate=20)
    async with node(domain, *hidden, STEADY):
        async with service() as running:
            await eventually(lambda: running.stream(STEADY["topic"]))
            await steady(running)
            assert [s["topic"] for s in (await running.ask("list_streams"))["streams"]] == [
                STEADY["topic"]
            ]
        async with service(include_hidden=True) as running:
            await eventually(lambda: running.stream("/vision/_dbg/x"))
            await eventually(lambda: running.stream("/vision/det/_action/feedback"))


# --- nodes --------------------------------------------------------------------------------------


async def test_topics_that_come_and_go_at_200_hz_leave_nothing_behind(
    running: Service, domain: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def held() -> tuple[int, list[str]]:
        names = (task.get_name() for task in asyncio.all_tasks())
        consumers = sorted(name for name in names if name.startswith("consume:"))
        return len(os.listdir("/proc/self/fd")), consumers

    files, _ = held()
    churn = (REPOSITORY / "benchmarks" / "churn.py").read_text()
    async with publisher("publish", code=churn, domain=domain) as nodes:
        await eventually(lambda: _at_least(running, 1000, STEADY["topic"]))
        await steady(running)
        assert len(running.buffer.snapshot().streams) > 10
        await nodes.end()
    # Whoever was killed stays in the graph for a while; then nothing of it is held.
    await eventually(lambda: held()[1] == [], timeout_s=40)
    assert held()[0] <= files + 5  # what the publisher's own pipes and a client left open
    assert "Traceback" not in capsys.readouterr().out


async def test_many_callers_at_once_are_all_answered_while_messages_flow(
    running: Service, domain: str
) -> None:
    specs = [says("x", rate=200) | {"topic": f"/vision/s{i}/text"} for i in range(3)]
    async with node(domain, *specs), httpx.AsyncClient(base_url=running.url) as http:
        await eventually(lambda: _at_least(running, 1, *(entry["topic"] for entry in specs)))

        async def caller() -> int:
            async with running.client() as client:
                for _ in range(5):
                    assert len((await ask(client, "what_do_you_see"))["skills"]) == 3
            return (await http.get("/healthz")).status_code

        assert await asyncio.gather(*(caller() for _ in range(20))) == [200] * 20
