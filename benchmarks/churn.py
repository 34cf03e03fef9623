"""Publishers that come and go at 200 Hz: `python -m benchmarks.churn [seconds]`.

Prints every few seconds what the service holds, which must stay flat, while one steady stream
flows beside them. `publish` as the only argument is the other process.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from pathlib import Path

from benchmarks.measure import fresh_domain

RATE_HZ, TOPICS, ALIVE = 200, 50, 25
STEADY = "/vision/steady/text"
ROWS = 10


def publish() -> None:
    """Make, use and destroy a publisher 200 times a second, until killed."""
    import rclpy
    from std_msgs.msg import String

    rclpy.init()
    node = rclpy.create_node("churn")
    steady = node.create_publisher(String, STEADY, 10)
    alive = []
    print("ready", flush=True)
    for turn in itertools.count():
        due = time.monotonic() + 1 / RATE_HZ
        publisher = node.create_publisher(String, f"/vision/churn_{turn % TOPICS}/text", 10)
        publisher.publish(String(data=str(turn)))
        alive.append(publisher)
        if len(alive) > ALIVE:
            node.destroy_publisher(alive.pop(0))
        steady.publish(String(data=str(turn)))
        time.sleep(max(0.0, due - time.monotonic()))


async def watch(seconds: float) -> None:
    """Run the source in this process and print what it holds."""
    from mcp_perception_buffer.buffer import Buffer
    from mcp_perception_buffer.decoding.decoder import Decoder
    from mcp_perception_buffer.logs import configure_logging
    from mcp_perception_buffer.sources.ros import RosSource
    from mcp_perception_buffer.sources.ros_types import installed_definition
    from mcp_perception_buffer.sources.topics import TopicFilter

    os.environ["ROS_DOMAIN_ID"] = fresh_domain()
    configure_logging(level="ERROR", pretty=True)
    decoder = Decoder(installed_definition)
    buffer = Buffer(decoder.decode, retention_s=5)
    source = RosSource(buffer, TopicFilter(), decoder=decoder)
    running = asyncio.create_task(source.run(lambda: None), name="source")
    churn = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.churn", "publish", stdout=asyncio.subprocess.DEVNULL
    )
    print(
        f"{'s':>6} {'steady':>8} {'lost':>5} {'streams':>8} {'tasks':>6} {'fds':>5} {'RSS MiB':>8}"
    )
    try:
        began = time.monotonic()
        for _ in range(ROWS):
            await asyncio.sleep(seconds / ROWS)
            assert not running.done(), running
            steady = buffer.view(STEADY)
            print(
                f"{time.monotonic() - began:6.0f} {steady.received if steady else 0:8}"
                f" {steady.lost if steady else 0:5} {len(buffer.snapshot().streams):8}"
                f" {len(asyncio.all_tasks()):6} {len(os.listdir('/proc/self/fd')):5}"
                f" {rss_mib():8.1f}",
                flush=True,
            )
    finally:
        churn.kill()
        await churn.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def rss_mib() -> float:
    """Return what of this process is resident."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    if sys.argv[1:] == ["publish"]:
        publish()
    else:
        asyncio.run(watch(*map(float, sys.argv[1:] or ["300"])))
