"""What the running environment holds: the ROS wheels' release, and the interface packages."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

from mcp_perception_buffer.errors import UnavailableError
from mcp_perception_buffer.sources.ros_types import prefixes

# What Python calls an added package, apart from all that an index may have.
DISTRIBUTION = "added-interfaces-"

OWN = "ros2_vision_interfaces"
INDEX = "share/ament_index/resource_index"  # a file for each package; removed, it leaves folders

NO_WHEELS = """\
there are no ROS wheels in {prefix} to build for.
Install them: uv sync --inexact --extra ros (x86-64 Linux)"""

SOURCED = """\
ROS is sourced here ({prefix}), and its own tools build interface packages.
Put the folders into src/ of a workspace, and in that workspace:
colcon build && source install/setup.bash"""


def release() -> str:
    """Return the wheels' ROS release by that of its messages: `"5.3"` is Jazzy, `"5.5"` Kilted.

    Raises:
        UnavailableError: ROS is sourced, or not there at all.
    """
    if sourced := [prefix for prefix in prefixes() if prefix != Path(sys.prefix)]:
        raise UnavailableError(SOURCED.format(prefix=sourced[0]))
    version = _version("ros-std-msgs")
    if version is None:
        raise UnavailableError(NO_WHEELS.format(prefix=sys.prefix))
    return ".".join(version.split(".")[:2])


def distribution(package: str) -> str:
    """Return what Python calls a package that is added."""
    return DISTRIBUTION + package.replace("_", "-")


def added_version(package: str) -> str | None:
    """Return the version of a package that was added, None of any other."""
    return _version(distribution(package))


def is_of_wheels(package: str) -> bool:
    """Say whether a package belongs to the ROS that was installed from wheels."""
    return _version(f"ros-{package.replace('_', '-')}") is not None


def belongs_to_ros(package: str) -> bool:
    """Say whether a package is there without having been added, or is this project's own."""
    return package == OWN or (is_there(package) and added_version(package) is None)


def is_there(package: str) -> bool:
    """Say whether this environment holds a package, whoever put it there."""
    return Path(sys.prefix, INDEX, "packages", package).is_file()


def share(package: str) -> Path:
    """Return where this environment has a package's definitions, or would have them."""
    return Path(sys.prefix, "share", package)


def message_types() -> dict[str, list[str]]:
    """Return the message types of every interface package, those of the sourced prefixes too."""
    found: dict[str, list[str]] = {}
    for prefix in prefixes():
        for package in (entry.name for entry in (prefix / INDEX / "rosidl_interfaces").glob("*")):
            paths = sorted((prefix / "share" / package / "msg").glob("*.msg"))
            found.setdefault(package, [f"{package}/msg/{path.stem}" for path in paths])
    return {package: types for package, types in sorted(found.items()) if types}


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
