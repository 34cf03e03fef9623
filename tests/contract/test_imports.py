"""Core files stay free of what only adapters may know."""

import ast
import subprocess
import sys

import pytest

from support import REPOSITORY

SOURCE = REPOSITORY / "src" / "mcp_perception_buffer"
CORE = [
    "model",
    "buffer",
    "watch",
    "health",
    "errors",
    *(f"decoding/{path.stem}" for path in (SOURCE / "decoding").glob("[a-z]*.py")),
    *(
        f"answers/{path.stem}"
        for path in (SOURCE / "answers").glob("[a-z]*.py")
        if path.stem not in ("tools", "resources", "arguments")
    ),
]


def imported(name: str) -> set[str]:
    tree = ast.parse((SOURCE / f"{name}.py").read_text())
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


@pytest.mark.parametrize("name", CORE)
def test_the_core_knows_no_ros_no_asyncio_and_no_adapter(name: str) -> None:
    forbidden = ("asyncio", "rclpy", "aiohttp", "mcp.", "starlette", "uvicorn")
    adapters = ("sources", "tasks", "events", "server", "tools", "settings", "cli")
    for module in imported(name):
        assert not module.startswith(forbidden)
        assert module.removeprefix("mcp_perception_buffer.").split(".")[0] not in adapters


def test_rclpy_is_imported_by_its_adapters_only() -> None:
    users = {
        path.relative_to(SOURCE).parts[:2]
        for path in SOURCE.rglob("*.py")
        if any(m.split(".")[0] == "rclpy" for m in imported(str(path.relative_to(SOURCE))[:-3]))
    }
    allowed = {
        ("sources", "ros.py"), ("sources", "ros_executor.py"), ("sources", "ros_stream.py"),
        ("sources", "ros_waitset.py"), ("sources", "ros_arrivals.py"),
        ("tasks", "ros_service.py"), ("sim", "__main__.py"),
        ("vision_node", "node.py"), ("vision_node", "__main__.py"),
    }  # fmt: skip
    assert users <= allowed


def test_the_package_imports_and_says_what_to_do_where_there_is_no_rclpy() -> None:
    code = (
        "import sys; sys.modules['rclpy'] = None\n"
        "sys.argv = ['mcp-perception-buffer', 'serve']\n"
        "from mcp_perception_buffer.cli import main; main()"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert result.returncode != 0
    assert "--extra ros" in result.stderr
    assert "setup.bash" in result.stderr
    assert "Traceback" not in result.stderr
