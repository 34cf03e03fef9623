"""Vision node and service on two hosts: two network namespaces joined by a veth pair.

Nothing is touched but namespaces of the test's own. LINK_CUT_S sets how long the cable is out.
"""

import asyncio
import contextlib
import fcntl
import json
import os
import random
import select
import struct
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from processes import SCRIPTED_NODE, ask, fresh_domain
from support import eventually

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy", reason="run with --extra ros")

LINK_CUT_S = float(os.environ.get("LINK_CUT_S", "3"))
# From linux/if_tun.h.
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
STRING = "std_msgs/msg/String"
RELIABLE, LOSSY = "/vision/reliable/text", "/vision/lossy/text"
SPECS = [
    {"topic": RELIABLE, "type": STRING, "rate": 20, "depth": 100, "fields": {"data": "x"}},
    {"topic": LOSSY, "type": STRING, "rate": 20, "reliable": False, "fields": {"data": "x"}},
]


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=20)


class Host:
    """A network namespace; its processes have a shared memory of their own, too."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self._address = address

    @contextlib.contextmanager
    def made(self) -> Iterator["Host"]:
        run("ip", "netns", "add", self.name)
        try:
            run("ip", "-n", self.name, "link", "set", "lo", "up")
            yield self
        finally:
            run("ip", "netns", "delete", self.name)

    def plug_in(self, device: str) -> None:
        run("ip", "link", "set", device, "netns", self.name, "name", "eth0")
        run("ip", "-n", self.name, "address", "add", f"{self._address}/24", "dev", "eth0")
        self.link("up")

    def link(self, state: str) -> None:
        run("ip", "-n", self.name, "link", "set", "eth0", state)

    def lose(self, percent: int) -> None:
        options = ("netem", "loss", f"{percent}%", "delay", "5ms")
        run("tc", "-n", self.name, "qdisc", "replace", "dev", "eth0", "root", *options)

    def command(self, *args: str) -> list[str]:
        private = 'mount -t tmpfs tmpfs /dev/shm && exec "$@"'
        enter = ["ip", "netns", "exec", self.name, "unshare", "-m", "sh", "-c", private, "sh"]
        return [*enter, sys.executable, *args]


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    name = f"perception-{os.getpid()}"
    with contextlib.ExitStack() as stack:
        with skipped_where_impossible():
            robot = stack.enter_context(Host(f"{name}-robot", "10.99.0.1").made())
            brain = stack.enter_context(Host(f"{name}-brain", "10.99.0.2").made())
        yield robot, brain


@contextlib.contextmanager
def skipped_where_impossible() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        pytest.skip(f"{error}: apt install iproute2")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this kernel or user may not: {error.stderr.decode().strip()}")


def join(hosts: tuple[Host, Host]) -> None:
    """A veth pair, which ends with its namespaces."""
    ends = f"l{os.getpid()}", f"r{os.getpid()}"
    with skipped_where_impossible():
        run("ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for host, end in zip(hosts, ends, strict=True):
            host.plug_in(end)


class LossyCable:
    """Joins two hosts by TAP devices, and drops frames between them; for kernels without netem."""

    def __init__(self, hosts: tuple[Host, Host]) -> None:
        self._random = random.Random(1)
        self._ends: list[int] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._forward)
        self.percent = 0
        for side, host in zip("lr", hosts, strict=True):
            device = f"{side}{os.getpid()}"
            with skipped_where_impossible():
                end = os.open("/dev/net/tun", os.O_RDWR)
                self._ends.append(end)
                flags = IFF_TAP | IFF_NO_PI
                fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH22x", device.encode(), flags))
                host.plug_in(device)

    def __enter__(self) -> "LossyCable":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        for end in self._ends:
            os.close(end)

    def _forward(self) -> None:
        left, right = self._ends
        while not self._stop.is_set():
            for end in select.select(self._ends, [], [], 0.1)[0]:
                frame = os.read(end, 65536)
                if self._random.random() * 100 >= self.percent:
                    with contextlib.suppress(OSError):  # the other end is down
                        os.write(right if end == left else left, frame)


@contextlib.asynccontextmanager
async def service_and_node(hosts: tuple[Host, Host]) -> AsyncIterator[Client]:
    """A vision node on the first host, the service on the second one, asked over its stdio."""
    robot, brain = hosts
    env = {**os.environ, "ROS_DOMAIN_ID": fresh_domain(), "MCP_TRANSPORT": "stdio"}
    node = await asyncio.create_subprocess_exec(
        *robot.command("-c", SCRIPTED_NODE, *map(json.dumps, SPECS)),
        env=env,
        stdin=asyncio.subprocess.PIPE,
    )
    try:
        command, *args = brain.command(
            "-m", "mcp_perception_buffer", "serve", "freshness_window_s=1.0"
        )
        async with Client(StdioServerParameters(command=command, args=args, env=env)) as client:
            yield client
    finally:
        node.kill()
        await node.wait()


async def streams(client: Client) -> dict[str, Any]:
    listing = await ask(client, "list_streams")
    return {stream["topic"]: stream for stream in listing["streams"]}


async def fresh(client: Client) -> bool:
    found = await streams(client)
    return all(found.get(topic, {}).get("state") == "fresh" for topic in (RELIABLE, LOSSY))


async def silent(client: Client) -> bool:
    outputs = [
        output
        for skill in (await ask(client, "what_do_you_see"))["skills"].values()
        for output in skill["outputs"].values()
    ]
    return len(outputs) == 2 and all(output["stale"] for output in outputs)


async def test_a_link_that_was_cut_comes_back_by_itself(hosts: tuple[Host, Host]) -> None:
    join(hosts)
    async with service_and_node(hosts) as client:
        await eventually(lambda: fresh(client), timeout_s=30)
        hosts[0].link("down")
        back_at = time.monotonic() + LINK_CUT_S
        await eventually(lambda: silent(client))
        await eventually(lambda: time.monotonic() > back_at, timeout_s=LINK_CUT_S + 5)
        assert await silent(client)
        hosts[0].link("up")
        await eventually(lambda: fresh(client), timeout_s=40)


async def test_netem_loses_nothing_that_was_published_reliably(hosts: tuple[Host, Host]) -> None:
    join(hosts)
    with skipped_where_impossible():
        hosts[0].lose(0)
    async with service_and_node(hosts) as client:
        await eventually(lambda: fresh(client), timeout_s=30)
        for host in hosts:
            host.lose(15)
        await only_best_effort_is_lost(client)


async def test_a_lossy_cable_loses_nothing_that_was_published_reliably(
    hosts: tuple[Host, Host],
) -> None:
    with LossyCable(hosts) as cable:
        async with service_and_node(hosts) as client:
            await eventually(lambda: fresh(client), timeout_s=30)
            cable.percent = 15
            await only_best_effort_is_lost(client)


async def only_best_effort_is_lost(client: Client) -> None:
    async def many() -> Any:
        found = await streams(client)
        enough = len(found) == 2 and all(s["received"] >= 60 for s in found.values())
        return found if enough and found[LOSSY]["lost"] else None

    found = await eventually(many, timeout_s=30)
    assert found[RELIABLE]["lost"] == found[RELIABLE]["dropped"] == 0
    assert "lost on the way; publish reliably" in (found[LOSSY]["note"] or "")
