"""The ROS 2 node: subscriptions that follow the graph.

Reconciling keeps the set of streams equal to what is published under the watched prefixes. What
is wrong with one topic is reported and costs the others nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import time
from typing import TYPE_CHECKING, Any

import rclpy
import structlog
from rclpy.context import Context
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from rclpy.utilities import get_rmw_implementation_identifier

from mcp_perception_buffer.decoding.decoder import MAX_REASON_CHARS, Decoder
from mcp_perception_buffer.decoding.text import one_line
from mcp_perception_buffer.errors import UnavailableError
from mcp_perception_buffer.model import Unsupported
from mcp_perception_buffer.sources.base import Source
from mcp_perception_buffer.sources.mapping import find_unmapped, why_taken
from mcp_perception_buffer.sources.ros_executor import AsyncioExecutor
from mcp_perception_buffer.sources.ros_stream import LATCHED, Request, RosStream, publisher_gids
from mcp_perception_buffer.sources.ros_types import (
    installed_definition,
    is_foreign,
    why_not_loadable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from rclpy.client import Client
    from rclpy.topic_endpoint_info import TopicEndpointInfo

    from mcp_perception_buffer.buffer import Buffer
    from mcp_perception_buffer.sources.ros_stream import Said
    from mcp_perception_buffer.sources.topics import TopicFilter

log = structlog.get_logger(__name__)

# A graph that keeps changing is followed at this pace; ten microseconds a topic.
RECONCILE_PAUSE_S = 0.1
# How long after start-up a graph query may still miss what is there.
DISCOVERY_S = 3.0
# How often, at most, all of the graph is asked although no change was told; none should go untold.
RECOUNT_INTERVAL_S = 10.0
HEARTBEAT_INTERVAL_S = 1.0
BEATS_PER_NUDGE = 10
# Closed streams whose last messages are remembered, so that repeated ones are known as such.
MAX_CLOSED = 1000


class PartEndedError(RuntimeError):
    """A task that must run as long as the source does has ended; the text names it."""


class RosSource(Source):
    """Subscribes to every readable topic under the watched prefixes, and to the camera."""

    def __init__(
        self,
        buffer: Buffer,
        topics: TopicFilter,
        *,
        reconcile_interval_s: float = 2.0,
        ros_args: Sequence[str] = (),
        decoder: Decoder | None = None,
    ) -> None:
        """Prepare; nothing of ROS is touched before `run`.

        Args:
            buffer: receives the messages.
            topics: which topics are wanted and what each carries.
            reconcile_interval_s: how soon what could not be read is tried again.
            ros_args: what follows `--ros-args` on the command line, that word included.
            decoder: the one the buffer reads with; says which types can be read.
        """
        self._buffer = buffer
        self._topics = topics
        self._reconcile_interval_s = reconcile_interval_s
        self._ros_args = list(ros_args)
        self._decoder = decoder or Decoder(installed_definition)
        self._live: dict[str, RosStream] = {}
        self._said: dict[str, Mapping[bytes, Said]] = {}  # by topic, of streams that were closed
        self._opened: set[str] = set()  # topics that the buffer takes for published
        self._settled: dict[str, list[Any]] = {}  # the publishers of streams without a conflict
        self._executor: AsyncioExecutor | None = None
        self._node: Node | None = None
        self._clients: dict[str, Client[Any, Any]] = {}
        self._tasks = asyncio.TaskGroup()
        self._required: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Queue[str]()
        self._network: dict[str, str] = {}
        self._warned: set[Unsupported] = set()
        self._graph: list[tuple[str, list[str]]] = []  # topics and their types
        self._wanted: list[str] = []  # of these topics

    def find_definition(self, type_name: str) -> str:
        """See `installed_definition`."""
        return installed_definition(type_name)

    @property
    def last_beat_ns(self) -> int:
        """When the executor last went through a full wake."""
        return self._executor.last_spin_ns if self._executor else 0

    def network(self) -> dict[str, str]:
        """See `Source.network`."""
        return dict(self._network)

    async def call_service(
        self, service_type: Any, name: str, request: Any, *, timeout_s: float
    ) -> Any:
        """Call a service from this source's node; the client is kept for the next call.

        Raises:
            UnavailableError: this source does not run, or nobody offers the service.
            TimeoutError: no response within `timeout_s`.
        """
        if self._executor is None or self._node is None:
            raise UnavailableError("ROS is not running")
        client = self._clients.get(name)
        if client is None:
            client = self._clients[name] = self._node.create_client(service_type, name)
        if not client.service_is_ready():
            raise UnavailableError(f"nobody offers {name}")
        return await self._executor.call(client, request, timeout_s=timeout_s)

    async def run(self, on_ready: Callable[[], None]) -> None:
        """See `Source.run`."""
        context = Context()
        try:
            rclpy.init(
                args=self._ros_args,
                context=context,
                signal_handler_options=SignalHandlerOptions.NO,
            )
            # Read-only and lean: it offers no parameters to set and publishes nothing.
            node = Node(
                "mcp_perception_buffer",
                context=context,
                start_parameter_services=False,
                enable_rosout=False,
            )
            executor = self._executor = AsyncioExecutor(context=context)
        except Exception as error:  # rcl's own types, from bad arguments to an unreachable DDS
            context.try_shutdown()
            raise UnavailableError(f"ROS could not be started: {error}") from error
        executor.add_node(node)
        self._node = node
        self._network = _network(context)
        try:
            async with self._tasks as tasks:
                tasks.create_task(self._fail_with_parts(), name="supervise")
                self._spawn(executor.run(), "executor")
                self._spawn(self._beat(executor), "ros-heartbeat")
                self._spawn(self._follow_graph(executor, node, on_ready), "reconcile")
        finally:
            executor.shutdown()
            for stream in self._live.values():
                stream.close()
            self._live.clear()
            self._node = None
            self._clients.clear()
            node.destroy_node()
            context.try_shutdown()

    def _spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run a task without which the source must not go on."""
        task = self._tasks.create_task(coroutine, name=name)
        self._required.add(task)
        task.add_done_callback(self._note_end)
        return task

    def _note_end(self, task: asyncio.Task[None]) -> None:
        if task in self._required:
            self._required.discard(task)
            self._ended.put_nowait(task.get_name())

    async def _fail_with_parts(self) -> None:
        # The task group minds failures, but neither a plain return nor a stray cancel.
        raise PartEndedError(f"{await self._ended.get()} ended")

    async def _beat(self, executor: AsyncioExecutor) -> None:
        for beat in itertools.count(1):
            executor.ping()
            if beat % BEATS_PER_NUDGE == 0:
                executor.nudge()
            await asyncio.sleep(HEARTBEAT_INTERVAL_S)

    async def _follow_graph(
        self, executor: AsyncioExecutor, node: Node, on_ready: Callable[[], None]
    ) -> None:
        started = time.monotonic()
        if (topic := self._topics.camera_topic) is not None and "*" not in topic:
            # Reported even if it never appears.
            camera = self._topics.classify(topic, "")
            assert camera is not None
            self._buffer.open(camera, publishers=0)
        changed = executor.graph_changed
        changed.set()
        due = recount_at = started
        discovered_at = started + DISCOVERY_S
        while True:
            now = time.monotonic()
            self._buffer.discovering = now < discovered_at
            moved = changed.is_set()
            if moved or now >= due:
                changed.clear()
                self._reconcile(node, moved=moved, recount=now >= recount_at)
                self._buffer.expire()
                took_ms = round((time.monotonic() - now) * 1e3, 3)
                log.debug("graph_reconciled", streams=len(self._live), duration_ms=took_ms)
                # After a change once more: its connections are made a moment later.
                due = now + (0.0 if moved else self._reconcile_interval_s)
                if moved:
                    recount_at = now
                elif now >= recount_at:
                    recount_at = now + RECOUNT_INTERVAL_S
                on_ready()
            await asyncio.sleep(RECONCILE_PAUSE_S)
            until = min(due, discovered_at) if self._buffer.discovering else due
            with contextlib.suppress(TimeoutError):
                # Not `wait_for`, which on Python 3.11 may swallow a cancellation.
                async with asyncio.timeout(until - time.monotonic()):
                    await changed.wait()

    def _reconcile(self, node: Node, *, moved: bool, recount: bool) -> None:
        """Make streams equal to what is published.

        Where the graph has not `moved` since the last time, topics of which all is decided are left
        alone once they are settled; with `recount` their publishers are counted.
        """
        if moved or recount:
            graph = sorted(node.get_topic_names_and_types())
            moved = moved or graph != self._graph
            # Without a change, too: of what is published, types may have been installed since.
            if recount or graph != self._graph:
                self._graph = graph
                self._sort(graph)
        unsupported: list[Unsupported] = []
        published: set[str] = set()
        for topic in self._wanted:
            type_name: str | None = None
            settled = gids = self._settled.pop(topic, None)
            try:
                # `node.count_publishers` would expand a name that is complete already.
                if (
                    not settled
                    or moved
                    or (recount and node.handle.get_count_publishers(topic) != len(settled))
                ):
                    gids = publisher_gids(node, topic)
                if not gids:
                    continue  # only subscribers, perhaps we ourselves
                published.add(topic)
                # A publisher never changes its type or QoS: with the same ones all is decided.
                if settled == gids and (
                    (not (moved or recount) and self._live[topic].is_settled(len(gids)))
                    or self._updated(topic)
                ):
                    self._settled[topic] = gids
                    continue
                publishers = node.get_publishers_info_by_topic(topic)
                type_name, conflicts = self._choose_type(topic, publishers)
                unsupported += conflicts
                if type_name is None:
                    self._note_gone(topic)
                    continue
                self._follow_publishers(node, topic, type_name, publishers)
                if not conflicts:
                    self._settled[topic] = gids
            except Exception as error:
                # rcl's own types, also for a name that only other DDS software allows; the other
                # topics go on.
                reason = f"cannot subscribe: {error}"
                unsupported.append(self._unsupported(topic, type_name or "", reason))
                published.add(topic)
        for topic in self._opened - published:
            self._note_gone(topic)
        self._report(unsupported)

    def _sort(self, graph: Sequence[tuple[str, Sequence[str]]]) -> None:
        """Find out which topics are wanted, and which others somebody may miss."""
        self._wanted = [
            topic for topic, types in graph if any(self._topics.classify(topic, t) for t in types)
        ]
        wanted = set(self._wanted)
        others = ((topic, types[0]) for topic, types in graph if types and topic not in wanted)
        self._buffer.unmapped = find_unmapped(others, self._decoder)

    def _follow_publishers(
        self, node: Node, topic: str, type_name: str, publishers: list[TopicEndpointInfo]
    ) -> None:
        info = self._topics.classify(topic, type_name)
        assert info is not None  # only wanted topics are followed
        readable = [p for p in publishers if p.topic_type == type_name and not _foreign(p)]
        offered = [p.qos_profile for p in readable]
        request = Request.matching(offered)
        stream = self._live.get(topic)
        if stream is not None and (stream.info != info or stream.request != request):
            self._close(topic)
            stream = None
        self._buffer.open(info, publishers=len(readable))
        self._opened.add(topic)
        if stream is None:
            before = self._said.get(topic)
            stream = RosStream(node, self._buffer, info, request, self._spawn, before)
            self._said.pop(topic, None)
            self._live[topic] = stream
        if any(p.durability == LATCHED.durability for p in offered):
            stream.fetch_latched()
        stream.update()

    def _choose_type(
        self, topic: str, publishers: list[TopicEndpointInfo]
    ) -> tuple[str | None, list[Unsupported]]:
        """Pick the type to read of those published on one topic; the same one every time."""
        live = self._live.get(topic)
        current = live.info.type if live else None
        variants = {(_foreign(p), p.topic_type != current, p.topic_type) for p in publishers}
        reasons = {
            (foreign, type_name): self._why_unreadable(topic, type_name, foreign)
            for foreign, _, type_name in sorted(variants)
        }
        chosen = next((variant for variant, reason in reasons.items() if not reason), None)
        return chosen[1] if chosen else None, [
            self._unsupported(
                topic,
                variant[1],
                reason or f"conflict: {chosen and chosen[1]} is read from this topic",
            )
            for variant, reason in reasons.items()
            if variant != chosen
        ]

    def _why_unreadable(self, topic: str, type_name: str, foreign: bool) -> str | None:
        if foreign:
            return (
                f"its publisher defines {type_name} otherwise than it is installed here; install"
                " the same version of the package on both sides"
            )
        info = self._topics.classify(topic, type_name)
        assert info is not None  # only wanted topics are looked at
        try:
            return (
                self._decoder.why_unreadable(info.kind, type_name, info.reading)
                or why_taken(info, self._buffer, self._opened)
                or why_not_loadable(type_name)
            )
        except Exception as error:  # a broken package may raise anything when it is loaded
            return f"{type_name} cannot be loaded: {type(error).__name__}: {error}"

    def _unsupported(self, topic: str, type_name: str, reason: str) -> Unsupported:
        info = self._topics.classify(topic, type_name)
        return Unsupported(
            topic, type_name, one_line(reason, MAX_REASON_CHARS), info.skill if info else ""
        )

    def _updated(self, topic: str) -> bool:
        try:
            self._live[topic].update()
        except Exception:  # rcl's own types; it is followed, and reported, in full then
            return False
        return True

    def _note_gone(self, topic: str) -> None:
        if topic in self._opened:
            self._opened.remove(topic)
            if topic in self._live:  # unless it could not be subscribed to
                self._close(topic)
            self._buffer.set_publishers(topic, 0)

    def _close(self, topic: str) -> None:
        stream = self._live.pop(topic)
        self._settled.pop(topic, None)
        self._required.discard(stream.consumer)
        stream.close()
        if len(self._said) >= MAX_CLOSED:
            del self._said[next(iter(self._said))]
        self._said[topic] = stream.said

    def _report(self, unsupported: list[Unsupported]) -> None:
        self._buffer.unsupported = tuple(unsupported)
        for entry in set(unsupported) - self._warned:
            log.warning(
                "topic_unsupported", topic=entry.topic, type=entry.type, reason=entry.reason
            )
        self._warned = set(unsupported)


def _foreign(publisher: TopicEndpointInfo) -> bool:
    return is_foreign(publisher.topic_type, str(publisher.topic_type_hash))


def _network(context: Context) -> dict[str, str]:
    environ = os.environ
    reach = "LOCALHOST" if environ.get("ROS_LOCALHOST_ONLY") == "1" else "SUBNET"
    return {
        "domain id": str(context.get_domain_id()),
        "middleware": get_rmw_implementation_identifier(),
        "discovery range": environ.get("ROS_AUTOMATIC_DISCOVERY_RANGE", reach),
        "transports": environ.get("FASTDDS_BUILTIN_TRANSPORTS", "default"),
    }
