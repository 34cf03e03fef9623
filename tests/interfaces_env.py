"""The message packages of `interfaces/`, added to the environment that the tests run in."""

import importlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from support import REPOSITORY

DEFINITIONS = REPOSITORY / "tests" / "interfaces"

# For minutes, where the build tools have to be fetched first.
TIMEOUT_S = 900


def add(*folders: Path | str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `interfaces add` and return what came of it; no colours, and both outputs apart."""
    return run(["add", *map(str, folders)], **env)


def run(args: Sequence[str], **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mcp_perception_buffer", "interfaces", *args],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )


@pytest.fixture(scope="session")
def robot_interfaces() -> None:
    """Make the types of `interfaces/` importable; a second's work where they are already.

    The command itself lets only one process add at a time, so that every worker may ask for this.
    """
    if os.environ.get("AMENT_PREFIX_PATH"):
        pytest.skip("a sourced ROS builds packages with colcon")
    done = add(DEFINITIONS)
    assert done.returncode == 0, done.stderr
    importlib.invalidate_caches()
