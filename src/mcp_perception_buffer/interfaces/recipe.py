"""Writes what a package is built from: the build of ros2_vision_interfaces, with another name."""

from __future__ import annotations

import hashlib
import json
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp_perception_buffer.errors import UnavailableError
from mcp_perception_buffer.interfaces.installed import distribution

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp_perception_buffer.interfaces.packages import Package

# The file that turns the build requirements to a release of ROS, if one is needed.
CONSTRAINTS = {"5.3": "jazzy-constraints.txt", "5.5": None}

MANIFEST = """\
<?xml version="1.0"?>
<package format="3">
  <name>{name}</name>
  <version>0.0.0</version>
  <description>Messages that mcp-perception-buffer was given the definitions of</description>
  <maintainer email="maintainer@example.com">whoever added it</maintainer>
  <license>that of the definitions</license>
  <buildtool_depend>ament_cmake</buildtool_depend>
  <buildtool_depend>rosidl_default_generators</buildtool_depend>
{depends}  <exec_depend>rosidl_default_runtime</exec_depend>
  <member_of_group>rosidl_interface_packages</member_of_group>
  <export><build_type>ament_cmake</build_type></export>
</package>
"""


class Recipe:
    """How packages are built for one release of ROS."""

    def __init__(self, release: str) -> None:
        """Read it.

        Args:
            release: as `installed.release` gives it.

        Raises:
            UnavailableError: packages cannot be built for this release.
        """
        if release not in CONSTRAINTS:
            raise UnavailableError(
                f"the ROS wheels here are of a release (std_msgs {release}) that packages cannot "
                f"be built for yet; known are {' and '.join(CONSTRAINTS)} (Jazzy and Kilted)"
            )
        folder = _folder()
        self._release = release
        self._cmake = (folder / "CMakeLists.txt").read_text(encoding="utf-8")
        self._project = (folder / "pyproject.toml").read_text(encoding="utf-8")
        constraints = CONSTRAINTS[release]
        text = (folder / constraints).read_text(encoding="utf-8") if constraints else ""
        lines = (line.partition("#")[0].strip() for line in text.splitlines())
        self._constraints = [line for line in lines if line]

    @property
    def requirements(self) -> list[str]:
        """What has to be installed to build a package."""
        required: list[str] = tomllib.loads(self._project)["build-system"]["requires"]
        return [*required, *self._constraints]

    def version(self, package: Package, versions: Mapping[str, str]) -> str:
        """Return the version that stands for exactly these definitions, built in this way.

        Args:
            package: what would be built.
            versions: of the added packages that it uses, by name; their fields become part of it.
        """
        parts = [
            self._release, self._cmake, self._project, self._constraints, package.definitions,
            {name: versions[name] for name in package.needs if name in versions},
        ]  # fmt: skip
        text = json.dumps(parts, sort_keys=True)
        return f"0+d{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def write(self, package: Package, version: str, folder: Path) -> None:
        """Write everything that the build takes into a new folder."""
        (folder / "msg").mkdir(parents=True)
        for name, text in package.definitions.items():
            (folder / "msg" / f"{name}.msg").write_text(text, encoding="utf-8")
        depends = "".join(f"  <depend>{name}</depend>\n" for name in sorted(package.needs))
        manifest = MANIFEST.format(name=package.name, depends=depends)
        (folder / "package.xml").write_text(manifest, encoding="utf-8")
        (folder / "CMakeLists.txt").write_text(self._cmake, encoding="utf-8")
        project = _toml(self._metadata(package.name, version))
        (folder / "pyproject.toml").write_text(project, encoding="utf-8")

    def _metadata(self, name: str, version: str) -> dict[str, Any]:
        metadata = tomllib.loads(self._project)
        metadata["project"] |= {
            "name": distribution(name),
            "version": version,
            "description": f"ROS 2 messages of {name}",
        }
        del metadata["project"]["license"]
        metadata["build-system"]["requires"] = self.requirements
        settings = metadata["tool"]["scikit-build"]
        # Neither optimised nor for C++: the service takes messages as bytes, and whoever adds a
        # package waits for it.
        settings["cmake"] = {
            "build-type": "",
            "define": {
                "EXPECTED_STD_MSGS": self._release,
                "ADDED_PREFIX": sys.prefix,
                "WITHOUT_CPP": True,
            },
        }
        metadata["tool"] = {"scikit-build": settings}
        return metadata


def _folder() -> Path:
    here = Path(__file__).parent
    packaged = here / "build_files"  # in the wheel; a checkout has them at home
    return packaged if packaged.is_dir() else here.parents[1] / "ros2_vision_interfaces"


def _toml(table: dict[str, Any], *path: str) -> str:
    """Write nested tables whose other values are as JSON has them."""
    own = [
        f"{key} = {json.dumps(value)}\n"
        for key, value in table.items()
        if not isinstance(value, dict)
    ]
    head = [f"[{'.'.join(path)}]\n"] if own and path else []
    nested = [_toml(value, *path, key) for key, value in table.items() if isinstance(value, dict)]
    return "".join([*head, *own, *nested])
