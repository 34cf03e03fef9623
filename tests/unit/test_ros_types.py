from pathlib import Path

import pytest

from mcp_perception_buffer.decoding.decoder import Decoder
from mcp_perception_buffer.errors import UnknownTypeError
from mcp_perception_buffer.sources.ros_types import (
    installed_definition,
    is_foreign,
    why_not_loadable,
)

LATER = "later_msgs/msg/Answer"
HASH = f"RIHS01_{'0a' * 32}"


def install(prefix: Path, text: str) -> None:
    folder = prefix / "share" / "later_msgs" / "msg"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "Answer.msg").write_text(text)
    hashes = f'{{"type_hashes": [{{"type_name": "{LATER}", "hash_string": "{HASH}"}}]}}'
    (folder / "Answer.json").write_text(hashes)


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AMENT_PREFIX_PATH", f"/nowhere:{tmp_path}")
    return tmp_path


def test_a_definition_that_is_installed_later_is_found_then(prefix: Path) -> None:
    decoder = Decoder(installed_definition)
    missing = decoder.why_unreadable("semantic", LATER)
    assert missing is not None
    assert "install the package later_msgs" in missing
    install(prefix, "string data\n")
    assert decoder.why_unreadable("semantic", LATER) is None
    assert "No module named" in (why_not_loadable(LATER) or "")


@pytest.mark.parametrize(
    "name", ["../../etc/msg/passwd", "a/../b/msg/X", "std_msgs", "", "a.b/msg/X", "std_msgs/msg/"]
)
def test_names_from_the_network_reach_no_other_file(name: str) -> None:
    with pytest.raises(UnknownTypeError):
        installed_definition(name)


def test_the_same_name_with_other_fields_is_foreign(prefix: Path) -> None:
    install(prefix, "string data\n")
    assert is_foreign(LATER, f"RIHS01_{'ff' * 32}")
    assert not is_foreign(LATER, HASH)
    assert not is_foreign(LATER, "INVALID")  # a publisher that tells none
    assert not is_foreign("never_msgs/msg/Installed", HASH)
