"""The rclpy side of the vision node: publishes what was seen and says which tasks are running."""

from __future__ import annotations

import array
import json
import time
from threading import Thread
from typing import TYPE_CHECKING, Any

import rclpy
from rclpy.exceptions import NameValidationException
from rclpy.executors import SingleThreadedExecutor
from rclpy.qos import QoSProfile, qos_profile_sensor_data
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

from .frames import StartError
from .scene import describe_scene, draw_overlay

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from cv2.typing import MatLike
    from rclpy.node import Node

    from .detect import Detection, Detector
    from .frames import FrameSource

NODE_NAME = "robot_mcp_perception"
FRAME_ID = "camera"
RETRY_S = 1.0
# A worker that hangs in a camera driver is left behind after this, so that the process can end.
JOIN_S = 0.8
WATCH = {"output": "triggered", "equals": True}


class VisionPublisher:
    """Publishes one frame's images, detections and semantic outputs under one header.

    `publish` is for one thread; the service is answered by whoever spins the node.
    """

    def __init__(self, node: Node, camera_topic: str, prefix: str) -> None:
        self._clock = node.get_clock()
        prefix = f"{prefix.rstrip('/')}/"
        reliable = QoSProfile(depth=10)

        def semantic(topic: str) -> Any:
            return node.create_publisher(StampedString, prefix + topic, reliable)

        self._camera = node.create_publisher(Image, camera_topic, qos_profile_sensor_data)
        self._overlay = node.create_publisher(
            Image, f"{prefix}find_object/overlay", qos_profile_sensor_data
        )
        self._detections = node.create_publisher(
            VisionDetectionArray, f"{prefix}find_object/detections", reliable
        )
        self._scene = semantic("describe_scene/scene")
        self._objects = semantic("describe_scene/objects")
        self._triggered = semantic("watch_for/triggered")
        node.create_service(ListVisionTasks, "~/list_vision_tasks", self._list_tasks)

    def publish(self, frame: MatLike, detections: Sequence[Detection], header: Header) -> None:
        """Publish everything that is to be said about one frame of shape (height, width, 3)."""
        self._camera.publish(_image(frame, "bgr8", header))
        self._overlay.publish(_image(draw_overlay(frame, detections), "bgr8", header))
        self._detections.publish(
            VisionDetectionArray(
                header=header, detections=[_detection(one, header) for one in detections]
            )
        )
        labels = [one.label for one in detections]
        for publisher, text in (
            (self._scene, describe_scene(frame, detections)),
            (self._objects, json.dumps(labels)),
            (self._triggered, json.dumps("face" in labels)),
        ):
            publisher.publish(StampedString(header=header, data=text))

    def header(self) -> Header:
        """Return the header of a frame that was taken just now."""
        return Header(stamp=self._clock.now().to_msg(), frame_id=FRAME_ID)

    def _list_tasks(self, _: object, response: Any) -> Any:
        # The ids stay the same over a restart, so that an unchanged watch is not taken for new.
        response.tasks = [
            VisionTask(skill_id="demo-find-object", skill="find_object", state="running"),
            VisionTask(skill_id="demo-describe-scene", skill="describe_scene", state="running"),
            VisionTask(
                skill_id="demo-watch-for",
                skill="watch_for",
                state="running",
                condition="a face is in view",
                watch=json.dumps(WATCH),
            ),
        ]
        return response


def run(
    source: FrameSource,
    detector: Detector,
    *,
    rate_hz: float,
    camera_topic: str,
    prefix: str,
    ros_args: Sequence[str],
    stop: threading.Event,
) -> bool:
    """Show the source's frames to the detector and publish, until `stop` is set.

    Returns False when the frame loop ended by itself. Signals are the caller's business.

    Raises:
        StartError: rclpy refuses its arguments, or a topic is no valid ROS name.
    """
    try:
        rclpy.init(args=list(ros_args), signal_handler_options=SignalHandlerOptions.NO)
    except Exception as error:
        raise StartError(f"rclpy does not start with {list(ros_args)}: {error}") from error
    try:
        node = rclpy.create_node(NODE_NAME)
        try:
            outputs = VisionPublisher(node, camera_topic, prefix)
        except NameValidationException as error:
            raise StartError(f"check --camera-topic and --prefix: {error}") from error
        executor = SingleThreadedExecutor()
        executor.add_node(node)
        node.get_logger().info(f"showing {source.name} at {rate_hz:g} Hz; stop with Ctrl-C")
        # Frames are read off the main thread: a driver may block for long, a signal must not wait.
        worker = Thread(
            target=_show,
            args=(source, detector, outputs, 1 / rate_hz, stop, node.get_logger()),
            name="frames",
            daemon=True,
        )
        worker.start()
        while not stop.is_set() and worker.is_alive():
            executor.spin_once(timeout_sec=0.1)
        worker.join(JOIN_S)
        if not worker.is_alive():
            source.close()
        executor.shutdown()
        node.destroy_node()
    finally:
        rclpy.shutdown()
    return stop.is_set()


def _show(
    source: FrameSource,
    detector: Detector,
    outputs: VisionPublisher,
    period_s: float,
    stop: threading.Event,
    logger: Any,
) -> None:
    due = time.monotonic()
    silent = False
    while not stop.is_set():
        frame = source.read()
        if stop.is_set():
            return
        if (frame is None) != silent:
            silent = frame is None
            logger.warning(
                f"{source.name} gives no frames; trying again every {RETRY_S:g} s"
                if silent
                else f"{source.name} gives frames again"
            )
        if frame is None:
            stop.wait(RETRY_S)
            continue
        header = outputs.header()
        outputs.publish(frame, detector.detect(frame), header)
        # A frame that took too long delays the next ones; they are not made up for in a burst.
        due = max(due + period_s, time.monotonic())
        stop.wait(due - time.monotonic())


def _image(pixels: MatLike, encoding: str, header: Header) -> Image:
    # rclpy checks every element of bytes, but takes an array as it is.
    return Image(
        header=header,
        height=pixels.shape[0],
        width=pixels.shape[1],
        encoding=encoding,
        step=pixels.shape[1] * (1 if pixels.ndim == 2 else pixels.shape[2]),
        data=array.array("B", pixels.tobytes()),
    )


def _detection(one: Detection, header: Header) -> VisionDetection:
    x, y, width, height = map(float, one.box)
    return VisionDetection(
        label=one.label,
        score=one.score,
        box=BoundingBox(x=x, y=y, width=width, height=height),
        has_mask=True,
        mask=_image(one.mask, "mono8", header),
        track_id=one.track_id,
    )
