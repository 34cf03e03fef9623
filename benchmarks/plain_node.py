"""The baseline: a node as rclpy's documentation teaches it, typed callbacks and `rclpy.spin`.

It keeps the newest message of each topic and does nothing else. For latencies it is the bare
transport: a raw subscription whose callback only looks at the clock.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import time
from typing import Any
from urllib.parse import urlsplit

import rclpy
from rclpy.executors import ExternalShutdownException
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.node import Node

from benchmarks.measure import DETECTIONS_TYPE, answer_commands, say
from ros2_vision_interfaces.msg import StampedString, VisionDetectionArray

RCLError = rclpy_implementation.RCLError


class PlainNode(Node):
    """Subscribes to topics that it knows by name."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__("plain_node")
        self.latest: dict[str, Any] = {}
        self.received = 0
        self.first_ns: dict[str, int] = {}
        self.latencies_ns: list[int] = []
        self._brain = urlsplit(options.post)
        self._connection: http.client.HTTPConnection | None = None
        kind = VisionDetectionArray
        if options.type != DETECTIONS_TYPE:
            from benchmarks.detectors import load

            kind = load(options.type)
        for index in range(options.topics):
            self._listen(kind, f"/vision/{options.name}_{index:03d}/detections", options.raw)
        if options.post:
            self.create_subscription(StampedString, "/vision/watched/triggered", self.post, 10)

    def _listen(self, kind: Any, topic: str, raw: bool) -> None:
        def keep(message: Any) -> None:
            self.received += 1
            self.latest[topic] = message

        def look(cdr: bytes) -> None:
            now = time.monotonic_ns()
            self.received += 1
            self.first_ns.setdefault(topic, now)
            if len(self.latencies_ns) < 100_000:
                sent = int.from_bytes(cdr[4:8], "little") * 10**9
                self.latencies_ns.append(now - sent - int.from_bytes(cdr[8:12], "little"))

        self.create_subscription(kind, topic, look if raw else keep, 10, raw=raw)

    def post(self, message: StampedString) -> None:
        """Post what became true, unsigned, over one connection that is kept."""
        self.received += 1
        if message.data != "true":
            return
        if self._connection is None:
            assert self._brain.hostname is not None
            self._connection = http.client.HTTPConnection(self._brain.hostname, self._brain.port)
        self._connection.request("POST", self._brain.path, b'{"type":"watch_event"}')
        self._connection.getresponse().read()


def main() -> None:
    """Run until it is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=0)
    parser.add_argument("--name", default="load", help="of the skills, before the number")
    parser.add_argument("--type", default=DETECTIONS_TYPE)
    parser.add_argument("--raw", action="store_true", help="bytes, for latencies")
    parser.add_argument("--post", default="", help="a URL to post each rising edge to")
    options = parser.parse_args()
    rclpy.init(args=[])
    node = PlainNode(options)

    def handle(command: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = {"received": node.received, "streams": len(node.latest)}
        if command.get("latencies"):
            answer["latencies_ns"], node.latencies_ns = node.latencies_ns, []
        if command.get("first"):
            answer["first_ns"] = node.first_ns
        return answer

    say({"ready": True})
    answer_commands(handle)
    # The last one: rclpy meets a context that was shut down between two of its steps.
    with contextlib.suppress(KeyboardInterrupt, ExternalShutdownException, RCLError):
        rclpy.spin(node)
    node.destroy_node()  # or its shared memory stays behind


if __name__ == "__main__":
    main()
