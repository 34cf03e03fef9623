"""The official MCP conformance scenarios that apply to a server of tools alone."""

import asyncio
import shutil
import subprocess
from pathlib import Path

import pytest

from processes import fresh_domain, service

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy", reason="run with --extra ros")

SCENARIOS = [
    "server-initialize",
    "ping",
    "tools-list",
    "resources-list",
    "dns-rebinding-protection",
]
PACKAGES = ["node@22", "@modelcontextprotocol/conformance@0.1.16"]


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm installs the suite")
    folder = tmp_path_factory.mktemp("conformance")
    install = [npm, "install", "--prefer-offline", "--no-audit", "--no-fund", *PACKAGES]
    done = subprocess.run(install, cwd=folder, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        pytest.skip(f"npm could not install the suite: {done.stderr[-200:]}")
    return folder / "node_modules"


async def test_the_official_scenarios_pass(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROS_DOMAIN_ID", fresh_domain())
    async with service() as running:
        for scenario in SCENARIOS:
            process = await asyncio.create_subprocess_exec(
                str(suite / ".bin" / "node"),
                str(suite / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"),
                *("server", "--url", f"{running.url}/mcp", "--scenario", scenario),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            said, _ = await asyncio.wait_for(process.communicate(), 60)
            assert process.returncode == 0, f"{scenario}: {said.decode()}"
