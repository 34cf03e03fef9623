"""One suite for everything that lists tasks, the fake included."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from mcp_perception_buffer.errors import ConfigError
from mcp_perception_buffer.tasks.base import Task, TaskSource, TaskSourceError
from mcp_perception_buffer.tasks.static import StaticTaskSource
from mcp_perception_buffer.watch import parse
from processes import fresh_domain, publisher
from support import definition, eventually
from watching import FakeTaskSource, task

# What the simulator says, too.
LISTED: list[dict[str, Any]] = [
    {
        "skill_id": "task-1",
        "skill": "find_object",
        "state": "active",
        "condition": "a cup is on the table",
        "watch": {"output": "triggered", "equals": True},
    },
    {"skill_id": "task-2", "skill": "describe_scene", "state": "active"},
]


@contextlib.asynccontextmanager
async def static() -> AsyncIterator[TaskSource]:
    yield StaticTaskSource(LISTED)


@contextlib.asynccontextmanager
async def fake() -> AsyncIterator[TaskSource]:
    yield FakeTaskSource(
        task(condition="a cup is on the table"), Task("task-2", "describe_scene", "active")
    )


@contextlib.asynccontextmanager
async def ros_source(domain: str, **options: Any) -> AsyncIterator[TaskSource]:
    """The adapter on a running `RosSource`."""
    pytest.importorskip("rclpy", reason="run with --extra ros")
    from mcp_perception_buffer.buffer import Buffer
    from mcp_perception_buffer.decoding.decoder import Decoder
    from mcp_perception_buffer.sources.ros import RosSource
    from mcp_perception_buffer.sources.topics import TopicFilter
    from mcp_perception_buffer.tasks.ros_service import RosTaskSource

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROS_DOMAIN_ID", domain)
        source = RosSource(Buffer(Decoder(definition).decode), TopicFilter())
        ready = asyncio.Event()
        running = asyncio.create_task(source.run(ready.set))
        await asyncio.wait_for(ready.wait(), 20)
        try:
            yield RosTaskSource(source, **options)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


@contextlib.asynccontextmanager
async def ros_service() -> AsyncIterator[TaskSource]:
    domain = fresh_domain()
    async with publisher(domain=domain), ros_source(domain) as source:
        await eventually(lambda: answers(source))
        yield source


async def answers(source: TaskSource) -> bool:
    with contextlib.suppress(TaskSourceError):
        await source.list_tasks()
        return True
    return False


@pytest.fixture(params=[static, fake, pytest.param(ros_service, marks=pytest.mark.ros)])
async def source(request: pytest.FixtureRequest) -> AsyncIterator[TaskSource]:
    opened: Callable[[], contextlib.AbstractAsyncContextManager[TaskSource]] = request.param
    async with opened() as source:
        yield source


async def test_all_tasks_are_listed_with_what_is_watched_of_them(source: TaskSource) -> None:
    for _ in range(2):
        [watched, plain] = await source.list_tasks()
        assert (watched.skill_id, watched.skill) == ("task-1", "find_object")
        assert watched.condition == "a cup is on the table"
        assert parse(watched.watch) == parse('{"output": "triggered", "equals": true}')
        assert watched.watched
        assert plain == Task("task-2", "describe_scene", "active")
        assert not plain.watched


async def test_it_may_be_asked_several_times_at_once(source: TaskSource) -> None:
    listed = await asyncio.gather(*(source.list_tasks() for _ in range(5)))
    assert [[task.skill_id for task in tasks] for tasks in listed] == [["task-1", "task-2"]] * 5


@pytest.mark.parametrize(
    ("state", "watched"),
    [("active", True), ("", True), ("paused", True), ("anything new", True)]
    + [(state, False) for state in ("stopped", "Finished", " FAILED ", "cancelled", "done")],
)
def test_a_task_is_watched_unless_its_state_says_that_it_ended(state: str, watched: bool) -> None:
    assert Task("a", "b", state, watch="{}").watched is watched


@pytest.mark.parametrize("watch", ["", "  "])
def test_a_task_without_a_watch_is_not_watched(watch: str) -> None:
    assert not Task("a", "b", "active", watch=watch).watched


@pytest.mark.parametrize(
    "entries",
    [
        ["a"],
        [{"skill": "a"}],
        [{"skill_id": "", "skill": "a"}],
        [{"skill_id": "1"}],
        [{"skill_id": 1, "skill": "a"}],
        [{"skill_id": "1", "skill": "a", "watch": True}],
        [{"skill_id": "1", "skill": "a", "colour": "red"}],
        [{"skill_id": "1", "skill": "a"}, {"skill_id": "1", "skill": "b"}],
    ],
)
def test_wrong_tasks_in_the_configuration_are_refused(entries: Any) -> None:
    with pytest.raises(ConfigError, match="tasks: "):
        StaticTaskSource(entries)


# --- the vision node is another process ---------------------------------------------------------

SLOW_SERVICE = """
import sys, time, rclpy
from ros2_vision_interfaces.srv import ListVisionTasks
rclpy.init()
node = rclpy.create_node("slow")
def answer(request, response):
    sys.stdin.readline()
    return response
node.create_service(ListVisionTasks, "/robot_mcp_perception/list_vision_tasks", answer)
print("ready", flush=True)
rclpy.spin(node)
"""


@pytest.mark.ros
async def test_a_service_that_is_absent_comes_and_goes_is_reported_and_survived() -> None:
    domain = fresh_domain()
    async with ros_source(domain) as source:
        for _ in range(2):
            with pytest.raises(TaskSourceError, match="nobody offers /robot_mcp_perception/list"):
                await source.list_tasks()
            async with publisher(domain=domain) as node:
                await eventually(lambda: answers(source))
                await node.end()

            async def gone() -> bool:
                return not await answers(source)

            await eventually(gone)


@pytest.mark.ros
async def test_a_service_that_does_not_answer_is_given_up_in_time() -> None:
    domain = fresh_domain()
    async with (
        publisher(domain=domain, code=SLOW_SERVICE),
        ros_source(domain, timeout_s=0.3) as source,
    ):

        async def too_slow() -> bool:
            with pytest.raises(TaskSourceError) as caught:
                await source.list_tasks()
            return "did not answer within 0.3 s" in str(caught.value)

        await eventually(too_slow)


@pytest.mark.ros
async def test_without_a_running_node_it_says_so() -> None:
    async with ros_source(fresh_domain()) as source:
        pass
    with pytest.raises(TaskSourceError, match="ROS is not running"):
        await source.list_tasks()
