"""The demo as a newcomer runs it: a real vision node on real photographs, no terminal needed."""

import asyncio
import os
import re
import signal
import sys

import pytest

from processes import fresh_domain

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy", reason="run with --extra ros")
pytest.importorskip("cv2", reason="run with --extra demo")


async def test_the_demo_shows_what_the_vision_node_sees_and_ends_with_ctrl_c() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mcp_perception_buffer", "demo"),
        env={**os.environ, "ROS_DOMAIN_ID": fresh_domain(), "MCP_PORT": "19202"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    shown = ""
    try:
        # The photographs are panned until the astronaut's face comes into view.
        async with asyncio.timeout(90):
            while not (re.search(r"face 0\.\d\d \[", shown) and "signature verified" in shown):
                line = (await process.stdout.readline()).decode()
                assert line, "the demo ended by itself"
                shown += line
        process.send_signal(signal.SIGINT)
        _, err = await asyncio.wait_for(process.communicate(), 5)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    assert process.returncode == 0
    assert '{"mcpServers": {"perception": {"type": "http"' in shown
    assert "describe_scene: fresh" in shown
    assert "mask" in shown
    assert re.search(r"event: \S+ watch_for #1: a face is in view = true", shown)
    assert b"Traceback" not in err


async def test_a_camera_that_is_not_there_is_told_and_leaves_nothing_running() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mcp_perception_buffer", "demo", "--camera", "99"),
        env={**os.environ, "ROS_DOMAIN_ID": fresh_domain(), "MCP_PORT": "19203"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 1
    assert b"camera 99" in out
    assert b"Traceback" not in out + err
