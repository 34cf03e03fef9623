"""What `hosts` prints does what it is for: it starts the service, or finds the running one."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from processes import COMMAND, read, serve, serving_at
from recording import record
from support import eventually


@pytest.fixture
def bag(tmp_path: Path) -> list[str]:
    return record(tmp_path / "bag")


async def printed(*args: str, **env: str) -> Any:
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "hosts", *args, env={**os.environ, **env}, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0
    return json.loads(out)


async def sees_a_cup(client: Client) -> None:
    async def cup() -> bool:
        return "a cup" in await read(client, "what_do_you_see")

    await eventually(cup)


async def test_the_printed_command_starts_a_service_that_answers(
    bag: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = await printed("claude-desktop", *bag, "--transport", "stdio")
    start = StdioServerParameters(**config["mcpServers"]["perception"])
    monkeypatch.chdir(tmp_path)  # from any folder
    async with Client(start) as client:
        await sees_a_cup(client)


async def test_the_printed_url_and_header_reach_the_running_service(bag: list[str]) -> None:
    secret = {"PERCEPTION_AUTH_TOKEN": "SEKRET"}
    async with serve(*bag, **secret) as process:
        port = (await serving_at(process)).split(":")[2].removesuffix("/mcp")
        config = await printed("vscode", "--transport", "streamable-http", MCP_PORT=port, **secret)
        entry = config["servers"]["perception"]
        # As the host does, when it has asked for it.
        [asked] = config["inputs"]
        header = entry["headers"]["Authorization"].replace(f"${{input:{asked['id']}}}", "SEKRET")
        async with (
            httpx.AsyncClient(headers={"Authorization": header}) as http,
            Client(streamable_http_client(entry["url"], http_client=http)) as client,
        ):
            await sees_a_cup(client)
