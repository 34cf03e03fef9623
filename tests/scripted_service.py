"""Watches, outbox and delivery in a process of its own, which a test may kill at any moment.

Its options are one JSON argument. It prints `ready`, then takes lines `TOPIC=JSON` on stdin and
answers each, once all that follows from it is committed, with the skill_ids' last seqs.
"""

import asyncio
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from brain import SECRET
from mcp_perception_buffer.buffer import Buffer
from mcp_perception_buffer.events.delivery import Delivery
from mcp_perception_buffer.events.outbox import Outbox
from mcp_perception_buffer.events.webhook import WebhookSink
from mcp_perception_buffer.model import Observation, StreamInfo
from mcp_perception_buffer.tasks.static import StaticTaskSource
from mcp_perception_buffer.watcher import Watcher
from support import eventually


def decode(info: StreamInfo, cdr: bytes) -> Observation:
    return Observation(value=json.loads(cdr))


async def main(options: dict[str, Any]) -> None:
    buffer = Buffer(decode, freshness_window_s=3600)
    outbox = Outbox(Path(options["state_dir"]))
    watcher = Watcher(buffer, StaticTaskSource(options["tasks"]), outbox)
    delivery = Delivery(
        outbox,
        WebhookSink(options["url"], secrets=[SECRET], timeout_s=0.2),
        backoff_first_s=0.002,
        backoff_max_s=0.05,
    )
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
    )
    async with outbox:
        running = [asyncio.create_task(part.run()) for part in (outbox, watcher, delivery)]
        await eventually(lambda: len(watcher.views().watches) == len(options["tasks"]))
        if (limit := options.get("max_file_bytes")) is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        print("ready", flush=True)
        while line := await lines.readline():
            topic, _, value = line.decode().rstrip("\n").partition("=")
            skill, output = topic.split("/")[-2:]
            buffer.open(StreamInfo(topic, skill, output, "semantic", "json"))
            buffer.put(topic, value.encode(), time.monotonic_ns())
            await outbox.flush()
            views = watcher.views()
            print(json.dumps({v.skill_id: v.last_seq or 0 for v in views.watches}), flush=True)
        for task in running:
            assert not task.done()
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
