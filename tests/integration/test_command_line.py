"""The installed command as a person or a supervisor runs it."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import httpx2 as httpx
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from processes import COMMAND, INITIALIZE, ask, fresh_domain, publisher, serve, serving_at
from support import eventually

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy", reason="run with --extra ros")


@pytest.mark.parametrize(
    ("number", "times"), [(signal.SIGINT, 20), (signal.SIGTERM, 1)], ids=["SIGINT", "SIGTERM"]
)
async def test_a_signal_ends_the_service_in_order_and_without_a_traceback(
    number: signal.Signals, times: int
) -> None:
    domain = fresh_domain()
    async with publisher("--rate", "200", domain=domain):
        for _ in range(times):
            async with serve(ROS_DOMAIN_ID=domain) as process:
                url = await serving_at(process)

                async def fresh(url: str = url) -> bool:
                    async with Client(url) as client:
                        return bool((await ask(client, "list_streams"))["streams"])

                await eventually(fresh)
                process.send_signal(number)
                out, err = await asyncio.wait_for(process.communicate(), 5)
            assert process.returncode == 0
            assert out == b""
            assert b"Traceback" not in err
            for line in err.splitlines():
                json.loads(line)


async def test_sse_clients_neither_hold_back_a_stop_nor_get_a_token_into_the_log() -> None:
    token = {"Authorization": "Bearer SEKRET"}
    async with serve(PERCEPTION_AUTH_TOKEN="SEKRET") as process:
        url = (await serving_at(process)).replace("/mcp", "/sse")
        async with httpx.AsyncClient(headers=token) as http:
            foreign = await http.get(url, headers={"Host": "evil.example"})
            assert foreign.status_code == 421
            async with http.stream("GET", url) as stream:
                lines = stream.aiter_lines()
                assert await anext(lines) == "event: endpoint"
                process.send_signal(signal.SIGTERM)
                assert [line async for line in lines][-1] == ""  # ended, not cut
        _, err = await asyncio.wait_for(process.communicate(), 5)
    assert process.returncode == 0
    assert b"SEKRET" not in err
    assert b"exception" not in err


async def test_a_signal_before_it_is_up_ends_it_too() -> None:
    async with serve() as process:
        assert process.stderr is not None
        await asyncio.wait_for(process.stderr.readline(), 30)
        process.send_signal(signal.SIGINT)
        _, err = await asyncio.wait_for(process.communicate(), 5)
    assert b"Traceback" not in err


async def test_a_taken_port_is_one_message_and_nothing_is_left_running() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        async with serve(MCP_PORT=str(taken.getsockname()[1])) as process:
            _, err = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 1  # a supervisor tries again
    assert b"rcl" not in err  # ROS was never started
    [message] = err.decode().splitlines()
    assert "cannot listen on 127.0.0.1:" in message
    assert "MCP_PORT" in message


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"MCP_PORT": "eighty"}, "MCP_PORT = 'eighty'"),
        ({"MCP_TRANSPORT": "pigeon"}, "MCP_TRANSPORT = 'pigeon'"),
        ({"ROS_DOMAIN_ID": "233"}, "ROS_DOMAIN_ID = '233'"),
        ({"PERCEPTION_DEPLOYMENT": "robot"}, "RVC_CALLBACK_URL is unset"),
    ],
)
async def test_a_wrong_setting_ends_start_up_with_one_readable_message(
    env: dict[str, str], said: str
) -> None:
    async with serve(**env) as process:
        _, err = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode in (1, 2)
    assert said in err.decode()
    assert b"Traceback" not in err


async def test_a_state_directory_that_cannot_be_written_is_told_before_ros_starts() -> None:
    async with serve("state_dir=/proc/nowhere") as process:
        _, err = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 1
    assert b"state_dir = /proc/nowhere: cannot be written" in err
    assert b"Traceback" not in err


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_stdio_serves_and_keeps_stdout_for_the_protocol(
    mode: Literal["auto", "legacy"],
) -> None:
    domain = fresh_domain()
    env = {
        **os.environ,
        "ROS_DOMAIN_ID": domain,
        "MCP_TRANSPORT": "stdio",
    }
    server = StdioServerParameters(command=COMMAND[0], args=[*COMMAND[1:], "serve"], env=env)
    async with publisher(domain=domain), Client(server, mode=mode) as client:

        async def seen() -> bool:
            scene = await ask(client, "what_do_you_see")
            return "find_object" in scene["skills"] and scene["camera"]["alive"]

        await eventually(seen)


@contextlib.asynccontextmanager
async def stdio(*args: str, **env: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "serve", *args,
        env={**os.environ, "ROS_DOMAIN_ID": fresh_domain(), "MCP_TRANSPORT": "stdio", **env},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
        first = await asyncio.wait_for(process.stdout.readline(), 60)
        assert json.loads(first)["result"]["serverInfo"]["name"] == "perception"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_on_stdout_there_is_json_rpc_alone_whatever_rcl_is_told() -> None:
    noisy = {"RCUTILS_LOGGING_USE_STDOUT": "1"}
    async with stdio("log_level=DEBUG", "--ros-args", "--log-level", "debug", **noisy) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 2, "method": "ping"}).encode())
        process.stdin.write(b"\n")
        assert process.stdout is not None
        answer = await asyncio.wait_for(process.stdout.readline(), 20)
        process.stdin.close()
        out, err = await asyncio.wait_for(process.communicate(), 20)
    assert json.loads(answer)["id"] == 2
    assert out == b""
    assert process.returncode == 0
    assert b'"logger": "rcl"' in err
    for line in err.splitlines():
        json.loads(line)


async def test_a_message_beyond_all_bounds_does_not_end_stdio() -> None:
    async with stdio() as process:
        assert process.stdin is not None
        assert process.stdout is not None
        huge = {"jsonrpc": "2.0", "id": 2, "method": "ping", "params": {"x": "y" * 9_000_000}}
        process.stdin.write(json.dumps(huge).encode() + b"\n")
        process.stdin.write(b'{"jsonrpc": "2.0", "id": 3, "method": "ping"}\n')
        answers = set()
        async with asyncio.timeout(20):
            while 3 not in answers:
                answers.add(json.loads(await process.stdout.readline()).get("id"))
    assert 2 not in answers


async def test_a_signal_ends_stdio_although_the_client_holds_the_line() -> None:
    async with stdio() as process:
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        err = await asyncio.wait_for(process.stderr.read(), 5)
        assert await asyncio.wait_for(process.wait(), 5) == 0
    assert b"Traceback" not in err


ENDING = """
import asyncio, signal
from mcp_perception_buffer.sources.base import Source

class EndingSource(Source):
    last_beat_ns = 0

    def find_definition(self, type_name):
        raise NotImplementedError

    async def run(self, on_ready):
        told = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, told.set)
        on_ready()
        await told.wait()
        raise RuntimeError("the wire was cut")
"""


async def test_a_source_that_fails_ends_stdio_with_a_code_that_tells_it(tmp_path: Path) -> None:
    (tmp_path / "ending.py").write_text(ENDING)
    chosen = ("source._target_=ending.EndingSource", "tasks=static")
    async with stdio(*chosen, PYTHONPATH=str(tmp_path)) as process:
        process.send_signal(signal.SIGUSR1)
        assert process.stderr is not None
        err = await asyncio.wait_for(process.stderr.read(), 10)
        assert await asyncio.wait_for(process.wait(), 5) == 1
    assert b"the wire was cut" in err


async def test_reload_starts_it_anew_in_a_fresh_context(tmp_path: Path) -> None:
    watched = tmp_path / "watched.py"
    watched.touch()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "uvicorn", "--factory", "--reload", "--reload-dir", str(tmp_path)),
        *("--port", str(port), "mcp_perception_buffer.server:create_app"),
        cwd=tmp_path,
        env={**os.environ, "ROS_DOMAIN_ID": fresh_domain()},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    said = b""
    try:
        async with asyncio.timeout(60):
            for starts in (1, 2):
                while said.count(b"Application startup complete") < starts:
                    line = await process.stdout.readline()
                    assert line, said.decode()
                    said += line
                async with httpx.AsyncClient() as http:
                    answer = await http.get(f"http://127.0.0.1:{port}/readyz")
                assert answer.status_code == 200
                watched.write_text(f"# {starts}")
    finally:
        process.terminate()
        rest, _ = await asyncio.wait_for(process.communicate(), 20)
    assert b"Traceback" not in said + rest


async def test_ros_arguments_reach_the_node() -> None:
    domain = fresh_domain()
    remap = ["--ros-args", "-r", "__ns:=/r1", "-r", "__node:=eyes"]
    probe = (
        "import rclpy\nrclpy.init()\nnode = rclpy.create_node('probe')\n"
        "while '/r1' not in [ns for _, ns in node.get_node_names_and_namespaces()]:\n"
        "    rclpy.spin_once(node, timeout_sec=0.05)\n"
        "print('ready', flush=True)\n"
        "input()\n"
    )
    async with serve(*remap, ROS_DOMAIN_ID=domain) as process:
        await serving_at(process)
        async with publisher(code=probe, domain=domain):
            pass


async def test_the_domain_may_be_a_setting_like_any_other() -> None:
    domain = fresh_domain()
    async with (
        publisher(domain=domain),
        serve(f"ros_domain_id={domain}", ROS_DOMAIN_ID="") as process,
        Client(await serving_at(process)) as client,
    ):

        async def seen() -> bool:
            return bool((await ask(client, "list_streams"))["streams"])

        await eventually(seen)


async def test_probes_answer_while_a_brain_asks_in_parallel_under_load() -> None:
    domain = fresh_domain()
    async with (
        publisher("--rate", "200", domain=domain),
        serve(ROS_DOMAIN_ID=domain) as process,
        httpx.AsyncClient() as http,
    ):
        url = await serving_at(process)

        async def brain() -> None:
            async with Client(url) as client:
                for _ in range(5):
                    assert (await ask(client, "what_do_you_see"))["generated_at"]

        async with asyncio.TaskGroup() as brains:
            for _ in range(20):
                brains.create_task(brain())
            for _ in range(10):
                health = await http.get(url.replace("/mcp", "/healthz"))
                assert health.status_code == 200
