"""The command over stdio, whatever kind of file its client gives it; needs no ROS."""

import asyncio
import contextlib
import json
import os
import select
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from processes import COMMAND, INITIALIZE
from recording import record
from support import eventually

LISTING = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
ASKING = {
    "jsonrpc": "2.0",
    "id": 3,
    "method": "tools/call",
    "params": {"name": "what_do_you_see", "arguments": {}},
}
REQUESTS = [json.dumps(request).encode() + b"\n" for request in (INITIALIZE, LISTING, ASKING)]
END_OF_TRANSMISSION = b"\x04"  # what Ctrl-D sends

PIPE, SOCKET, TERMINAL = "pipe", "socket", "terminal"


class Line:
    """Stdin for the command as a descriptor, and what its client writes to."""

    def __init__(self, kind: str) -> None:
        if kind == PIPE:
            self.stdin, self._client = os.pipe()
        elif kind == SOCKET:
            self.stdin, self._client = (end.detach() for end in socket.socketpair())
        else:
            self._client, self.stdin = os.openpty()
        self._terminal = kind == TERMINAL

    def write(self, data: bytes) -> None:
        os.write(self._client, data)

    def end(self) -> None:
        if self._terminal:
            self.write(END_OF_TRANSMISSION)
        else:
            self.hang_up()

    def hang_up(self) -> None:
        os.close(self._client)
        self._client = -1

    def close(self) -> None:
        os.close(self.stdin)
        if self._client >= 0:
            self.hang_up()


@pytest.fixture
def bag(tmp_path: Path) -> list[str]:
    return record(tmp_path / "bag")


@pytest.fixture
def line(request: pytest.FixtureRequest) -> Iterator[Line]:
    with contextlib.closing(Line(request.param)) as line:
        yield line


def each(*kinds: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("line", kinds, indirect=True)


@contextlib.asynccontextmanager
async def command(
    bag: list[str], stdin: Any, stdout: Any = asyncio.subprocess.PIPE
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "serve", *bag,
        env={**os.environ, "MCP_TRANSPORT": "stdio"},
        stdin=stdin,
        stdout=stdout,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def ended(process: asyncio.subprocess.Process) -> list[Any]:
    """Wait for an end in order, and return what was answered since."""
    out, err = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0, err.decode()
    for entry in map(json.loads, err.splitlines()):
        assert entry["level"] in ("info", "warning"), entry
    return [json.loads(answer) for answer in (out or b"").splitlines()]


async def first_answer(process: asyncio.subprocess.Process) -> Any:
    assert process.stdout is not None
    return json.loads(await asyncio.wait_for(process.stdout.readline(), 30))


def are_complete(answers: list[Any]) -> bool:
    return sorted(answer["id"] for answer in answers if "result" in answer) == [1, 2, 3]


@each(PIPE, SOCKET, TERMINAL)
async def test_what_was_asked_before_the_end_is_answered(line: Line, bag: list[str]) -> None:
    for request in REQUESTS:
        line.write(request)
    line.end()
    async with command(bag, line.stdin) as process:
        assert are_complete(await ended(process))


async def test_the_requests_in_a_file_are_answered_though_the_last_line_lacks_its_end(
    bag: list[str], tmp_path: Path
) -> None:
    (tmp_path / "requests").write_bytes(b"".join(REQUESTS).rstrip())
    with open(tmp_path / "requests", "rb") as stdin:
        async with command(bag, stdin) as process:
            assert are_complete(await ended(process))


async def test_answers_may_go_to_a_file(bag: list[str], tmp_path: Path) -> None:
    (tmp_path / "requests").write_bytes(b"".join(REQUESTS))
    with open(tmp_path / "requests", "rb") as stdin, open(tmp_path / "answers", "wb") as stdout:
        async with command(bag, stdin, stdout) as process:
            await ended(process)
    answers = (tmp_path / "answers").read_bytes().splitlines()
    assert are_complete([json.loads(answer) for answer in answers])


async def test_where_there_is_nothing_to_read_it_ends_at_once(bag: list[str]) -> None:
    async with command(bag, asyncio.subprocess.DEVNULL) as process:
        assert await ended(process) == []


@each(PIPE, SOCKET, TERMINAL)
async def test_a_client_that_hangs_up_ends_it(line: Line, bag: list[str]) -> None:
    line.write(REQUESTS[0])
    async with command(bag, line.stdin) as process:
        assert (await first_answer(process))["id"] == 1
        line.hang_up()
        assert await ended(process) == []


@each(PIPE, SOCKET, TERMINAL)
async def test_a_signal_ends_it_while_the_line_is_open(line: Line, bag: list[str]) -> None:
    line.write(REQUESTS[0])
    async with command(bag, line.stdin) as process:
        assert (await first_answer(process))["id"] == 1
        process.send_signal(signal.SIGTERM)
        assert await ended(process) == []


async def test_a_signal_ends_it_while_the_client_takes_no_answers(bag: list[str]) -> None:
    answers, stdout = os.pipe()
    with (
        open(answers, "rb"),
        open(stdout, "wb") as theirs,
        contextlib.closing(Line(PIPE)) as line,
    ):
        for request in [REQUESTS[0], *REQUESTS[1:2] * 100]:
            line.write(request)
        async with command(bag, line.stdin, theirs) as process:
            await eventually(lambda: not select.select([], [stdout], [], 0)[1], timeout_s=30)
            process.send_signal(signal.SIGTERM)
            await ended(process)


async def test_it_ends_in_order_when_nobody_takes_its_answers_any_more(bag: list[str]) -> None:
    answers, stdout = os.pipe()
    os.close(answers)
    with contextlib.closing(Line(PIPE)) as line, open(stdout, "wb") as theirs:
        line.write(REQUESTS[0])
        async with command(bag, line.stdin, theirs) as process:
            await ended(process)


async def test_closed_streams_are_told_in_one_message(bag: list[str]) -> None:
    shell = ["sh", "-c", 'exec "$@" <&-', "sh", *COMMAND, "serve", *bag]
    process = await asyncio.create_subprocess_exec(
        *shell,
        env={**os.environ, "MCP_TRANSPORT": "stdio"},
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 1
    [message] = err.decode().splitlines()
    assert "stdin or stdout is closed" in message
