import asyncio
import socket
from collections.abc import Iterator

import httpx2 as httpx
import pytest

from mcp_perception_buffer.watchdog import Watchdog


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        yield listening


def test_a_loop_that_does_not_answer_is_answered_for(listening: socket.socket) -> None:
    port = listening.getsockname()[1]
    # Nothing accepts here, as if the loop were blocked.
    with Watchdog(listening, lambda: "loop: no heartbeat for 6 s"):
        for _ in range(3):
            answer = httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=10)
            assert answer.status_code == 503
            assert answer.json()["reasons"] == ["loop: no heartbeat for 6 s"]


def test_a_client_that_says_nothing_holds_nobody_up(listening: socket.socket) -> None:
    port = listening.getsockname()[1]
    with socket.create_connection(("127.0.0.1", port)), Watchdog(listening, lambda: "blocked"):
        answer = httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=10)
        assert answer.status_code == 503


async def test_a_loop_that_beats_keeps_its_connections(listening: socket.socket) -> None:
    def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"from the loop")
        writer.close()

    with Watchdog(listening, lambda: None):
        async with await asyncio.start_server(greet, sock=listening):
            for _ in range(5):
                reader, writer = await asyncio.open_connection(*listening.getsockname())
                assert await reader.read() == b"from the loop"
                writer.close()
                await writer.wait_closed()
