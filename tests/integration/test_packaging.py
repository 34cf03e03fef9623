"""What is installed is enough: the wheel alone, in an empty folder, with a supervisor's socket."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx2 as httpx
import pytest

from processes import fresh_domain
from support import REPOSITORY, eventually

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy", reason="run with --extra ros")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip("uv builds the wheel")
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [uv, "build", "--quiet", "--wheel", "--out-dir", str(folder), str(REPOSITORY)],
        check=True, timeout=120,
    )  # fmt: skip
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.mark.parametrize("home", [None, "", "/proc/nowhere", "/dev/null"])
async def test_it_starts_without_a_home_that_can_be_written(home: str | None) -> None:
    env = {**os.environ, "ROS_DOMAIN_ID": fresh_domain(), "MCP_PORT": "0"}
    env.pop("HOME", None)
    if home is not None:
        env["HOME"] = home
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mcp_perception_buffer", "serve"),
        env=env,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        async with asyncio.timeout(60):
            async for line in process.stderr:
                if json.loads(line)["event"] == "serving":
                    break
            else:
                raise AssertionError("it did not start")
        process.terminate()
        await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    assert process.returncode == 0


async def test_the_wheel_serves_with_defaults_from_an_empty_folder(
    unpacked: Path, tmp_path: Path
) -> None:
    # The copy is not what coverage is about.
    env = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    env |= {"PYTHONPATH": str(unpacked), "ROS_DOMAIN_ID": fresh_domain()}
    shown = subprocess.run(
        [sys.executable, "-m", "mcp_perception_buffer", "config", "show"],
        cwd=tmp_path, env=env, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert str(unpacked / "mcp_perception_buffer" / "config" / "buffer.yaml") in shown.stdout
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.setblocking(False)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mcp_perception_buffer", "serve"),
            cwd=tmp_path,
            env={**env, "MCP_PORT": "0", "NOTIFY_SOCKET": str(tmp_path / "notify"), "HOME": ""},
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            assert process.stderr is not None
            async with asyncio.timeout(60):
                async for line in process.stderr:
                    entry = json.loads(line)
                    if entry["event"] == "serving":
                        break
            url = entry["mcp"].replace("/mcp", "/readyz")
            async with httpx.AsyncClient() as http:
                assert (await http.get(url)).status_code == 200

            # Readiness and the watchdog's beats reach the supervisor.
            heard: list[bytes] = []

            def beaten() -> bool:
                try:
                    while True:
                        heard.append(systemd.recv(100))
                except BlockingIOError:
                    return heard.count(b"WATCHDOG=1") >= 2

            await eventually(beaten)
            assert b"READY=1" in heard
            process.terminate()
            await asyncio.wait_for(process.communicate(), 10)
            beaten()
            assert heard[-1] == b"STOPPING=1"
        finally:
            if process.returncode is None:
                process.kill()
                await process.communicate()
    assert process.returncode == 0
    assert list(tmp_path.iterdir()) == [tmp_path / "notify"]  # no log, no cache, no output folder
