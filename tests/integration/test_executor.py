"""The executor alone: real rclpy, its publishers in another process where timing matters."""

import asyncio
import contextlib
import gc
import signal
import threading
import weakref
from collections.abc import AsyncIterator
from typing import Any

import pytest

from processes import fresh_domain, publisher
from support import eventually

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy", reason="run with --extra ros")

import rclpy  # noqa: E402
from rcl_interfaces.msg import Log  # noqa: E402
from rcl_interfaces.srv import GetParameters, ListParameters  # noqa: E402
from rclpy.context import Context  # noqa: E402
from rclpy.node import Node  # noqa: E402
from rclpy.signals import SignalHandlerOptions  # noqa: E402

from mcp_perception_buffer.buffer import Buffer  # noqa: E402
from mcp_perception_buffer.decoding.decoder import Decoder  # noqa: E402
from mcp_perception_buffer.model import StreamInfo  # noqa: E402
from mcp_perception_buffer.sources import ros_arrivals  # noqa: E402
from mcp_perception_buffer.sources.ros_arrivals import _set_callback as set_callback  # noqa: E402
from mcp_perception_buffer.sources.ros_executor import (  # noqa: E402
    MAX_TAKES_PER_SUBSCRIPTION,
    MAX_TAKES_PER_TURN,
    AsyncioExecutor,
    ExecutorStoppedError,
)
from mcp_perception_buffer.sources.ros_stream import LATCHED, RosStream  # noqa: E402
from mcp_perception_buffer.sources.ros_types import installed_definition  # noqa: E402


class Spinning:
    def __init__(self, domain: str) -> None:
        self.context = Context()
        rclpy.init(
            context=self.context,
            domain_id=int(domain),
            signal_handler_options=SignalHandlerOptions.NO,
        )
        self.node = Node("under_test", context=self.context)
        self.executor = AsyncioExecutor(context=self.context)
        self.executor.add_node(self.node)
        self.task = asyncio.create_task(self.executor.run())


@contextlib.asynccontextmanager
async def spinning(domain: str | None = None) -> AsyncIterator[Spinning]:
    running = Spinning(domain or fresh_domain())
    try:
        yield running
    finally:
        running.executor.shutdown()
        running.node.destroy_node()
        running.context.try_shutdown()
        await asyncio.gather(running.task, return_exceptions=True)


async def test_callbacks_run_on_the_loop_and_in_order() -> None:
    async with spinning() as ros:
        seen: list[tuple[str, int]] = []
        ros.node.create_subscription(
            Log, "/log", lambda m: seen.append((m.msg, threading.get_ident())), 1000
        )
        sender = ros.node.create_publisher(Log, "/log", 1000)
        for i in range(500):
            sender.publish(Log(msg=str(i)))
        await eventually(lambda: len(seen) == 500)
        assert [text for text, _ in seen] == [str(i) for i in range(500)]
        assert {thread for _, thread in seen} == {threading.get_ident()}


async def test_messages_of_another_process_arrive_raw() -> None:
    domain = fresh_domain()
    async with spinning(domain) as ros, publisher(domain=domain):
        from ros2_vision_interfaces.msg import StampedString

        seen: list[bytes] = []
        ros.node.create_subscription(
            StampedString, "/vision/describe_scene/scene", seen.append, 10, raw=True
        )
        await eventually(lambda: len(seen) >= 5)
        assert all(b"a cup and a plate on a table" in cdr for cdr in seen)


async def test_a_burst_leaves_the_loop_its_turns() -> None:
    async with spinning() as ros:
        turns = 0
        seen: list[int] = []  # the loop's turn in which each message was taken

        async def other_work() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        for i in range(20):
            ros.node.create_subscription(Log, f"/burst_{i}", lambda _: seen.append(turns), 200)
        senders = [ros.node.create_publisher(Log, f"/burst_{i}", 200) for i in range(20)]
        for sender in senders:
            for _ in range(100):
                sender.publish(Log())
        work = asyncio.create_task(other_work())
        await eventually(lambda: len(seen) == 2000)
        work.cancel()
        # Nobody took more at one go than is allowed, plus one stream's share.
        assert max(seen.count(turn) for turn in set(seen)) <= MAX_TAKES_PER_TURN + 16


async def test_streams_that_are_always_full_do_not_hold_back_quiet_ones() -> None:
    async with spinning() as ros:
        seen: list[str] = []

        def listen(topic: str) -> Any:
            ros.node.create_subscription(Log, topic, lambda _: seen.append(topic), 500)
            return ros.node.create_publisher(Log, topic, 500)

        busy = [listen(f"/busy_{i}") for i in range(6)]
        quiet = {f"/quiet_{i}": listen(f"/quiet_{i}") for i in range(10)}
        for sender in busy:
            for _ in range(300):
                sender.publish(Log())
        for sender in quiet.values():
            sender.publish(Log())
        await eventually(lambda: len(seen) == 6 * 300 + 10)
        # Each of the others had its share once before all of these had theirs.
        share = MAX_TAKES_PER_SUBSCRIPTION
        assert max(seen.index(topic) for topic in quiet) < 6 * share + 10


async def test_entities_come_and_go_while_messages_flow() -> None:
    async with spinning() as ros:
        steady: list[Any] = []
        ros.node.create_subscription(Log, "/steady", steady.append, 100)
        sender = ros.node.create_publisher(Log, "/steady", 100)
        for i in range(100):
            sender.publish(Log())
            short_lived = ros.node.create_subscription(Log, f"/short_{i}", lambda _: None, 10)
            timer = ros.node.create_timer(0.001, lambda: None)
            await asyncio.sleep(0)
            ros.node.destroy_subscription(short_lived)
            ros.node.destroy_timer(timer)
        await eventually(lambda: len(steady) >= 90)
        assert not ros.task.done()


async def test_streams_that_ended_leave_no_object_behind() -> None:
    info = StreamInfo("/vision/a/text", "a", "text", "semantic", "std_msgs/msg/String")

    def dead_references() -> int:
        gc.collect()
        return sum(type(o) is weakref.ref and o() is None for o in gc.get_objects())

    async with spinning() as ros:
        buffer = Buffer(Decoder(installed_definition).decode)
        buffer.open(info)

        def spawn(coroutine: Any, name: str) -> asyncio.Task[None]:
            return asyncio.create_task(coroutine, name=name)

        before = dead_references()
        for _ in range(100):
            stream = RosStream(ros.node, buffer, info, LATCHED, spawn)
            await asyncio.sleep(0)
            stream.close()
            await asyncio.gather(stream.consumer, return_exceptions=True)
        await eventually(lambda: dead_references() < before + 50)
        assert not ros.task.done()


async def test_an_entity_destroyed_by_a_callback_of_the_same_turn_is_skipped() -> None:
    async with spinning() as ros:
        late: list[Any] = []
        subscriptions: list[Any] = []

        def end_the_others(_: Any) -> None:
            for subscription in subscriptions[1:]:
                ros.node.destroy_subscription(subscription)
            late.append("first")

        subscriptions.append(ros.node.create_subscription(Log, "/x", end_the_others, 10))
        subscriptions.append(ros.node.create_subscription(Log, "/x", late.append, 10))
        ros.node.create_publisher(Log, "/x", 10).publish(Log())
        await eventually(lambda: late)
        sender = ros.node.create_publisher(Log, "/x", 10)
        sender.publish(Log())
        await eventually(lambda: late.count("first") >= 2)
        assert not ros.task.done()


async def test_a_callback_that_raises_costs_nobody_else_anything(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with spinning() as ros:
        seen: list[Any] = []
        mended: list[Any] = []

        def broken(_: Any) -> None:
            raise ValueError("a broken callback")

        async def broken_later(_: Any) -> None:
            raise ValueError("a broken coroutine")

        def broken_once(message: Any) -> None:
            mended.append(message)
            if len(mended) == 1:
                raise ValueError("once")

        ros.node.create_subscription(Log, "/x", broken, 10)
        ros.node.create_subscription(Log, "/x", broken_later, 10)
        ros.node.create_subscription(Log, "/x", broken_once, 10)
        ros.node.create_subscription(Log, "/x", seen.append, 10)
        sender = ros.node.create_publisher(Log, "/x", 10)
        sender.publish(Log())
        await eventually(lambda: seen)
        mended.clear()
        for _ in range(5):  # in one go, so that some wait behind the one that fails
            sender.publish(Log())
        await eventually(lambda: len(seen) == 6)
        await eventually(lambda: len(mended) == 5)
        assert "a broken callback" in capsys.readouterr().out


async def test_a_coroutine_callback_may_await_and_gets_message_info() -> None:
    async with spinning() as ros:
        seen: list[Any] = []

        async def later(message: Any, info: Any) -> None:
            await asyncio.sleep(0)
            seen.append((message.msg, info["source_timestamp"] > 0))

        ros.node.create_subscription(Log, "/x", later, 10)
        ros.node.create_publisher(Log, "/x", 10).publish(Log(msg="hello"))
        await eventually(lambda: seen == [("hello", True)])


async def test_a_service_is_called_with_await() -> None:
    async with spinning() as ros:
        client = ros.node.create_client(GetParameters, "/under_test/get_parameters")
        request = GetParameters.Request(names=["use_sim_time"])
        response = await ros.executor.call(client, request, timeout_s=10)
        assert [value.bool_value for value in response.values] == [False]


async def test_a_service_that_does_not_answer_is_a_timeout_and_leaves_nothing_behind() -> None:
    async with spinning() as ros:
        client = ros.node.create_client(ListParameters, "/nobody/list_parameters")
        with pytest.raises(TimeoutError):
            await ros.executor.call(client, ListParameters.Request(), timeout_s=0.05)
        assert not client._pending_requests


async def test_timers_and_services_run_too() -> None:
    async with spinning() as ros:
        ticks: list[int] = []
        ros.node.create_timer(0.01, lambda: ticks.append(1))
        ros.node.create_service(
            ListParameters, "/answer", lambda _, response: ticks.append(2) or response
        )
        client = ros.node.create_client(ListParameters, "/answer")
        await ros.executor.call(client, ListParameters.Request(), timeout_s=10)
        await eventually(lambda: ticks.count(1) >= 5)
        assert ticks.count(2) == 1


async def test_a_ping_goes_through_thread_and_loop() -> None:
    async with spinning() as ros:
        for _ in range(3):
            before = ros.executor.last_spin_ns
            ros.executor.ping()
            await eventually(lambda before=before: ros.executor.last_spin_ns > before)


async def test_a_message_that_the_middleware_tells_nobody_of_is_found_by_a_nudge() -> None:
    async with spinning() as ros:
        seen: list[Any] = []
        subscription = ros.node.create_subscription(Log, "/x", seen.append, 10)
        sender = ros.node.create_publisher(Log, "/x", 10)
        sender.publish(Log())
        await eventually(lambda: seen)
        set_callback(subscription.handle.pointer, None, None)
        sender.publish(Log())
        ros.executor.nudge()
        await eventually(lambda: len(seen) == 2)


async def test_subscriptions_that_share_a_descriptor_are_all_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ros_arrivals, "MAX_EVENTFDS", 2)
    async with spinning() as ros:
        seen: list[int] = []
        for i in range(7):
            ros.node.create_subscription(Log, f"/x_{i}", lambda _, i=i: seen.append(i), 10)
        senders = [ros.node.create_publisher(Log, f"/x_{i}", 10) for i in range(7)]
        for sender in senders:
            sender.publish(Log())
        await eventually(lambda: sorted(seen) == list(range(7)))


async def test_a_context_shut_down_by_others_ends_it_with_the_reason() -> None:
    async with spinning() as ros:
        await asyncio.sleep(0)
        ros.context.shutdown()
        with pytest.raises(ExecutorStoppedError, match="context was shut down"):
            await asyncio.wait_for(ros.task, 10)


async def test_shutdown_ends_its_thread_whatever_it_is_doing() -> None:
    for turns in range(20):
        async with spinning() as ros:
            ros.node.create_publisher(Log, "/x", 10).publish(Log())
            for _ in range(turns):
                await asyncio.sleep(0)
        assert not any(thread.name == "rcl-wait" for thread in threading.enumerate())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_the_simulator_ends_in_order_when_told_to(number: signal.Signals) -> None:
    async with publisher("--rate", "200", domain=fresh_domain()) as simulator:
        assert await simulator.end(number) == 0
