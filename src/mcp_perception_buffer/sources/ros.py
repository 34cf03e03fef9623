"""The ROS 2 node: subscriptions that follow the graph.

Callbacks hand raw CDR bytes to the stream's `Ingest`. Reconciling keeps the set of subscriptions
equal to what is published under the watched prefixes.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rclpy
import structlog
from rclpy.context import Context
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy
from rclpy.signals import SignalHandlerOptions

from mcp_perception_buffer.decode import Decoder
from mcp_perception_buffer.errors import SourceUnavailableError, UnknownTypeError
from mcp_perception_buffer.ingest import Ingest
from mcp_perception_buffer.model import StreamInfo, Unsupported
from mcp_perception_buffer.sources.base import Source
from mcp_perception_buffer.sources.ros_executor import AsyncioExecutor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rclpy.client import Client
    from rclpy.subscription import Subscription

    from mcp_perception_buffer.buffer import Buffer
    from mcp_perception_buffer.topics import TopicFilter

log = structlog.get_logger(__name__)

# How often the graph is looked at; a look costs microseconds, a reconcile only follows a change.
LOOK_INTERVAL_S = 0.2
# How long after start-up a graph query may still miss what is there.
DISCOVERY_S = 3.0
HEARTBEAT_INTERVAL_S = 1.0
# Messages that DDS holds for us between two wakes; of images only the newest is of interest.
QOS_DEPTH = 32
IMAGE_QOS_DEPTH = 1


@dataclass(slots=True)
class _Live:
    info: StreamInfo
    qos: tuple[ReliabilityPolicy, DurabilityPolicy]
    subscription: Subscription[Any]
    consumer: asyncio.Task[None]


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
            reconcile_interval_s: at the latest after this long the graph is compared in full.
            ros_args: what follows `--ros-args` on the command line, that word included.
            decoder: the one the buffer reads with; says which types can be read.
        """
        self._buffer = buffer
        self._topics = topics
        self._reconcile_interval_s = reconcile_interval_s
        self._ros_args = list(ros_args)
        self._decoder = decoder or Decoder(installed_definition)
        self._live: dict[str, _Live] = {}
        self._executor: AsyncioExecutor | None = None
        self._node: Node | None = None
        self._clients: dict[str, Client[Any, Any]] = {}
        self._warned: set[Unsupported] = set()
        self._graph: list[tuple[str, list[str]]] = []
        self._wanted: list[tuple[str, tuple[str, ...]]] = []

    @property
    def last_beat_ns(self) -> int:
        """When the executor last went through a full wake."""
        return self._executor.last_spin_ns if self._executor else 0

    async def call_service(
        self, service_type: Any, name: str, request: Any, *, timeout_s: float
    ) -> Any:
        """Call a service from this source's node; the client is kept for the next call.

        Raises:
            SourceUnavailableError: this source does not run, or nobody offers the service.
            TimeoutError: no response within `timeout_s`.
        """
        if self._executor is None or self._node is None:
            raise SourceUnavailableError("ROS is not running")
        client = self._clients.get(name)
        if client is None:
            client = self._clients[name] = self._node.create_client(service_type, name)
        if not client.service_is_ready():
            raise SourceUnavailableError(f"nobody offers {name}")
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
        except Exception as error:  # rcl's own types, from bad arguments to an unreachable DDS
            context.try_shutdown()
            raise SourceUnavailableError(f"ROS could not be started: {error}") from error
        executor = self._executor = AsyncioExecutor(context=context)
        executor.add_node(node)
        self._node = node
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(executor.run(), name="executor")
                tasks.create_task(self._beat(executor), name="heartbeat")
                tasks.create_task(self._follow_graph(node, tasks, on_ready), name="reconcile")
        finally:
            executor.shutdown()
            for live in self._live.values():
                node.destroy_subscription(live.subscription)
            self._live.clear()
            self._node = None
            self._clients.clear()
            node.destroy_node()
            context.try_shutdown()

    async def _beat(self, executor: AsyncioExecutor) -> None:
        while True:
            executor.ping()
            await asyncio.sleep(HEARTBEAT_INTERVAL_S)

    async def _follow_graph(
        self, node: Node, tasks: asyncio.TaskGroup, on_ready: Callable[[], None]
    ) -> None:
        started = time.monotonic()
        if self._topics.camera_topic is not None:  # reported even if it never appears
            camera = self._topics.classify(self._topics.camera_topic, "")
            assert camera is not None
            self._buffer.open(camera, publishers=0)
        seen: object = None
        next_full = started
        while True:
            now = time.monotonic()
            self._buffer.discovering = now - started < DISCOVERY_S
            wanted = self._look(node)
            if wanted != seen or now >= next_full:
                complete = self._reconcile(node, tasks, [topic for topic, _, _ in wanted])
                self._buffer.expire()
                # What could not be subscribed to is tried again at the next look.
                seen = wanted if complete else None
                next_full = now + self._reconcile_interval_s
                on_ready()
            await asyncio.sleep(LOOK_INTERVAL_S)

    def _look(self, node: Node) -> list[tuple[str, tuple[str, ...], int]]:
        """Return the wanted topics with their types and number of publishers."""
        graph = node.get_topic_names_and_types()
        if graph != self._graph:
            self._graph = graph
            self._wanted = [
                (topic, tuple(types))
                for topic, types in sorted(graph)
                if self._topics.classify(topic, "") is not None
            ]
        return [(topic, types, node.count_publishers(topic)) for topic, types in self._wanted]

    def _reconcile(self, node: Node, tasks: asyncio.TaskGroup, wanted: list[str]) -> bool:
        """Make subscriptions equal to what is published; False if one has to be tried again."""
        complete = True
        unsupported: list[Unsupported] = []
        published: set[str] = set()
        for topic in wanted:
            publishers = node.get_publishers_info_by_topic(topic)
            if not publishers:
                continue  # only subscribers, perhaps we ourselves
            published.add(topic)
            type_name, conflicts = self._choose_type(topic, {p.topic_type for p in publishers})
            unsupported += conflicts
            if type_name is None:
                continue
            info = self._topics.classify(topic, type_name)
            assert info is not None  # `wanted` holds classified topics
            matching = [p for p in publishers if p.topic_type == type_name]
            qos = _matching_qos([p.qos_profile for p in matching])
            self._buffer.open(info, publishers=len(matching))
            live = self._live.get(topic)
            if live is not None and (live.info != info or live.qos != qos):
                self._close(node, topic)
                live = None
            if live is None:
                try:
                    self._subscribe(node, tasks, info, qos)
                except Exception as error:  # rcl's own types; the other topics go on
                    unsupported.append(Unsupported(topic, type_name, f"cannot subscribe: {error}"))
                    complete = False
        for topic in self._live.keys() - published:
            self._close(node, topic)
            self._buffer.set_publishers(topic, 0)
        self._report(unsupported)
        return complete

    def _choose_type(self, topic: str, types: set[str]) -> tuple[str | None, list[Unsupported]]:
        """Pick the type to read of those published on one topic; the same one every time."""
        live = self._live.get(topic)
        current = live.info.type if live else None
        reasons = {}
        for type_name in sorted(types, key=lambda name: (name != current, name)):
            info = self._topics.classify(topic, type_name)
            reasons[type_name] = info and (
                self._decoder.why_unsupported(info.kind, type_name) or _why_not_loadable(type_name)
            )
        readable = [type_name for type_name, reason in reasons.items() if not reason]
        chosen = readable[0] if readable else None
        return chosen, [
            Unsupported(topic, type_name, reason or f"conflict: {chosen} is read from this topic")
            for type_name, reason in reasons.items()
            if type_name != chosen
        ]

    def _subscribe(
        self,
        node: Node,
        tasks: asyncio.TaskGroup,
        info: StreamInfo,
        qos: tuple[ReliabilityPolicy, DurabilityPolicy],
    ) -> None:
        ingest = Ingest(info, self._buffer)
        subscription = node.create_subscription(
            _load_type(info.type),
            info.topic,
            ingest.offer,
            QoSProfile(
                history=HistoryPolicy.KEEP_LAST,
                depth=IMAGE_QOS_DEPTH if info.kind.is_image else QOS_DEPTH,
                reliability=qos[0],
                durability=qos[1],
            ),
            raw=True,
            # Each event would be one more entry in every wait; the graph says the same.
            event_callbacks=SubscriptionEventCallbacks(use_default_callbacks=False),
        )
        consumer = tasks.create_task(ingest.run(), name=f"consume:{info.topic}")
        self._live[info.topic] = _Live(info, qos, subscription, consumer)
        log.info("stream_opened", topic=info.topic, type=info.type, kind=info.kind)

    def _close(self, node: Node, topic: str) -> None:
        live = self._live.pop(topic)
        live.consumer.cancel()
        node.destroy_subscription(live.subscription)
        log.info("stream_closed", topic=topic)

    def _report(self, unsupported: list[Unsupported]) -> None:
        self._buffer.unsupported = tuple(unsupported)
        for entry in set(unsupported) - self._warned:
            log.warning(
                "topic_unsupported", topic=entry.topic, type=entry.type, reason=entry.reason
            )
        self._warned = set(unsupported)


def _matching_qos(profiles: list[QoSProfile]) -> tuple[ReliabilityPolicy, DurabilityPolicy]:
    """Ask for what all publishers offer: a stronger request would match none of the weaker."""
    reliable = all(p.reliability == ReliabilityPolicy.RELIABLE for p in profiles)
    latched = all(p.durability == DurabilityPolicy.TRANSIENT_LOCAL for p in profiles)
    return (
        ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT,
        DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE,
    )


def _load_type(type_name: str) -> Any:
    package, _, name = type_name.partition("/msg/")
    return getattr(importlib.import_module(f"{package}.msg"), name)


def _why_not_loadable(type_name: str) -> str | None:
    try:
        _load_type(type_name)
    except (ImportError, AttributeError) as error:
        return f"{type_name} cannot be loaded: {error}"
    return None


def installed_definition(type_name: str) -> str:
    """Read a type's `.msg` file from the ROS installation.

    The sourced prefixes come first; ROS wheels put theirs into the Python environment itself.

    Raises:
        UnknownTypeError: no prefix holds it.
    """
    package, _, name = type_name.partition("/msg/")
    prefixes = [p for p in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep) if p]
    for prefix in (*prefixes, sys.prefix):
        path = Path(prefix, "share", package, "msg", f"{name}.msg")
        if name.isidentifier() and path.is_file():
            return path.read_text(encoding="utf-8")
    raise UnknownTypeError(
        f"no definition of {type_name} is installed; install the package {package or type_name}"
    )
