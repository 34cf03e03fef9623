"""One topic's subscription: QoS that all its publishers can meet, losses counted, events shown.

Its callback hands raw CDR bytes to the stream's `Ingest`, whose consumer fills the buffer.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.event_handler import (
    QoSSubscriptionEventType,
    SubscriptionEventCallbacks,
    UnsupportedEventTypeError,
)
from rclpy.impl.implementation_singleton import rclpy_implementation as _rclpy
from rclpy.qos import (
    DurabilityPolicy,
    HistoryPolicy,
    QoSProfile,
    ReliabilityPolicy,
    qos_policy_name_from_kind,
)

from mcp_perception_buffer.ingest import Ingest
from mcp_perception_buffer.model import Link
from mcp_perception_buffer.sources.ros_types import load_type

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from rclpy.node import Node
    from rclpy.subscription import Subscription

    from mcp_perception_buffer.buffer import Buffer
    from mcp_perception_buffer.model import StreamInfo

log = structlog.get_logger(__name__)

# Messages that DDS holds for us. Of images only the newest is of interest; small ones have to
# wait here until one lost before them is sent again, which a lossy link delays by seconds.
QOS_DEPTH = {"semantic": 256, "detections": 32, "overlay": 1, "camera": 1}
# How long latched messages may take to arrive where other publishers are not latched.
LATCHED_WAIT_S = 2.0
# Publishers of one topic whose sequence numbers are followed; then counting begins anew.
MAX_PUBLISHERS = 64


class Said(NamedTuple):
    """The last message of a publisher: its sequence number, and when it was received."""

    number: int
    received_ns: int


class Request(NamedTuple):
    """The QoS that a subscription asks for."""

    reliability: ReliabilityPolicy
    durability: DurabilityPolicy

    @classmethod
    def matching(cls, offered: Sequence[QoSProfile]) -> Request:
        """Ask for what all publishers offer: a stronger one would match none of the weaker."""
        reliable = all(p.reliability == ReliabilityPolicy.RELIABLE for p in offered)
        latched = all(p.durability == DurabilityPolicy.TRANSIENT_LOCAL for p in offered)
        return cls(
            ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT,
            DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE,
        )

    def profile(self, depth: int) -> QoSProfile:
        """Return it in full; discovery reports no usable history."""
        return QoSProfile(
            history=HistoryPolicy.KEEP_LAST,
            depth=depth,
            reliability=self.reliability,
            durability=self.durability,
        )

    def __str__(self) -> str:
        return f"{self.reliability.name}, {self.durability.name}".lower().replace("_", " ")


LATCHED = Request(ReliabilityPolicy.RELIABLE, DurabilityPolicy.TRANSIENT_LOCAL)


class RosStream:
    """Subscribed from its making until `close`."""

    def __init__(
        self,
        node: Node,
        buffer: Buffer,
        info: StreamInfo,
        request: Request,
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
        before: Mapping[bytes, Said] | None = None,
    ) -> None:
        """Subscribe, and let `spawn` run the consumer, by name.

        `before` is `said` of this topic's stream before this one.

        Raises:
            Exception: one of rcl's own types, when it cannot be subscribed to.
        """
        self._node = node
        self._buffer = buffer
        self.info = info
        self.request = request
        self._qos = str(request)
        self._ingest = Ingest(info, buffer)
        self._before = before or {}
        self._last: dict[bytes, Said] = {}  # by publisher
        self._matched: int | None = None  # not asked yet
        known = buffer.view(info.topic)
        self._heard = known is not None and known.received > 0
        self._latched: Subscription[Any] | None = None
        self._latched_until: float | None = None
        self._subscription = self._subscribe(request, self._take)
        self._incompatible: Any = None
        # Only ever asked: waited for, each would be one more entry in every wait set.
        with contextlib.suppress(UnsupportedEventTypeError):
            self._incompatible = _rclpy.EventHandle(
                self._subscription.handle,
                QoSSubscriptionEventType.RCL_SUBSCRIPTION_REQUESTED_INCOMPATIBLE_QOS,
            )
        self._mismatch: str | None = None
        self.consumer = spawn(self._ingest.run(), f"consume:{info.topic}")
        log.info("stream_opened", topic=info.topic, type=info.type, qos=self._qos)

    def fetch_latched(self) -> None:
        """Also take what latched publishers said before, although others are not latched.

        Such a topic can only be subscribed to as volatile, which leaves these messages out.
        """
        volatile = self.request.durability != LATCHED.durability
        if volatile and not self._heard and self._latched_until is None:
            self._latched = self._subscribe(LATCHED, self._take_latched)
            self._latched_until = time.monotonic() + LATCHED_WAIT_S

    def update(self) -> None:
        """Tell the buffer how the subscription stands with its publishers."""
        if self._latched is not None and time.monotonic() > (self._latched_until or 0.0):
            self._node.destroy_subscription(self._latched)
            self._latched = None
        matched = self._subscription.get_publisher_count()
        event = None
        if self._incompatible is not None:
            with self._incompatible:
                event = self._incompatible.take_event()
        refused = event if event is not None and event.total_count_change else None
        if matched == self._matched and refused is None:
            return
        if refused is not None:
            self._mismatch = qos_policy_name_from_kind(refused.last_policy_kind).lower()
            log.warning("qos_incompatible", topic=self.info.topic, policy=self._mismatch)
        if matched != self._matched:
            self._matched = matched
            self._last.pop(b"", None)
        self._buffer.set_link(self.info.topic, Link(matched, self._qos, self._mismatch))

    def is_settled(self, publishers: int) -> bool:
        """Say whether the last `update` found so many connected, and nothing left to wait for."""
        return self._matched == publishers and self._latched is None

    @property
    def said(self) -> Mapping[bytes, Said]:
        """The last message of each publisher, those of the streams before this one included."""
        return dict([*self._before.items(), *self._last.items()][-MAX_PUBLISHERS:])

    def close(self) -> None:
        """Unsubscribe and end the consumer; what was taken is in the buffer then."""
        self.consumer.cancel()
        self._ingest.drain()
        if self._incompatible is not None:
            self._incompatible.destroy_when_not_in_use()
        for subscription in (self._latched, self._subscription):
            if subscription is not None:
                self._node.destroy_subscription(subscription)
        log.info("stream_closed", topic=self.info.topic)

    def _subscribe(self, request: Request, callback: Callable[..., None]) -> Subscription[Any]:
        return self._node.create_subscription(
            load_type(self.info.type),
            self.info.topic,
            callback,
            request.profile(QOS_DEPTH[self.info.kind]),
            raw=True,
            # One of its own: the node's would keep a reference to it for ever.
            callback_group=MutuallyExclusiveCallbackGroup(),
            event_callbacks=SubscriptionEventCallbacks(use_default_callbacks=False),
        )

    def _take(self, cdr: bytes, message_info: dict[str, Any]) -> None:
        self._heard = True
        received_ns = time.monotonic_ns()
        # The gaps show every loss, in the network or in DDS; not every middleware tells them. Jazzy
        # does not say whose message it is, which matters only where several publish.
        gid, number = message_info.get("publisher_gid"), message_info["publication_sequence_number"]
        if number is not None and (gid is not None or self._matched == 1):
            publisher = gid["data"] if gid else b""
            before, last = self._before.get(publisher), self._last.get(publisher)
            if gid and before is not None and number <= before.number:
                # A latched publisher repeats it to a new subscription. It is as old as it was, and
                # of interest only where it was forgotten meanwhile.
                known = self._buffer.view(self.info.topic)
                if number < before.number or (known is not None and known.received):
                    return
                received_ns = before.received_ns
            if last is not None and number > last.number + 1:
                self._buffer.count_lost(self.info.topic, number - last.number - 1)
            self._remember(publisher, Said(number, received_ns))
        self._ingest.offer(cdr, received_ns)

    def _take_latched(self, cdr: bytes, message_info: dict[str, Any]) -> None:
        if self._heard:
            return  # it would come after what is newer
        received_ns = time.monotonic_ns()
        gid, number = message_info.get("publisher_gid"), message_info["publication_sequence_number"]
        if gid and number is not None:
            self._remember(gid["data"], Said(number, received_ns))
        self._ingest.offer(cdr, received_ns)

    def _remember(self, publisher: bytes, said: Said) -> None:
        if publisher not in self._last and len(self._last) >= MAX_PUBLISHERS:
            self._last.clear()
        self._last[publisher] = said


def publisher_gids(node: Node, topic: str) -> list[Any]:
    """Return who publishes a topic; `get_publishers_info_by_topic` without its many objects."""
    with node.handle:
        found = _rclpy.rclpy_get_publishers_info_by_topic(node.handle, topic, False)
    return [publisher["endpoint_gid"] for publisher in found]
