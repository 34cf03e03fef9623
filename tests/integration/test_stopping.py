"""A stop over HTTP while clients hold streams open; needs no ROS."""

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import httpx2 as httpx
import pytest
from mcp.client import Client
from mcp.client.sse import sse_client

from processes import read, serve, serving_at
from recording import record

NEWEST, OLDER = "2026-07-28", "2025-06-18"
META = "io.modelcontextprotocol/"
LISTEN = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "subscriptions/listen",
    "params": {
        "notifications": {"toolsListChanged": True},
        "_meta": {
            f"{META}protocolVersion": NEWEST,
            f"{META}clientInfo": {"name": "test", "version": "1"},
            f"{META}clientCapabilities": {},
        },
    },
}
BOTH = "application/json, text/event-stream"
STREAMS: dict[str, dict[str, Any]] = {
    "sse": {"method": "GET", "url": "/sse"},
    "standalone": {
        "method": "GET",
        "url": "/mcp",
        "headers": {"Accept": "text/event-stream", "MCP-Protocol-Version": OLDER},
    },
    "listen": {
        "method": "POST",
        "url": "/mcp",
        "headers": {
            "Accept": BOTH, "MCP-Protocol-Version": NEWEST, "Mcp-Method": "subscriptions/listen",
        },
        "json": LISTEN,
    },
}  # fmt: skip


@contextlib.asynccontextmanager
async def stopped(bag: Path) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """Serve; the block tells it to stop, after which nothing but that is logged."""
    async with serve(*record(bag)) as process:
        yield (await serving_at(process)).removesuffix("/mcp"), process
        _, err = await asyncio.wait_for(process.communicate(), 5)
    assert process.returncode == 0
    assert [entry for entry in map(json.loads, err.splitlines()) if entry["level"] != "info"] == []


@pytest.mark.parametrize("kinds", [("sse",), ("standalone",), ("listen",), tuple(STREAMS) * 5])
async def test_a_stop_ends_open_streams_in_order(kinds: tuple[str, ...], tmp_path: Path) -> None:
    async with (
        stopped(tmp_path / "bag") as (url, process),
        httpx.AsyncClient(base_url=url, timeout=10) as http,
        contextlib.AsyncExitStack() as streams,
    ):
        bodies = []
        for kind in kinds:
            stream = await streams.enter_async_context(http.stream(**STREAMS[kind]))
            assert stream.status_code == 200
            assert stream.headers["content-type"].startswith("text/event-stream")
            body = stream.aiter_lines()
            if kind != "standalone":  # on which nothing is said
                assert (await asyncio.wait_for(anext(body), 10)).startswith("event: ")
            bodies.append(body)
        process.send_signal(signal.SIGTERM)
        for kind, body in zip(kinds, bodies, strict=True):
            said = [line async for line in body]  # ended: what is cut raises
            if kind == "listen":  # told that it is over, not only left
                assert '"result":' in said[-2]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_stop_is_as_quiet_with_the_official_client(
    mode: Literal["auto", "legacy"], tmp_path: Path
) -> None:
    async with stopped(tmp_path / "bag") as (url, process), Client(f"{url}/mcp", mode=mode) as http:
        assert await read(http, "what_do_you_see")
        async with Client(sse_client(f"{url}/sse")) as sse:
            assert await read(sse, "what_do_you_see")
            process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(process.wait(), 5)
