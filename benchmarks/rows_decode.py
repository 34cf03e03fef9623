"""Rows about decoding: masks that nobody needs, and other people's types against rclpy itself."""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.measure import (
    DETECTIONS_TYPE,
    Plan,
    Row,
    child,
    fresh_domain,
    in_turn,
    median,
    ms,
    us,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp_perception_buffer.decoding.decoder import Decoder
    from mcp_perception_buffer.model import StreamInfo

COUNT = 8  # detections in a message
TOPIC = "/vision/load_000/detections"


async def decode(plan: Plan, note: Callable[[str], None]) -> Row:
    """8 masks of 640x480 against empty ones; both messages come over DDS."""
    return await _masks(plan, note, "decode, 8 masks of 640×480", DETECTIONS_TYPE)


async def nested(plan: Plan, note: Callable[[str], None]) -> Row:
    """The same where the masks are a list of images beside the detections."""
    from benchmarks.detectors import NESTED, install

    install()
    return await _masks(plan, note, "the same, masks of ultralytics_ros/YoloResult", NESTED)


async def detectors(plan: Plan, note: Callable[[str], None]) -> list[Row]:
    """Messages of 8 detections against rclpy's own reading of the same bytes, type by type."""
    from benchmarks.detectors import ALONE, LOOKS, install

    install()
    rows = []
    for name, look in LOOKS.items():
        shown = look.type.replace("/msg/", "/")
        what = f"decode, one {shown}" if name in ALONE else f"decode, {COUNT} of {shown}"
        rows.append(await _against_rclpy(plan, note, what, look.type))
    return rows


async def _against_rclpy(plan: Plan, note: Callable[[str], None], name: str, type_name: str) -> Row:
    from rclpy.serialization import deserialize_message, serialize_message

    from benchmarks.detectors import load, message

    kind = load(type_name)
    cdr = bytes(serialize_message(message(type_name, COUNT)))
    decoder, info = _decoder(type_name)

    async def plain() -> float:
        return _timed(partial(deserialize_message, cdr, kind))

    async def ours() -> float:
        return _timed(partial(decoder.decode, info, cdr))

    await ours()
    results = await in_turn(10 * plan.rounds, plain, ours, note=note)
    a, b = map(median, results)
    details = {"message_bytes": len(cdr), "plain_s": results[0], "ours_s": results[1]}
    return Row(name, us(a), us(b), b / a, "≤ 0.5×", b / a <= 0.5, details)


async def _masks(plan: Plan, note: Callable[[str], None], name: str, type_name: str) -> Row:
    from mcp_perception_buffer.buffer import Buffer

    bare = await _receive("0x0", type_name)
    masked = await _receive("640x480", type_name)
    decoder, info = _decoder(type_name)

    async def side(cdr: bytes) -> float:
        return _timed(partial(decoder.decode, info, cdr))

    await side(masked)
    results = await in_turn(10 * plan.rounds, lambda: side(bare), lambda: side(masked), note=note)
    a, b = map(median, results)
    buffer = Buffer(decoder.decode)
    buffer.open(info)
    gc.collect()
    tracemalloc.start()
    for index in range(20):
        buffer.put(TOPIC, bytes(bytearray(masked)), index)
    gc.collect()
    retained = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    ok = b / a <= 1.3 and retained < len(masked) / 10
    details = {"message_bytes": len(masked), "retained_bytes_of_20": retained}
    name = f"{name} ({retained / 1024:.0f} KiB kept of 20 messages)"
    return Row(name, ms(a), ms(b), b / a, "≤ 1.3×, none kept", ok, details)


def _decoder(type_name: str) -> tuple[Decoder, StreamInfo]:
    from mcp_perception_buffer.decoding.decoder import Decoder
    from mcp_perception_buffer.model import StreamInfo
    from mcp_perception_buffer.sources.ros_types import installed_definition

    info = StreamInfo(TOPIC, "load_000", "detections", "detections", type_name)
    return Decoder(installed_definition), info


def _timed(call: Callable[[], object]) -> float:
    """Return the median time of many calls, in seconds."""
    times = []
    for _ in range(400):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return median(times)


async def _receive(mask: str, type_name: str) -> bytes:
    """Return one message's bytes as they come over DDS from the publisher's process."""
    domain = fresh_domain()
    options = ("--topics", 1, "--rate", 5, "--mask", mask, "--type", type_name)
    async with child("publisher", domain, *options):
        return await asyncio.to_thread(_take_one, int(domain), type_name)


def _take_one(domain: int, type_name: str) -> bytes:
    import rclpy
    from rclpy.executors import SingleThreadedExecutor

    from mcp_perception_buffer.sources.ros_types import load_type

    context = rclpy.Context()
    rclpy.init(context=context, domain_id=domain)
    node = rclpy.create_node("receive", context=context)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    taken: list[Any] = []
    node.create_subscription(load_type(type_name), TOPIC, taken.append, 1, raw=True)
    deadline = time.monotonic() + 30
    while not taken and time.monotonic() < deadline:
        executor.spin_once(timeout_sec=0.5)
    executor.shutdown()
    node.destroy_node()
    context.try_shutdown()
    received: bytes = taken[0]
    return received
