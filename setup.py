"""Build for colcon (ament_python). Everything else builds from pyproject.toml with hatchling."""

import tomllib
from pathlib import Path

from setuptools import Distribution, find_packages, setup

NAME = "mcp_perception_buffer"

# With --symlink-install this is run through a symbolic link, from a folder without pyproject.toml.
root = Path(__file__).resolve().parent
project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]


class AmentDistribution(Distribution):
    """Leaves the `[project]` table unread.

    The setuptools of Ubuntu 24.04 refuses its SPDX licence, and the requirements in it would make
    the entry point fail wherever a distribution packages a library under another version.
    """

    def parse_config_files(self, filenames=None, ignore_option_errors=False):
        """Read setup.cfg alone."""
        super().parse_config_files(filenames or self.find_config_files(), ignore_option_errors)


def tree(folder: str) -> list[tuple[str, list[str]]]:
    """Return what `data_files` needs to copy `folder` with its subfolders into share."""
    by_parent: dict[Path, list[str]] = {}
    for path in sorted(Path(folder).rglob("*")):
        if path.is_file() and path.suffix in {".py", ".yaml"}:
            by_parent.setdefault(path.parent, []).append(str(path))
    return [(f"share/{NAME}/{parent}", files) for parent, files in by_parent.items()]


setup(
    distclass=AmentDistribution,
    name=NAME,
    version=project["version"],
    description=project["description"],
    license=project["license"],
    maintainer="mcp-perception-buffer maintainers",
    maintainer_email="maintainer@example.com",
    # The service reads its configuration from inside the package. The copy in share is for people.
    package_dir={"": "src", f"{NAME}.config": "config"},
    packages=[*find_packages("src", include=[NAME, f"{NAME}.*"]), f"{NAME}.config"],
    package_data={NAME: ["py.typed"], f"{NAME}.config": ["*.yaml", "**/*.yaml"]},
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (f"share/{NAME}", ["package.xml"]),
        *tree("launch"),
        *tree("config"),
    ],
    entry_points={
        "console_scripts": [f"{name} = {target}" for name, target in project["scripts"].items()]
    },
    zip_safe=False,
)
