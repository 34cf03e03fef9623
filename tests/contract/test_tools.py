"""The tools through the official client, in both protocol generations, without any transport."""

import json
import re
from collections.abc import Callable
from typing import Any, Literal

import jsonschema
import pytest
from mcp.client import Client

from mcp_perception_buffer.answers.resources import Updates
from mcp_perception_buffer.answers.tools import create_mcp
from mcp_perception_buffer.answers.wording import RenderLimits
from mcp_perception_buffer.events.outbox import Outbox
from mcp_perception_buffer.memory.changes import Changes
from mcp_perception_buffer.tasks.static import StaticTaskSource
from mcp_perception_buffer.watcher import Watcher
from support import Scene, detection, detections, image, serialise, stamped_string

NO_ARGUMENTS: dict[str, Any] = {}
CALLS = [
    ("what_do_you_see", NO_ARGUMENTS),
    ("get_latest", {"skill": "find_object"}),
    ("what_changed", NO_ARGUMENTS),
    ("wait_for_change", {"timeout_s": 0.01}),
    ("list_streams", NO_ARGUMENTS),
    ("get_overlay_ref", {"skill": "find_object"}),
    ("get_watch_state", NO_ARGUMENTS),
    ("diagnose", {"skill": "find_object"}),
]


def empty() -> Scene:
    return Scene()


def full() -> Scene:
    scene = Scene()
    scene.put(
        "/vision/find_object/detections",
        detections(
            detection(score=float("nan"), mask=(320, 240), point=(1, 2, 3), track_id="t"),
            detection(box=(0, 0, 0, 0)),
        ),
    )
    scene.put("/vision/find_object/overlay", serialise(image(640, 480)))
    scene.put("/vision/describe_scene/objects", stamped_string('[{"a": null}, "☕", 1.5]'))
    scene.put("/camera/image_raw", serialise(image(640, 480)))
    scene.open("/vision/new/text")
    return scene


@pytest.fixture(params=["auto", "legacy"])
def mode(request: pytest.FixtureRequest) -> Literal["auto", "legacy"]:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=[empty, full], ids=["empty", "full"])
def scene(request: pytest.FixtureRequest) -> Scene:
    make: Callable[[], Scene] = request.param
    return make()


@pytest.fixture
def connection(scene: Scene, mode: Literal["auto", "legacy"]) -> Client:
    """Entered by the test itself: its task group must end in the task that began it."""
    watcher = Watcher(scene.buffer, StaticTaskSource([]), Outbox(push=False))
    limits = RenderLimits()
    changes, updates = Changes(scene.buffer), Updates(scene.buffer, limits)
    return Client(create_mcp(scene.buffer, limits, watcher, changes, updates), mode=mode)


async def test_every_answer_validates_against_its_schema_or_is_an_error(connection: Client) -> None:
    async with connection as client:
        schemas = {tool.name: tool.output_schema for tool in (await client.list_tools()).tools}
        for name, arguments in CALLS:
            result = await client.call_tool(name, arguments)
            if result.is_error:
                assert result.structured_content is None
                assert "Known skills" in result.content[0].text  # type: ignore[union-attr]
            else:
                jsonschema.validate(result.structured_content, schemas[name])
                json.dumps(result.structured_content, allow_nan=False).encode()


@pytest.mark.parametrize("scene", [full], indirect=True)
async def test_no_answer_carries_pixels(connection: Client) -> None:
    async with connection as client:
        for name, arguments in CALLS:
            result = await client.call_tool(name, arguments)
            assert not result.is_error
            assert len(result.model_dump_json()) < 10_000
            assert [block.type for block in result.content] == ["text"]


async def test_tools_are_read_only_and_described_for_a_model(connection: Client) -> None:
    async with connection as client:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == [name for name, _ in CALLS]
        for tool in tools:
            assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", tool.name)
            assert tool.title
            assert len(tool.description or "") > 50
            assert tool.output_schema
            assert tool.annotations is not None
            assert tool.annotations.read_only_hint is True
            assert tool.annotations.destructive_hint is False


@pytest.mark.parametrize("scene", [full], indirect=True)
async def test_an_unknown_skill_is_an_error_that_names_the_known_ones(connection: Client) -> None:
    async with connection as client:
        for name in ("get_latest", "get_overlay_ref"):
            result = await client.call_tool(name, {"skill": "nope"})
            assert result.is_error
            assert "find_object" in result.content[0].text  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("get_latest", {}),
        ("get_latest", {"skill": None}),
        ("get_latest", {"skill": ["a"]}),
        ("get_latest", {"skill": "x" * 100_000}),
        ("get_latest", {"skill": "\u202e\x00\ud7ff"}),
        ("what_do_you_see", {"surplus": {"deep": [1]}}),
        ("no_such_tool", {}),
    ],
)
async def test_nothing_a_caller_sends_ends_the_session(
    connection: Client, name: str, arguments: dict[str, Any]
) -> None:
    async with connection as client:
        try:
            await client.call_tool(name, arguments)
        except Exception as error:  # the SDK's own protocol errors
            assert "Internal" not in str(error)  # noqa: PT017
        assert not (await client.call_tool("what_do_you_see", {})).is_error
