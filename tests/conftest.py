import importlib.util
from pathlib import Path

import pytest

from interfaces_env import robot_interfaces  # noqa: F401


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write what is rendered now; then read the diff",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = [n for n in ("rclpy", "ros2_vision_interfaces") if not importlib.util.find_spec(n)]
    if missing:
        skip = pytest.mark.skip(reason=f"no {' and no '.join(missing)}: run with --extra ros")
        for item in items:
            if item.get_closest_marker("ros"):
                item.add_marker(skip)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> "Golden":
    return Golden(request)


class Golden:
    """Compares text with a file beside the test; `--update-golden` writes it instead."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._folder = Path(request.path).parent / "golden"
        self._update = request.config.getoption("--update-golden")

    def check(self, name: str, text: str) -> None:
        self.check_file(self._folder / f"{name}.txt", text)

    def check_file(self, path: Path, text: str) -> None:
        if self._update:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text + "\n", encoding="utf-8")
        assert path.read_text(encoding="utf-8") == text + "\n"
