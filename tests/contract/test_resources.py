"""Resources, subscriptions and the prompt through the official client, in both generations."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from mcp.client import Client
from mcp.server.connection import Connection
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp.types import ResourceUpdatedNotification, SubscribeRequestParams

from mcp_perception_buffer.answers.resources import UPDATE_INTERVAL_S, Updates
from mcp_perception_buffer.answers.tools import create_mcp
from mcp_perception_buffer.answers.wording import RenderLimits
from mcp_perception_buffer.events.outbox import Outbox
from mcp_perception_buffer.memory.changes import Changes
from mcp_perception_buffer.sources.topics import Rule, TopicFilter
from mcp_perception_buffer.tasks.static import StaticTaskSource
from mcp_perception_buffer.watcher import Watcher
from support import Scene, detection, detections, eventually, stamped_string

Mode = Literal["auto", "legacy"]
FIND = "/vision/find/detections"
TEXT = "/vision/find/text"


class Server:
    def __init__(self) -> None:
        self.scene, limits = Scene(), RenderLimits()
        buffer = self.scene.buffer
        watcher = Watcher(buffer, StaticTaskSource([]), Outbox(push=False))
        self.changes, self.updates = Changes(buffer), Updates(buffer, limits)
        self.mcp = create_mcp(buffer, limits, watcher, self.changes, self.updates)

    def sees(self, *labels: str) -> None:
        found = [detection(one, box=(90 * i, 0, 50, 50)) for i, one in enumerate(labels)]
        self.scene.put(FIND, detections(*found))


@pytest.fixture(params=["auto", "legacy"])
def mode(request: pytest.FixtureRequest) -> Mode:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    made.sees("cup")
    made.scene.put(TEXT, stamped_string("hello"))
    parts = [asyncio.create_task(part.run()) for part in (made.changes, made.updates)]
    yield made
    for part in parts:
        part.cancel()
    await asyncio.gather(*parts, return_exceptions=True)


@contextlib.asynccontextmanager
async def updated(server: Server, mode: Mode, *uris: str) -> AsyncIterator[list[str]]:
    """Subscribe as this generation does, and collect what is told."""
    heard: list[str] = []

    async def handler(message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            heard.append(str(message.params.uri))

    async with Client(server.mcp, mode=mode, message_handler=handler) as client:
        if mode == "legacy":
            for uri in uris:
                with pytest.warns(MCPDeprecationWarning):
                    await client.subscribe_resource(uri)
            yield heard
            for uri in uris:
                with pytest.warns(MCPDeprecationWarning):
                    await client.unsubscribe_resource(uri)
            return
        async with client.listen(resource_subscriptions=uris) as events:

            async def collect() -> None:
                heard.extend([str(event.uri) async for event in events])  # type: ignore[union-attr]

            collecting = asyncio.create_task(collect())
            yield heard
            collecting.cancel()


async def read(client: Client, uri: str) -> str:
    [content] = (await client.read_resource(uri)).contents
    return str(content.text)  # type: ignore[union-attr]


async def test_the_resources_are_listed_and_read_as_text(server: Server, mode: Mode) -> None:
    async with Client(server.mcp, mode=mode) as client:
        listed = {str(one.uri) for one in (await client.list_resources()).resources}
        templates = {
            one.uri_template for one in (await client.list_resource_templates()).resource_templates
        }
        assert listed == {"perception://scene", "perception://streams"}
        assert templates == {"perception://skill/{+skill}"}
        assert "find: fresh" in await read(client, "perception://scene")
        assert "cup 0.91" in await read(client, "perception://skill/find")
        assert FIND in await read(client, "perception://streams")
        with pytest.raises(MCPError, match="Known skills: find"):
            await read(client, "perception://skill/nope")


async def test_a_skill_with_a_robots_name_is_read_by_its_whole_name(
    server: Server, mode: Mode
) -> None:
    server.scene.topics = TopicFilter(
        [], rules=[Rule("/*/yolo", "yolo")], kind_of=lambda name: "detections"
    )
    server.scene.put("/r1/yolo", detections(detection("dog")))
    async with Client(server.mcp, mode=mode) as client:
        assert "dog 0.91" in await read(client, "perception://skill/r1/yolo")


async def test_a_subscriber_is_told_what_changed_in_more_than_its_ages(
    server: Server, mode: Mode
) -> None:
    scene, find = "perception://scene", "perception://skill/find"
    async with updated(server, mode, scene, find) as heard:
        await eventually(lambda: server.updates.looking)
        server.scene.clock.advance(1)
        server.sees("cup")  # the same again, a little later
        await asyncio.sleep(2 * UPDATE_INTERVAL_S)
        assert heard == []
        server.sees("cup", "person")
        await eventually(lambda: set(heard) == {scene, find})
    await eventually(lambda: not server.updates.looking)


async def test_a_stream_that_turns_stale_is_told_to_who_listens_to_streams(
    server: Server, mode: Mode
) -> None:
    async with updated(server, mode, "perception://streams") as heard:
        await eventually(lambda: server.updates.looking)
        server.sees("cup", "person")
        server.scene.clock.advance(9)
        await eventually(lambda: heard == ["perception://streams"])


async def test_a_warning_and_an_output_yet_to_speak_are_changes_of_the_scene(
    server: Server, mode: Mode
) -> None:
    scene = "perception://scene"
    async with updated(server, mode, scene) as heard:
        await eventually(lambda: server.updates.looking)
        server.scene.open("/vision/find/new")
        await eventually(lambda: heard == [scene])
        server.scene.buffer.discovering = True
        await eventually(lambda: heard == [scene] * 2)
        # The same words, but their stamp says that they are of now, and no more of another clock.
        seconds = int(time.time())
        server.scene.put(TEXT, stamped_string("hello", sec=seconds))
        server.scene.put(FIND, detections(detection("cup", box=(0, 0, 50, 50)), sec=seconds))
        await eventually(lambda: heard == [scene] * 3)


async def test_hosts_that_offer_prompts_have_one_to_look_around(server: Server, mode: Mode) -> None:
    async with Client(server.mcp, mode=mode) as client:
        [prompt] = (await client.list_prompts()).prompts
        [message] = (await client.get_prompt(prompt.name)).messages
        assert prompt.name == "look_around"
        assert "what_do_you_see" in message.content.text  # type: ignore[union-attr]


async def test_a_client_that_has_ceased_to_read_keeps_no_other_one_waiting(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_perception_buffer.answers.resources.MAX_SEND_S", 0.05)
    updates, scene = server.updates, "perception://scene"
    for outbound in (Stuck(), Stuck()):
        await subscribe(updates, Connection(outbound, protocol_version="2025-06-18"), scene)
    async with updated(server, "legacy", scene) as heard:
        await eventually(lambda: updates.looking)
        server.sees("cup", "person")
        await eventually(lambda: heard == [scene])
    await eventually(lambda: not updates.looking)  # nobody is left


class Stuck:
    """A connection's other end, into which nothing more fits."""

    async def send_raw_request(self, *_: Any) -> dict[str, Any]:
        raise NotImplementedError

    async def notify(self, *_: Any) -> None:
        await asyncio.Event().wait()


async def subscribe(updates: Updates, connection: Connection, uri: str) -> None:
    ctx: Any = SimpleNamespace(session=SimpleNamespace(_connection=connection))
    await updates.on_subscribe(ctx, SubscribeRequestParams(uri=uri))


# --- waiting and arguments ----------------------------------------------------------------------


async def test_waiting_ends_with_the_change_and_shows_progress_meanwhile(
    server: Server, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_perception_buffer.answers.tools.PROGRESS_INTERVAL_S", 0.05)
    progress: list[float] = []

    async def on_progress(done: float, total: float | None, message: str | None) -> None:
        progress.append(done)

    async with Client(server.mcp, mode=mode) as client:
        arguments = {"skill": "find", "timeout_s": 20}
        waiting = asyncio.create_task(
            client.call_tool("wait_for_change", arguments, progress_callback=on_progress)
        )
        await eventually(lambda: len(progress) > 1)
        server.scene.put(TEXT, stamped_string("bye"))
        result = await asyncio.wait_for(waiting, 10)
        [change] = result.structured_content["changes"]  # type: ignore[index]
        assert (change["before"], change["after"]) == ('"hello"', '"bye"')
        assert progress == sorted(progress)


async def test_a_cancelled_wait_leaves_nothing_behind(server: Server, mode: Mode) -> None:
    async with Client(server.mcp, mode=mode) as client:
        waiting = asyncio.create_task(client.call_tool("wait_for_change", {"timeout_s": 30}))
        await eventually(lambda: server.changes.waiting)
        waiting.cancel()
        await asyncio.wait([waiting])
        await eventually(lambda: not server.changes.waiting)
        assert not (await client.call_tool("what_do_you_see", {})).is_error


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("get_latest", {}, "get_latest: skill is missing."),
        ("get_latest", {"skill": 5}, "get_latest: skill: input should be a valid string."),
        ("get_latest", {"skill": "find", "limit": 0},
         "get_latest: limit: input should be greater than or equal to 1."),
        ("list_streams", {"state": "tired"},
         "list_streams: state: input should be 'fresh', 'stale', 'gone', 'unreadable' or 'never'."),
        ("wait_for_change", {"timeout_s": 31},
         "wait_for_change: timeout_s: input should be less than or equal to 30."),
        ("what_changed", {"since": "yesterday"},
         "since is no cursor: take `cursor` of an earlier answer"),
        ("get_latest", {"skill": "nope"}, "There is no such skill. Known skills: find."),
        ("what_do_you_see", {"skills": ["find", "nope"]},
         "There is no such skill. Known skills: find."),
        ("what_do_you_see", {"robot": "r9"},
         "There is no such robot. No robot is told apart here."),
    ],
)  # fmt: skip
async def test_wrong_arguments_are_told_in_one_plain_sentence(
    server: Server, mode: Mode, tool: str, arguments: dict[str, Any], said: str
) -> None:
    async with Client(server.mcp, mode=mode) as client:
        result = await client.call_tool(tool, arguments)
        assert result.is_error
        assert result.content[0].text == said  # type: ignore[union-attr]
