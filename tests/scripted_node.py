"""A ROS node of a process of its own that publishes what a test says.

Lines on stdin are `open=JSON`, which replaces what the topic had, or `close=TOPIC`. The JSON has
`topic` and `type`, and may have `reliable`, `latched`, `rate` (Hz; without it once), `fields` (of
the message, nested, or a list of such, taken in turn; a stamp they leave out is now),
`cdr` (hex, sent as it is), `fill` (bytes of `data`), `depth`, `burst` (messages at once).
Its arguments are the first such lines, and what ROS is told.
"""

import importlib
import itertools
import json
import re
import signal
import sys
import threading
import time
from typing import Any

import rclpy
from rclpy.clock import Clock, ClockType
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.signals import SignalHandlerOptions
from rclpy.utilities import remove_ros_args


def load(type_name: str) -> Any:
    package, _, name = type_name.replace("/msg/", "/").partition("/")
    return getattr(importlib.import_module(f"{package}.msg"), name)


def fill(message: Any, fields: dict[str, Any]) -> None:
    """Set fields by nested plain values, messages in lists included."""
    for name, value in fields.items():
        if isinstance(value, dict):
            fill(getattr(message, name), value)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            fill_list(message, name, value)
        else:
            is_float = isinstance(getattr(message, name), float)
            setattr(message, name, float(value) if is_float else value)


def fill_list(message: Any, name: str, values: list[dict[str, Any]]) -> None:
    kind = message.get_fields_and_field_types()[name]
    if sequence := re.match(r"sequence<([\w/]+)", kind):
        setattr(message, name, [load(sequence[1])() for _ in values])
    # An array has all its messages already; those beyond the values stay as they are.
    for element, fields in zip(getattr(message, name), values, strict=False):
        fill(element, fields)


class Publishing:
    def __init__(self, node: Node, spec: dict[str, Any]) -> None:
        self._node = node
        kind = load(spec["type"])
        self._message = kind()
        if "fill" in spec:
            data = self._message.data
            self._message.data = (
                "x" * spec["fill"] if isinstance(data, str) else bytes(spec["fill"])
            )
        fields = spec.get("fields", {})
        self._fields = itertools.cycle(fields if isinstance(fields, list) else [fields])
        self._cdr = bytes.fromhex(spec["cdr"]) if "cdr" in spec else None
        profile = QoSProfile(
            depth=spec.get("depth", 10),
            reliability=ReliabilityPolicy.RELIABLE
            if spec.get("reliable", True)
            else ReliabilityPolicy.BEST_EFFORT,
            durability=DurabilityPolicy.TRANSIENT_LOCAL
            if spec.get("latched")
            else DurabilityPolicy.VOLATILE,
        )
        self._publisher = node.create_publisher(kind, spec["topic"], profile)
        self._timer = None
        if "rate" in spec:
            # Whatever becomes of the node's own clock.
            steady = Clock(clock_type=ClockType.STEADY_TIME)
            self._timer = node.create_timer(1 / spec["rate"], self.publish, clock=steady)
        while "burst" in spec and not self._publisher.get_subscription_count():
            time.sleep(0.01)  # else it may be over before anybody is connected
        for _ in range(spec.get("burst", 0 if self._timer or spec.get("silent") else 1)):
            self.publish()

    def publish(self) -> None:
        if self._cdr is not None:
            self._publisher.publish(self._cdr)
            return
        fields = next(self._fields)
        if hasattr(self._message, "header") and "stamp" not in fields.get("header", {}):
            self._message.header.stamp = self._node.get_clock().now().to_msg()
        fill(self._message, fields)
        self._publisher.publish(self._message)

    def close(self) -> None:
        if self._timer:
            self._node.destroy_timer(self._timer)
        self._node.destroy_publisher(self._publisher)


def main() -> None:
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    node = rclpy.create_node("scripted")
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    topics: dict[str, Publishing] = {}

    def obey(line: str) -> None:
        verb, _, text = line.rstrip("\n").partition("=")
        topic = text if verb == "close" else json.loads(text)["topic"]
        if topic in topics:
            topics.pop(topic).close()
        if verb == "open":
            topics[topic] = Publishing(node, json.loads(text))

    def listen() -> None:
        for line in sys.stdin:
            executor.create_task(obey, line)

    for line in remove_ros_args(sys.argv)[1:]:
        obey(f"open={line}")
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    threading.Thread(target=listen, daemon=True).start()
    print("ready", flush=True)
    while not stopping.is_set():
        executor.spin_once(timeout_sec=0.1)
    rclpy.try_shutdown()


if __name__ == "__main__":
    main()
