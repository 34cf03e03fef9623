"""The official conformance scenarios that apply here, and the Inspector; both come from npm."""

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from bag_scenes import playing
from mcp_perception_buffer.settings import load_settings
from processes import COMMAND, Service, service
from support import REPOSITORY, eventually

SCENARIOS = [
    "server-initialize",
    "ping",
    "tools-list",
    "resources-list",
    "prompts-list",
    "dns-rebinding-protection",
]
PACKAGES = [
    "node@22",
    "@modelcontextprotocol/conformance@0.1.16",
    "@modelcontextprotocol/inspector@2.12.0",
]
BAG = REPOSITORY / "tests" / "bags" / "yolo"
SKILL = "yolo/tracking"
CALLS: dict[str, dict[str, Any]] = {
    "what_do_you_see": {},
    "get_latest": {"skill": SKILL, "limit": 1},
    "what_changed": {},
    "wait_for_change": {"timeout_s": 0.1},
    "list_streams": {},
    "get_watch_state": {},
    "diagnose": {"skill": SKILL},
    "get_overlay_ref": {"skill": SKILL},
}
TOLD_ERROR = 5  # the Inspector's exit code for a result with `isError`


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm installs the suite and the Inspector")
    folder = tmp_path_factory.mktemp("npm")
    install = [npm, "install", "--prefer-offline", "--no-audit", "--no-fund", *PACKAGES]
    done = subprocess.run(install, cwd=folder, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        pytest.skip(f"npm could not install them: {done.stderr[-200:]}")
    return folder / "node_modules"


@pytest.fixture
async def serving() -> AsyncIterator[Service]:
    settings, _ = load_settings(["streams=auto"])
    async with service(**{**dict(settings), **playing(BAG)}) as running:
        await eventually(lambda: not running.buffer.discovering)
        await eventually(lambda: running.buffer.find(SKILL, "detections"))
        yield running


async def run(*command: str | Path, **env: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        env={**os.environ, **env},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        said, errors = await asyncio.wait_for(process.communicate(), 60)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, said.decode(), errors.decode()


async def test_the_official_scenarios_pass(packages: Path, serving: Service) -> None:
    suite = packages / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    for scenario in SCENARIOS:
        where = ("server", "--url", f"{serving.url}/mcp", "--scenario", scenario)
        code, said, errors = await run(packages / ".bin" / "node", suite, *where)
        assert code == 0, f"{scenario}: {said}{errors}"


class Inspector:
    """The Inspector's command line against one server, with a home of its own."""

    def __init__(self, packages: Path, home: Path, *server: str | Path) -> None:
        launcher = packages / ".bin" / "mcp-inspector"
        self._command = (packages / ".bin" / "node", launcher, "--cli", *server)
        self._env = {"HOME": str(home), "NO_COLOR": "1"}

    async def ask(self, method: str, *options: str, code: int = 0) -> Any:
        ended, said, errors = await run(
            *self._command, "--method", method, *options, **self._env
        )  # fmt: skip
        assert ended == code, f"{method} {options}: {said}{errors}"
        return json.loads(said)

    async def schemas(self) -> dict[str, Any]:
        """The tools' output schemas, once the Inspector finds no fault with any."""
        listed = (await self.ask("tools/list", "--strict"))["tools"]
        return {tool["name"]: closed(tool["outputSchema"]) for tool in listed}

    async def call(self, tool: str, code: int = 0) -> Any:
        arguments = ("--tool-args-json", json.dumps(CALLS[tool]))
        return await self.ask("tools/call", "--tool-name", tool, *arguments, code=code)


def closed(schema: Any) -> Any:
    """The same schema, in which an object has no keys but those that stand there."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    sealed = {key: closed(value) for key, value in schema.items()}
    named = isinstance(schema.get("properties"), dict) and schema.get("type") == "object"
    return {**sealed, "additionalProperties": False} if named else sealed


def readable(result: Any) -> str:
    """The text of a result, which is for people and models and therefore no JSON."""
    [block] = result["content"]
    assert block["type"] == "text"
    text: str = block["text"]
    assert text.strip()
    with pytest.raises(ValueError, match="line 1"):
        json.loads(text)
    return text


def check(result: Any, schema: Any) -> None:
    readable(result)
    Draft202012Validator.check_schema(schema)
    checker = Draft202012Validator.FORMAT_CHECKER
    Draft202012Validator(schema, format_checker=checker).validate(result["structuredContent"])


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_inspector_reads_text_and_valid_data_of_every_tool(
    packages: Path, serving: Service, tmp_path: Path, era: str
) -> None:
    where = (f"{serving.url}/mcp", "--protocol-era", era)
    inspector = Inspector(packages, tmp_path, *where)
    schemas = await inspector.schemas()
    assert schemas.keys() == CALLS.keys()
    tools = list(CALLS) if era == "legacy" else ["what_do_you_see"]
    for tool in tools:
        if tool != "get_overlay_ref":
            check(await inspector.call(tool), schemas[tool])
            continue
        refused = await inspector.call(tool, code=TOLD_ERROR)
        assert "has published no overlay" in readable(refused)
        assert "structuredContent" not in refused


async def test_the_inspector_finds_resources_and_the_prompt(
    packages: Path, serving: Service, tmp_path: Path
) -> None:
    inspector = Inspector(packages, tmp_path, f"{serving.url}/mcp")
    listed = (await inspector.ask("resources/list"))["resources"]
    assert {one["uri"] for one in listed} == {"perception://scene", "perception://streams"}
    [scene] = (await inspector.ask("resources/read", "--uri", "perception://scene"))["contents"]
    assert scene["mimeType"] == "text/plain"
    assert f"{SKILL}: fresh" in scene["text"]
    [prompt] = (await inspector.ask("prompts/list"))["prompts"]
    assert prompt["name"] == "look_around"


async def test_over_stdio_the_inspector_gets_the_same_answer(
    packages: Path, serving: Service, tmp_path: Path
) -> None:
    schemas = await Inspector(packages, tmp_path, f"{serving.url}/mcp").schemas()
    config = tmp_path / "mcp.json"
    serve = [*COMMAND[1:], "serve", "source=bag", f"source.path={BAG}", "streams=auto"]
    env = {"MCP_TRANSPORT": "stdio"}
    entry = {"command": COMMAND[0], "args": [*serve, "tasks=static"], "env": env}
    config.write_text(json.dumps({"mcpServers": {"perception": entry}}))
    where = ("--config", str(config), "--server", "perception")
    inspector = Inspector(packages, tmp_path, *where)
    check(await inspector.call("what_do_you_see"), schemas["what_do_you_see"])
