"""Simulated vision node: `python -m mcp_perception_buffer.sim`, in a process of its own.

By default it publishes one small known scene. With `--load` it publishes many equal detection
streams instead. Lines `TOPIC=VALUE` on stdin set semantic outputs, so that a test decides when
something changes.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from typing import Any

import rclpy
from geometry_msgs.msg import Point
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import Image
from std_msgs.msg import Header

from ros2_vision_interfaces.msg import (
    BoundingBox,
    StampedString,
    VisionDetection,
    VisionDetectionArray,
    VisionTask,
)
from ros2_vision_interfaces.srv import ListVisionTasks

SCENE = "a cup and a plate on a table"
OBJECTS = '["cup", "plate", "table"]'
# label, score, x, y, width, height
KNOWN = [("plate", 0.77, 40, 60, 90, 88), ("cup", 0.91, 120, 80, 64, 48)]


class Simulator(Node):
    """Publishes everything once a period, all with the same stamp."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__("vision_simulator")
        self._options = options
        self._mask_size: tuple[int, int] = options.mask
        self._qos = QoSProfile(
            depth=10,
            reliability=ReliabilityPolicy.BEST_EFFORT
            if options.best_effort
            else ReliabilityPolicy.RELIABLE,
            durability=DurabilityPolicy.TRANSIENT_LOCAL
            if options.latched
            else DurabilityPolicy.VOLATILE,
        )
        self._semantic: dict[str, Any] = {}
        self._values: dict[str, str] = {}
        prefix = options.prefix
        self._arrays = [
            (self.create_publisher(VisionDetectionArray, topic, self._qos), self._array())
            for topic in (
                [f"{prefix}load_{i:03d}/detections" for i in range(options.load)]
                or [f"{prefix}find_object/detections"]
            )
        ]
        self._images: list[Any] = []
        if not options.load:
            self.say(f"{prefix}find_object/triggered", "true")
            self.say(f"{prefix}describe_scene/scene", SCENE)
            self.say(f"{prefix}describe_scene/objects", OBJECTS)
            self._add_image(f"{prefix}find_object/overlay")
        if options.camera_topic:
            self._add_image(options.camera_topic)
        self.create_service(
            ListVisionTasks, "/robot_mcp_perception/list_vision_tasks", self._list_tasks
        )
        self.create_timer(1 / options.rate, self._publish)

    def say(self, topic: str, value: str) -> None:
        """Publish `value` on a semantic topic from now on; the first one at once."""
        if topic not in self._semantic:
            self._semantic[topic] = self.create_publisher(StampedString, topic, self._qos)
        self._values[topic] = value

    def _array(self) -> VisionDetectionArray:
        known = KNOWN if not self._options.load else []
        found = list(known[: self._options.detections])
        more = range(self._options.detections - len(found))
        found += [(f"object_{i}", 0.5, 10 * i, 20, 30, 40) for i in more]
        return VisionDetectionArray(detections=[self._detection(*values) for values in found])

    def _detection(
        self, label: str, score: float, x: float, y: float, width: float, height: float
    ) -> VisionDetection:
        detection = VisionDetection(
            label=label,
            score=score,
            box=BoundingBox(x=float(x), y=float(y), width=float(width), height=float(height)),
            has_point=True,
            point=Point(x=0.5, y=-0.25, z=1.5),
        )
        columns, rows = self._mask_size
        if columns and rows:
            detection.has_mask = True
            detection.mask = Image(
                width=columns,
                height=rows,
                step=columns,
                encoding="mono8",
                data=b"\xff" * (columns * rows),
            )
        return detection

    def _add_image(self, topic: str) -> None:
        columns, rows = self._options.image
        image = Image(
            width=columns,
            height=rows,
            step=3 * columns,
            encoding="bgr8",
            data=b"\x7f" * (3 * columns * rows),
        )
        self._images.append((self.create_publisher(Image, topic, self._qos), image))

    def _publish(self) -> None:
        header = Header(stamp=self.get_clock().now().to_msg(), frame_id="camera")
        for publisher, message in (*self._arrays, *self._images):
            message.header = header
            publisher.publish(message)
        for topic, publisher in list(self._semantic.items()):
            publisher.publish(StampedString(header=header, data=self._values[topic]))

    def _list_tasks(
        self, request: ListVisionTasks.Request, response: ListVisionTasks.Response
    ) -> ListVisionTasks.Response:
        response.tasks = [
            VisionTask(
                skill_id="task-1",
                skill="find_object",
                state="active",
                condition="a cup is on the table",
                watch='{"output": "triggered", "equals": true}',
            ),
            VisionTask(skill_id="task-2", skill="describe_scene", state="active"),
        ]
        return response


def _size(text: str) -> tuple[int, int]:
    width, _, height = text.partition("x")
    return int(width), int(height)


def main() -> None:
    """Run until SIGINT or SIGTERM; says `ready` on stdout once it publishes."""
    parser = argparse.ArgumentParser(prog="mcp_perception_buffer.sim", description=__doc__)
    parser.add_argument("--rate", type=float, default=10.0, help="messages a second and topic")
    parser.add_argument("--load", type=int, default=0, help="that many equal detection streams")
    parser.add_argument("--detections", type=int, default=2, help="per message")
    parser.add_argument("--mask", type=_size, default=(32, 24), help="WxH pixels, 0x0 for none")
    parser.add_argument("--image", type=_size, default=(64, 48), help="WxH of camera and overlay")
    parser.add_argument("--prefix", default="/vision/")
    parser.add_argument("--camera-topic", default="/camera/image_raw", help="empty for none")
    parser.add_argument("--best-effort", action="store_true")
    parser.add_argument("--latched", action="store_true")
    options, ros_args = parser.parse_known_args()

    rclpy.init(args=ros_args, signal_handler_options=SignalHandlerOptions.NO)
    executor = SingleThreadedExecutor()
    node = Simulator(options)
    executor.add_node(node)

    def read_commands() -> None:
        for line in sys.stdin:
            topic, separator, value = line.rstrip("\n").partition("=")
            if separator:
                executor.create_task(node.say, topic, value)

    # Shut down between two callbacks: in the midst of one, rclpy would raise whatever it meets.
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    threading.Thread(target=read_commands, daemon=True).start()
    print("ready", flush=True)
    while not stopping.is_set():
        executor.spin_once(timeout_sec=0.2)
    rclpy.try_shutdown()


if __name__ == "__main__":
    main()
