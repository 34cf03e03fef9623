"""The packages as a robot's workspace builds them: colcon, ament, the ROS prefix of the wheels."""

import os
import platform
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
INTERFACES = ROOT / "src" / "ros2_vision_interfaces"
PACKAGE = "mcp_perception_buffer"

pytestmark = pytest.mark.ros


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prefix with ROS, its build tools and colcon, in which no package of ours is installed.

    colcon asks for an older setuptools than the lockfile holds, so it has no dependency group.
    """
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip("no uv to make an environment with colcon in it")
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip("ROS wheels, which are the prefix, exist for x86-64 Linux only")
    prefix = tmp_path_factory.mktemp("ament") / "prefix"
    locked = prefix / "locked.txt"
    tools = prefix / "tools.txt"
    # The project's environment must not be taken for the one to install into.
    env = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}

    def run_uv(*args: str | Path) -> None:
        _run([uv, *args], cwd=ROOT, env=env)

    run_uv("venv", "--no-project", "--python", sys.executable, prefix)
    ours = ["--no-emit-project", "--no-emit-package", "ros2-vision-interfaces"]
    run_uv(
        *("export", "--quiet", "--frozen", "--no-dev", "--extra", "ros", "--no-hashes", *ours),
        *("--no-emit-package", "setuptools", "--output-file", locked),
    )
    definition = tomllib.loads((INTERFACES / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = definition["build-system"]["requires"]
    tools.write_text("\n".join(["colcon-common-extensions", "ninja", *wanted]), encoding="utf-8")
    run_uv("pip", "install", "--python", prefix, "--requirement", locked, "--requirement", tools)
    return prefix


def test_ament_and_python_agree_on_the_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    package = ElementTree.parse(ROOT / "package.xml").getroot()

    assert package.findtext("version") == project["version"]
    assert package.findtext("license") == project["license"]


def test_colcon_builds_both_packages_and_what_it_installs_runs(
    prefix: Path, tmp_path: Path
) -> None:
    path = f"{prefix / 'bin'}:/usr/local/bin:/usr/bin:/bin"
    env = {"PATH": path, "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    ros = {"AMENT_PREFIX_PATH": str(prefix), "CMAKE_PREFIX_PATH": str(prefix)}

    # colcon does not look below the package at the root for another one.
    build = ["colcon", "build", "--base-paths", ROOT, INTERFACES]
    _run([*build, "--cmake-args", "-GNinja", "-DBUILD_TESTING=OFF"], cwd=tmp_path, env=env | ros)

    installed = tmp_path / "install" / PACKAGE
    shared = installed / "share" / PACKAGE
    program = installed / "lib" / PACKAGE / "mcp-perception-buffer"  # where `ros2 run` looks
    compile((shared / "launch" / "perception_buffer.launch.py").read_text(), "launch", "exec")
    tree = {p.relative_to(ROOT / "config") for p in (ROOT / "config").rglob("*.yaml")}
    assert {p.relative_to(shared / "config") for p in shared.rglob("config/**/*.yaml")} == tree

    def in_workspace(*command: str | Path) -> str:
        sourced = ["sh", "-c", '. install/setup.sh && exec "$@"', "sh"]
        return _run([*sourced, *command], cwd=tmp_path, env=env)

    assert "serve" in in_workspace(program, "--help")
    found = in_workspace("python", "-c", WHERE).split()
    assert all(Path(line).is_relative_to(tmp_path) for line in found), found
    assert len(found) == 4


WHERE = f"""
from ament_index_python import get_package_prefix
from ros2_vision_interfaces import msg
from {PACKAGE} import settings
msg.VisionDetectionArray.__class__.__import_type_support__()  # loads the compiled library
settings.load_settings()
print(get_package_prefix("{PACKAGE}"), get_package_prefix("ros2_vision_interfaces"))
print(msg.__file__, settings.config_dirs()[0])
"""


def _run(command: list[str | Path], *, cwd: Path, env: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout
