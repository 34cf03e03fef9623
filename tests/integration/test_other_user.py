"""Vision node and service as two users of one machine, who share no memory."""

import contextlib
import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator

import pytest
from mcp.client import Client

from processes import ask, fresh_domain, node, serve, serving_at
from support import eventually

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy", reason="run with --extra ros")

NOBODY = pwd.getpwnam("nobody")
BECOME = [
    *("setpriv", "--reuid", str(NOBODY.pw_uid), "--regid", str(NOBODY.pw_gid)),
    "--clear-groups",
]
# Reads what lies in a closed home, such as Python itself; shared memory is opened for writing, too.
READER = ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"]
UDP_ONLY = "FASTDDS_BUILTIN_TRANSPORTS=UDPv4"
SAYS = {
    "topic": "/vision/a/text",
    "type": "std_msgs/msg/String",
    "rate": 20,
    "fields": {"data": "here"},
}


@pytest.fixture
def as_nobody() -> Iterator[list[str]]:
    """What stands before a command that an unprivileged user runs, with a home of its own."""
    if os.geteuid() != 0:
        pytest.skip("only root can start processes of another user")
    # pytest's own folders are closed to others.
    with tempfile.TemporaryDirectory() as home:
        os.chown(home, NOBODY.pw_uid, NOBODY.pw_gid)
        reason = ""
        for become in (BECOME, [*BECOME, *READER]):
            prefix = ["env", f"HOME={home}", *become]
            command = [*prefix, sys.executable, "-c", "import rclpy, mcp_perception_buffer"]
            done = subprocess.run(command, capture_output=True, timeout=60, text=True)
            if done.returncode == 0:
                yield prefix
                return
            reason = done.stderr.strip().rpartition("\n")[2]
        pytest.skip(f"an unprivileged user cannot run {sys.executable} here: {reason}")


@contextlib.asynccontextmanager
async def asked(*prefix: str, domain: str) -> AsyncIterator[Client]:
    async with (
        serve("freshness_window_s=1.0", prefix=prefix, ROS_DOMAIN_ID=domain) as process,
        Client(await serving_at(process)) as client,
    ):
        yield client


async def heard(client: Client) -> bool:
    skills = (await ask(client, "what_do_you_see"))["skills"]
    return "a" in skills and skills["a"]["outputs"].get("text", {}).get("value") == "here"


async def told(client: Client) -> bool:
    """The service says that nothing arrives, and what may help."""
    streams = (await ask(client, "list_streams"))["streams"]
    note = (streams and streams[0]["note"]) or ""
    if "publisher present, no messages for" not in note:
        return False
    assert UDP_ONLY in note
    assert (streams[0]["publishers"], streams[0]["received"]) == (1, 0)
    found = await ask(client, "diagnose", skill="a")
    assert "publisher present, no messages for" in found["summary"]
    assert UDP_ONLY in found["checks"][0]["advice"]
    return True


async def test_a_silent_publisher_of_root_is_reported_and_udp_is_the_cure(
    as_nobody: list[str],
) -> None:
    domain = fresh_domain()
    async with node(domain, SAYS):
        async with asked(*as_nobody, domain=domain) as client:
            await eventually(lambda: told(client))
        async with asked("env", UDP_ONLY, *as_nobody, domain=domain) as client:
            await eventually(lambda: heard(client))


async def test_an_unprivileged_publisher_is_heard_or_reported_and_udp_is_the_cure(
    as_nobody: list[str],
) -> None:
    domain = fresh_domain()
    async with node(domain, SAYS, prefix=as_nobody) as vision:
        async with asked(domain=domain) as client:

            async def either() -> bool:
                # From Kilted on DDS sends by UDP where it may not write to shared memory.
                return await heard(client) or await told(client)

            await eventually(either)
        async with asked("env", UDP_ONLY, domain=domain) as client:
            await eventually(lambda: heard(client))
        await vision.end()  # in order: what that user leaves behind may be in the way of others
