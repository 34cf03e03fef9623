"""The other process of every row: publishes over real DDS what it is told to.

Messages are serialised once and sent as bytes, so that the publisher costs little beside what is
measured. Each carries its moment of publication (CLOCK_MONOTONIC, the same for all processes of
the machine) as its header's stamp.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from typing import Any

import rclpy
from geometry_msgs.msg import Point
from rclpy.qos import QoSProfile
from rclpy.serialization import serialize_message
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import Image

from benchmarks.measure import DETECTIONS_TYPE, answer_commands, say
from ros2_vision_interfaces.msg import (
    BoundingBox,
    StampedString,
    VisionDetection,
    VisionDetectionArray,
)

TICK_S = 0.001


def stamp(cdr: bytearray) -> int:
    """Write the present into the header's stamp, which begins every message; return it."""
    now = time.monotonic_ns()
    cdr[4:8] = (now // 10**9).to_bytes(4, "little")
    cdr[8:12] = (now % 10**9).to_bytes(4, "little")
    return now


def array(count: int, mask: tuple[int, int]) -> bytearray:
    """Return a message of `count` detections, each with a mask unless its size is zero."""
    width, height = mask
    found = []
    for index in range(count):
        seen = VisionDetection(
            label=f"object_{index}",
            score=0.9 - 0.01 * index,
            box=BoundingBox(x=10.0 * index, y=20.0, width=30.0, height=40.0),
            has_point=True,
            point=Point(x=0.5, y=-0.25, z=1.5),
            track_id=f"track_{index}",
        )
        if width:
            seen.has_mask = True
            seen.mask = Image(
                width=width,
                height=height,
                step=width,
                encoding="mono8",
                data=b"\xff" * (width * height),
            )
        found.append(seen)
    message = VisionDetectionArray(detections=found)
    message.header.frame_id = "camera"
    return bytearray(serialize_message(message))


def serialised(type_name: str, count: int, mask: tuple[int, int]) -> tuple[Any, bytearray]:
    """Return a type of detections, and a message of it as `array` has it."""
    if type_name == DETECTIONS_TYPE:
        return VisionDetectionArray, array(count, mask)
    from benchmarks.detectors import load, message

    cdr = bytearray(serialize_message(message(type_name, count, mask)))
    return load(type_name), cdr


class Load:
    """Publishes equal messages on many topics, at a steady total rate."""

    def __init__(self, node: Any, options: argparse.Namespace) -> None:
        self._node = node
        self._qos = QoSProfile(depth=options.depth)
        self._kind, self._cdr = serialised(options.type, options.detections, options.mask)
        self._publishers = [
            self._create(f"/vision/load_{i:03d}/detections", self._kind)
            for i in range(options.topics)
        ]
        self._values: dict[str, Any] = {}
        self.rate_hz = float(options.rate)
        self.sent = 0

    def _create(self, topic: str, kind: Any) -> Any:
        return self._node.create_publisher(kind, topic, self._qos)

    def once(self) -> None:
        """Publish one message on each topic."""
        for index in range(len(self._publishers)):
            self.one(index)

    def one(self, index: int) -> None:
        """Publish one message on one of the topics."""
        stamp(self._cdr)
        self._publishers[index].publish(bytes(self._cdr))
        self.sent += 1

    def say(self, topic: str, value: str) -> int:
        """Publish a semantic value; return when."""
        if topic not in self._values:
            self._values[topic] = self._create(topic, StampedString)
        cdr = bytearray(serialize_message(StampedString(data=value)))
        now = stamp(cdr)
        self._values[topic].publish(bytes(cdr))
        return now

    def appear(self, topic: str) -> int:
        """Publish on one more topic from now on; return since when."""
        now = time.monotonic_ns()
        self._publishers.append(self._create(topic, self._kind))
        return now

    def run(self) -> None:
        """Publish for ever, topics one after another."""
        due, next_at, last = 0.0, 0, time.monotonic()
        while True:
            time.sleep(TICK_S)
            now = time.monotonic()
            publishers = self._publishers
            due += (now - last) * self.rate_hz * len(publishers)
            last = now
            due = min(due, 10.0 * len(publishers) + 1000)  # do not run after what was missed
            for _ in range(int(due)):
                stamp(self._cdr)
                publishers[next_at % len(publishers)].publish(bytes(self._cdr))
                next_at += 1
            self.sent += int(due)
            due -= int(due)


def main() -> None:
    """Run until it is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=0)
    parser.add_argument("--rate", type=float, default=0.0, help="messages a second and topic")
    parser.add_argument("--type", default=DETECTIONS_TYPE)
    parser.add_argument("--detections", type=int, default=8)
    parser.add_argument("--mask", type=lambda t: tuple(map(int, t.split("x"))), default=(0, 0))
    parser.add_argument("--depth", type=int, default=10, help="of the publishers' history")
    options = parser.parse_args()
    rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    node = rclpy.create_node("benchmark_publisher", enable_rosout=False)
    load = Load(node, options)
    lock = threading.Lock()

    def handle(command: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = {}
        with lock:
            if "say" in command:
                answer["at_ns"] = load.say(command["say"], command["value"])
            if "appear" in command:
                answer["at_ns"] = load.appear(command["appear"])
            if "rate" in command:
                load.rate_hz = command["rate"]
            if "one" in command:
                load.one(command["one"])
            if command.get("once"):
                load.once()
        return answer | {"sent": load.sent}

    say({"ready": True})
    answer_commands(handle)
    try:
        load.run()
    finally:  # or its shared memory stays behind
        node.destroy_node()
        rclpy.try_shutdown()


if __name__ == "__main__":
    main()
