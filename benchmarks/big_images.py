"""Raw 1080p at 30 Hz on camera and overlay beside detections at 10 Hz, over each transport.

`python -m benchmarks.big_images [seconds a row]` prints what arrived, how long the loop was held
up, and how the memory grew. Publisher and service are processes of their own.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.measure import fresh_domain

TRANSPORTS = ("default", "UDPv4", "SHM", "LARGE_DATA")
WIDTH, HEIGHT, IMAGE_HZ, DETECTIONS_HZ = 1920, 1080, 30, 10
CAMERA = "/camera/image_raw"


def publish(reliable: bool, size: tuple[int, int]) -> None:
    """Publish until killed; images are serialised once, and only their stamp changes."""
    import rclpy
    from rclpy.qos import QoSProfile, ReliabilityPolicy
    from rclpy.serialization import serialize_message
    from sensor_msgs.msg import Image

    from ros2_vision_interfaces.msg import VisionDetectionArray

    rclpy.init()
    node = rclpy.create_node("big_images")
    policy = ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT
    qos = QoSProfile(depth=5, reliability=policy)
    width, height = size
    image = Image(width=width, height=height, step=3 * width, encoding="bgr8")
    image.data = bytes(3 * width * height)
    image.header.frame_id = "camera"
    cdr = bytearray(serialize_message(image))
    images = [node.create_publisher(Image, t, qos) for t in (CAMERA, "/vision/a/overlay")]
    found = node.create_publisher(VisionDetectionArray, "/vision/a/detections", 10)

    def send_images() -> None:
        now_ns = time.time_ns()
        cdr[4:12] = (now_ns // 10**9).to_bytes(4, "little") + (now_ns % 10**9).to_bytes(4, "little")
        for publisher in images:
            publisher.publish(bytes(cdr))

    def send_detections() -> None:
        message = VisionDetectionArray()
        message.header.stamp = node.get_clock().now().to_msg()
        found.publish(message)

    node.create_timer(1 / IMAGE_HZ, send_images)
    node.create_timer(1 / DETECTIONS_HZ, send_detections)
    rclpy.spin(node)


async def receive(seconds: float) -> None:
    """Run the source alone, and print what it saw as JSON."""
    from mcp_perception_buffer.buffer import Buffer
    from mcp_perception_buffer.decoding.decoder import Decoder
    from mcp_perception_buffer.logs import configure_logging
    from mcp_perception_buffer.sources.ros import RosSource
    from mcp_perception_buffer.sources.ros_types import installed_definition
    from mcp_perception_buffer.sources.topics import TopicFilter

    configure_logging(level="ERROR", pretty=True)
    decoder = Decoder(installed_definition)
    buffer = Buffer(decoder.decode)
    source = RosSource(buffer, TopicFilter(camera_topic=CAMERA), decoder=decoder)
    ready = asyncio.Event()
    running = asyncio.create_task(source.run(ready.set))
    await ready.wait()
    async with asyncio.timeout(30):
        while sum(view.received > 0 for view in buffer.snapshot().streams) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    await asyncio.sleep(1)
    before = {view.info.topic: view for view in buffer.snapshot().streams}
    rss_mib, cpu_s, began = _rss_mib(), time.process_time(), time.monotonic()
    worst_s = 0.0
    while time.monotonic() - began < seconds:
        due = time.monotonic() + 0.005
        await asyncio.sleep(0.005)
        worst_s = max(worst_s, time.monotonic() - due)
    took_s = time.monotonic() - began
    result = {
        view.info.topic: [
            (view.received - before[view.info.topic].received) / took_s,
            (view.lost - before[view.info.topic].lost) / took_s,
        ]
        for view in buffer.snapshot().streams
    }
    cpu = (time.process_time() - cpu_s) / took_s
    grown_mib = _rss_mib() - rss_mib
    print(json.dumps([result, worst_s * 1e3, cpu * 100, _rss_mib(), grown_mib]))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def _rss_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def measure(transport: str, reliable: bool, seconds: float, size: str) -> list[object]:
    """Run one row: a publisher and a service with the same transport."""
    env = {**os.environ, "ROS_DOMAIN_ID": fresh_domain()}
    if transport != "default":
        env["FASTDDS_BUILTIN_TRANSPORTS"] = transport
    me = [sys.executable, "-m", "benchmarks.big_images"]
    publisher = await asyncio.create_subprocess_exec(
        *me, "publish", str(int(reliable)), size, env=env
    )
    try:
        service = await asyncio.create_subprocess_exec(
            *me,
            "receive",
            str(seconds),
            env=env,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        out, _ = await asyncio.wait_for(service.communicate(), seconds + 45)
    finally:
        publisher.kill()
        await publisher.wait()
    return list(json.loads(out)) if out else []


async def main(seconds: float = 5.0, size: str = f"{WIDTH}x{HEIGHT}") -> None:
    """Print the table."""
    table = Table(title=f"{size} raw at {IMAGE_HZ} Hz twice, detections at {DETECTIONS_HZ} Hz")
    rates = ("camera Hz (lost)", "overlay Hz (lost)", "detections Hz (lost)")
    for column in ("transport", "reliability", *rates, "worst lag ms", "CPU %", "RSS MiB", "grown"):
        table.add_column(column)
    for transport in TRANSPORTS:
        for reliable in (True, False):
            row = await measure(transport, reliable, seconds, size)
            name = "reliable" if reliable else "best effort"
            if not row:
                table.add_row(transport, name, "nothing arrived")
                continue
            topics, *numbers = row
            rates = [
                "{:.1f} ({:.1f})".format(*topics[t])  # type: ignore[index]
                for t in (CAMERA, "/vision/a/overlay", "/vision/a/detections")
            ]
            table.add_row(transport, name, *rates, *(f"{number:.0f}" for number in numbers))
            print(transport, name, rates, numbers, flush=True)
    Console(width=160).print(table)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["publish", reliable, size]:
            wide, _, high = size.partition("x")
            publish(reliable == "1", (int(wide), int(high)))
        case ["receive", seconds]:
            asyncio.run(receive(float(seconds)))
        case options:
            asyncio.run(main(*[float(x) if i == 0 else x for i, x in enumerate(options)]))  # type: ignore[arg-type]
