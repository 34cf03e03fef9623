"""The unit, as systemd itself reads it."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[2] / "systemd" / "mcp-perception-buffer.service"
# systemd's own figure, 0 to 10. What is left is the network and its sockets, which DDS needs.
EXPOSURE_LIMIT = 1.5


@pytest.fixture
def analyze() -> str:
    command = shutil.which("systemd-analyze")
    if command is None:
        pytest.skip("no systemd-analyze: install systemd")
    return command


def test_systemd_finds_nothing_wrong_with_the_unit(analyze: str, tmp_path: Path) -> None:
    # The program is not installed where tests run, and a missing one is an error.
    text, count = re.subn(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", UNIT.read_text())
    assert count == 1
    unit = tmp_path / UNIT.name
    unit.write_text(text)

    done = _run([analyze, "verify", "--man=no", str(unit)])

    assert done.returncode == 0, done.stderr
    # An unknown setting is only a warning; those about other units are none of ours.
    assert UNIT.name not in done.stderr, done.stderr


def test_the_service_is_confined(analyze: str) -> None:
    if "--offline" not in _run([analyze, "--help"]).stdout:
        pytest.skip("this systemd-analyze cannot judge a unit that is not loaded")

    done = _run([analyze, "security", "--offline=true", "--no-pager", str(UNIT)])

    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert found, done.stdout + done.stderr
    assert float(found[1]) <= EXPOSURE_LIMIT, done.stdout


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=60)
