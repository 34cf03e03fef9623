from pathlib import Path
from typing import Any

import pytest

from mcp_perception_buffer.errors import ConfigError
from mcp_perception_buffer.settings import Settings, default_config, load_settings


def test_the_file_that_travels_with_the_package_says_the_defaults() -> None:
    assert load_settings() == Settings()


def test_every_setting_of_the_file_is_known_by_its_name() -> None:
    text = default_config().read_text()
    for key in ("topic_patterns", "history_depth", "freshness_window_s", "reconcile_interval_s",
                "camera_topic", "watch_push"):  # fmt: skip
        assert f"\n{key}:" in text


def test_the_environment_stands_above_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "buffer.yaml"
    file.write_text("port: 1000\nhistory_depth: 3\n")
    monkeypatch.setenv("MCP_PORT", "2000")
    monkeypatch.setenv("MCP_TRANSPORT", "stdio")
    settings = load_settings(file)
    assert (settings.port, settings.history_depth, settings.transport) == (2000, 3, "stdio")


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_PORT", "")
    assert load_settings().port == 9202


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("histroy_depth: 3", "histroy_depth"),
        ("history_depth: many", "history_depth = 'many'"),
        ("history_depth: 0", "greater than or equal to 1"),
        ("topic_patterns: [vision]", "a topic begins with '/'"),
        ("render: {max_chars: 1}", "render.max_chars = 1"),
        ("host: 0.0.0.0", "host = '0.0.0.0'"),
        ("- a\n- b", "must hold keys and values"),
        ("port: [", "cannot be read"),
    ],
)
def test_a_mistake_is_told_with_key_value_and_what_is_allowed(
    tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "buffer.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_settings(file)
    assert said in str(error.value)
    assert str(file) in str(error.value)


def test_a_missing_file_is_told_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nope\.yaml cannot be read"):
        load_settings(tmp_path / "nope.yaml")


def test_secrets_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RVC_EVENT_SECRET", "SEKRET")
    settings: Any = load_settings()
    assert settings.event_secret.get_secret_value() == "SEKRET"
    assert "SEKRET" not in repr(settings)
