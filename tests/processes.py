"""Other processes that tests talk to: a publisher over real DDS, and the service itself."""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any

import uvicorn
from mcp.client import Client
from mcp.types import TextContent

from mcp_perception_buffer.buffer import Buffer
from mcp_perception_buffer.server import create_app
from mcp_perception_buffer.settings import Settings
from support import REPOSITORY

# Domain ids above 101 would reach into the ports that Linux hands out to everybody. Each of up to
# four test processes has some of its own.
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 4
_DOMAINS = itertools.cycle(range(10 + 22 * _WORKER, 32 + 22 * _WORKER))

SCRIPTED_NODE = (REPOSITORY / "tests" / "scripted_node.py").read_text()

COMMAND = [sys.executable, "-m", "mcp_perception_buffer"]

# What a client of a handshake generation says first.
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


def fresh_domain() -> str:
    return str(next(_DOMAINS))


class Publisher:
    """A ROS process under test control, ended whatever happens."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def say(self, topic: str, value: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{topic}={value}\n".encode())
        await self.process.stdin.drain()

    async def end(self, number: signal.Signals = signal.SIGTERM, timeout_s: float = 20) -> int:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        return await asyncio.wait_for(self.process.wait(), timeout_s)


@contextlib.asynccontextmanager
async def publisher(
    *args: str,
    domain: str,
    module: str = "mcp_perception_buffer.sim",
    code: str | None = None,
    prefix: Sequence[str] = (),
) -> AsyncIterator[Publisher]:
    """Run the simulator, another module, or a few lines of rclpy, until the block ends.

    The process has printed `ready` when the block begins. `prefix` may be such as `setpriv …`.
    """
    process = await asyncio.create_subprocess_exec(
        *prefix,
        sys.executable,
        *(["-m", module] if code is None else ["-c", code]),
        *args,
        env={**os.environ, "ROS_DOMAIN_ID": domain, "PYTHONUNBUFFERED": "1"},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    started = Publisher(process)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            while (line := await process.stdout.readline()) != b"ready\n":
                assert line, f"the publisher ended with {await process.wait()}"
        yield started
    finally:
        assert process.stdin is not None
        process.stdin.close()
        if process.returncode is None:
            # A node that is killed leaves its shared memory behind, half a megabyte each time.
            try:
                await started.end(timeout_s=3)
            except TimeoutError:
                await started.end(signal.SIGKILL)
        await process.communicate()


@contextlib.asynccontextmanager
async def node(
    domain: str, *specs: dict[str, Any], ros_args: Sequence[str] = (), prefix: Sequence[str] = ()
) -> AsyncIterator[Publisher]:
    """Run a node that publishes as `scripted_node.py` describes, until the block ends."""
    args = [*map(json.dumps, specs), "--ros-args", *ros_args]
    async with publisher(*args, code=SCRIPTED_NODE, domain=domain, prefix=prefix) as started:
        yield started


class Service:
    """The real application under uvicorn in this process, and how to ask it."""

    def __init__(self, url: str, buffer: Buffer) -> None:
        self.url = url
        self.buffer = buffer
        self._kept: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._keeping: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    async def ask(self, tool: str, **arguments: Any) -> Any:
        """Call a tool over one client for all such calls: opening it takes longer than they do."""
        return await ask(await self._one(), tool, **arguments)

    async def read(self, tool: str, **arguments: Any) -> str:
        """Return the same answer's text."""
        return await read(await self._one(), tool, **arguments)

    async def _one(self) -> Client:
        if self._keeping is None:
            self._keeping = asyncio.create_task(self._keep())
        async with asyncio.timeout(20):
            return await asyncio.shield(self._kept)

    async def _keep(self) -> None:
        # A client is closed by the task that opened it, and a fixture's end is in another one.
        async with self.client() as client:
            self._kept.set_result(client)
            await self._closing.wait()

    async def close(self) -> None:
        """Close that client."""
        self._closing.set()
        if self._keeping is not None:
            await self._keeping

    async def stream(self, topic: str) -> dict[str, Any]:
        """Return what `list_streams` says of a topic, empty if it is not listed."""
        streams = (await self.ask("list_streams"))["streams"]
        return next((entry for entry in streams if entry["topic"] == topic), {})

    @contextlib.asynccontextmanager
    async def client(self, path: str = "/mcp", **options: Any) -> AsyncIterator[Client]:
        """Open a client of its own until the block ends."""
        async with Client(self.url + path, **options) as client:
            yield client


@contextlib.asynccontextmanager
async def service(**settings: Any) -> AsyncIterator[Service]:
    """Serve on a free port until the block ends; a failure of the service fails the block."""
    failures: list[str] = []
    app = create_app(Settings(**settings), on_failure=lambda: failures.append("source ended"))
    server = uvicorn.Server(
        uvicorn.Config(app, port=0, log_config=None, timeout_graceful_shutdown=2)
    )
    serving = asyncio.create_task(server.serve())
    try:
        async with asyncio.timeout(30):
            while not server.started:
                assert not serving.done(), "the service did not start"
                await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        running = Service(f"http://127.0.0.1:{port}", app.state.service.buffer)
        try:
            yield running
        finally:
            await running.close()
        assert not failures
    finally:
        server.should_exit = True
        await asyncio.wait_for(serving, 20)


@contextlib.asynccontextmanager
async def serve(
    *args: str, prefix: Sequence[str] = (), **env: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the command on a free port until the block ends; `prefix` as for `publisher`."""
    process = await asyncio.create_subprocess_exec(
        *prefix,
        *COMMAND,
        "serve",
        *args,
        env={**os.environ, "ROS_DOMAIN_ID": fresh_domain(), "MCP_PORT": "0", **env},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()  # in order, since what is killed leaves its shared memory behind
        try:
            await asyncio.wait_for(process.communicate(), 20)
        except TimeoutError:
            process.kill()
            await process.communicate()
            raise


async def serving_at(process: asyncio.subprocess.Process) -> str:
    """Wait until a command started by `serve` does, and return its MCP URL."""
    assert process.stderr is not None
    async with asyncio.timeout(30):
        async for line in process.stderr:
            entry: dict[str, Any] = json.loads(line)
            if entry["event"] == "serving":
                return str(entry["mcp"])
    raise AssertionError("the service ended before it served")


async def ask(client: Client, tool: str, **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return result.structured_content


async def read(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    [block] = result.content
    assert isinstance(block, TextContent)
    return block.text
