"""Builds wheels in an environment of their own, and installs them into the one that runs this.

The packages are fetched and installed by uv, or by pip where there is no uv.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from mcp_perception_buffer.errors import InterfaceError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# Of the environment that this runs in, where ROS is another one.
FOREIGN = (
    "LD_LIBRARY_PATH", "_ROS_WHEELS_BOOTSTRAP_COMPLETE", "VIRTUAL_ENV", "PYTHONPATH",
    "AMENT_PREFIX_PATH", "CMAKE_PREFIX_PATH",
)  # fmt: skip

SHOWN_LINES = 10  # of what a tool says when it fails

BUILD = "from scikit_build_core.build import build_wheel; build_wheel('wheel')"

NO_COMPILER = """\
there is no C and C++ compiler here, and message types are compiled.
Install them (on Debian and Ubuntu: apt install gcc g++), then try again"""

NO_INDEX = """\
the tools that build messages could not be fetched: {said}
Try again when the package index can be reached; what was fetched once is kept"""

# How uv and pip say that they did not reach an index.
_UNREACHED = re.compile(r"failed to fetch|network was disabled|no matching dist", re.IGNORECASE)
_ERROR = re.compile(r"\berror\b", re.IGNORECASE)


class Workshop:
    """A folder with an environment that has what builds need."""

    def __init__(self, folder: Path, requirements: Sequence[str]) -> None:
        """Make it, which takes seconds, or minutes where nothing has been fetched yet.

        Args:
            folder: where; it may be deleted afterwards.
            requirements: what builds need, compilers aside.

        Raises:
            UnavailableError: there is no compiler, neither uv nor pip, or no package index.
        """
        if not all(
            any(shutil.which(name) for name in names)
            for names in (("cc", "gcc", "clang"), ("c++", "g++", "clang++"))
        ):
            raise UnavailableError(NO_COMPILER)
        self._env = {name: value for name, value in os.environ.items() if name not in FOREIGN}
        self._python = folder / "environment" / "bin" / "python"
        venv.create(folder / "environment", symlinks=True)
        tools = [name for name in ("cmake", "ninja") if not shutil.which(name)]
        _run(_install(str(self._python), [*requirements, *tools]), folder, self._env)
        path = os.pathsep.join([str(self._python.parent), self._env.get("PATH", os.defpath)])
        self._env["PATH"] = path

    def build(self, projects: Sequence[Path]) -> list[Path]:
        """Build each project, several at once if there are cores for it, and return the wheels.

        Raises:
            InterfaceError: a build failed; the text says which, and what was said of it.
        """
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(self._build, projects))

    def install(self, wheels: Sequence[Path]) -> None:
        """Install the wheels, and nothing else, into the environment that runs this."""
        names = ["--no-deps", *map(str, wheels)]
        _run(_install(sys.executable, names), wheels[0].parent, self._env)

    def _build(self, project: Path) -> Path:
        try:
            _run([str(self._python), "-c", BUILD], project, self._env)
        except UnavailableError as error:
            raise InterfaceError(f"{project.name} could not be built: {error}") from error
        [wheel] = (project / "wheel").glob("*.whl")
        return wheel


def _install(python: str, what: list[str]) -> list[str]:
    """Return the command that installs something into the environment of a Python."""
    if uv := shutil.which("uv") or shutil.which("uv", path=sysconfig.get_path("scripts")):
        return [uv, "pip", "install", "--color", "never", "--python", python, *what]
    if importlib.util.find_spec("pip"):
        pip = [sys.executable, "-m", "pip", "--python", python]
        return [*pip, "install", "--no-input", "--no-color", *what]
    raise UnavailableError("there is neither uv nor pip to install with: pip install uv")


def _run(command: list[str], folder: Path, env: dict[str, str]) -> None:
    done = subprocess.run(  # noqa: S603
        command,
        cwd=folder,  # and not in a project, whose settings for uv would be taken
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        raise UnavailableError(_why(done.stdout))


def _why(output: str) -> str:
    """Return the part of a tool's output that says what was wrong."""
    lines = [line.strip()[:300] for line in output.splitlines() if line.strip()]
    if unreached := [line for line in lines if _UNREACHED.search(line)]:
        return NO_INDEX.format(said=unreached[0])
    first = next((n for n, line in enumerate(lines) if _ERROR.search(line)), -SHOWN_LINES)
    return "\n".join(lines[first:][:SHOWN_LINES])
