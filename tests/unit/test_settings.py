from pathlib import Path

import pytest

from mcp_perception_buffer.component import Component
from mcp_perception_buffer.errors import ConfigError, UnavailableError
from mcp_perception_buffer.settings import Settings, config_dirs, load_settings


def settings(*overrides: str, config_dir: Path | None = None) -> Settings:
    return load_settings(overrides, config_dir)[0]


def test_the_tree_that_travels_with_the_package_says_the_defaults() -> None:
    assert settings() == Settings()


def test_every_key_of_the_specification_is_there_by_its_name() -> None:
    text = (config_dirs()[0] / "buffer.yaml").read_text()
    for key in ("topic_patterns", "history_depth", "freshness_window_s", "reconcile_interval_s",
                "camera_topic", "watch_push"):  # fmt: skip
        assert f"\n{key}:" in text


def test_an_implementation_is_changed_by_one_word() -> None:
    assert settings("tasks=static").tasks.target.endswith("StaticTaskSource")
    assert settings().tasks.target.endswith("RosTaskSource")


def test_command_line_stands_above_files_and_the_environment_above_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "buffer.yaml").write_text(
        "defaults: [source: ros, tasks: static, events: webhook, _self_, deployment: local]\n"
        "port: 1000\nhistory_depth: 3\nretention_s: 9\n"
    )
    monkeypatch.setenv("MCP_PORT", "2000")
    loaded = settings("history_depth=4", "port=1500", config_dir=tmp_path)
    assert (loaded.port, loaded.history_depth, loaded.retention_s) == (2000, 4, 9.0)
    assert loaded.tasks.target.endswith("StaticTaskSource")


def test_a_robot_may_bring_one_group_file_and_take_the_rest(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "doors.yaml").write_text(
        "_target_: mcp_perception_buffer.tasks.static.StaticTaskSource\n"
        "tasks: [{skill_id: d, skill: watch_for, condition: open, "
        "watch: {output: triggered, equals: true}}]\n"
    )
    loaded = settings("tasks=doors", config_dir=tmp_path)
    assert loaded.tasks.options["tasks"][0]["skill_id"] == "d"


def test_presets_are_chosen_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERCEPTION_DEPLOYMENT", "network")
    monkeypatch.setenv("PERCEPTION_HOST", "robot")
    monkeypatch.setenv("PERCEPTION_AUTH_TOKEN", "SEKRET")
    loaded = settings()
    assert (loaded.host, loaded.allowed_hosts) == ("0.0.0.0", ["robot", "robot:*"])
    monkeypatch.setenv("PERCEPTION_DEPLOYMENT", "")
    assert settings().host == "127.0.0.1"


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_PORT", "")
    assert settings().port == 9202


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("histroy_depth=3", "histroy_depth"),
        ("+histroy_depth=3", "histroy_depth: there is no such key; perhaps history_depth?"),
        ("history_depth=many", "history_depth = 'many'"),
        ("history_depth=0", "greater than or equal to 1"),
        ("topic_patterns=[vision]", "a topic begins with '/'"),
        ("render.max_chars=1", "render.max_chars = 1"),
        ("+render.colour=red", "render.colour"),
        ("tasks=telepathy", "ros_service"),
        ("source=bag", "source.path"),
        ("tasks.timeout_s=soon", "tasks.timeout_s = 'soon'"),
        ("tasks.timeout_s=-1", "tasks.timeout_s = -1"),
        ("+tasks.retries=3", "tasks.retries = 3: unknown"),
        ("tasks._target_=nobody.Here", "nobody"),
        ("tasks._target_=os.nothing", "nothing"),
        ("host=0.0.0.0", "needs allowed_hosts and PERCEPTION_AUTH_TOKEN"),
        ("allowed_origins=[console]", "allowed_origins"),
        ("deployment=moon", "network"),
        ("port=[", "cannot be composed"),
    ],
)
def test_a_mistake_is_told_with_key_value_and_what_is_allowed(override: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        settings(override)
    assert said in str(error.value)


def test_a_mistake_in_a_file_is_told_with_the_file(tmp_path: Path) -> None:
    file = tmp_path / "buffer.yaml"
    text = (config_dirs()[0] / "buffer.yaml").read_text()
    file.write_text(text.replace("history_depth: 10", "history_depth: none"))
    with pytest.raises(ConfigError) as error:
        settings(config_dir=tmp_path)
    assert "history_depth = 'none': Input should be a valid integer" in str(error.value)
    assert str(file) in str(error.value)
    file.write_text("port: [")
    with pytest.raises(ConfigError, match="cannot be composed"):
        settings(config_dir=tmp_path)
    with pytest.raises(ConfigError, match="is no folder"):
        settings(config_dir=tmp_path / "nowhere")


@pytest.mark.parametrize("missing", ["RVC_CALLBACK_URL", "RVC_EVENT_SECRET"])
def test_a_preset_that_needs_a_secret_refuses_to_go_without(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RVC_CALLBACK_URL", "http://127.0.0.1:1/x")
    monkeypatch.setenv("RVC_EVENT_SECRET", "SEKRET")
    assert settings("deployment=robot").event_secrets == ["SEKRET"]
    monkeypatch.delenv(missing)
    with pytest.raises(ConfigError, match=f"{missing} is unset"):
        settings("deployment=robot")
    monkeypatch.setenv(missing, "")
    with pytest.raises(ConfigError) as error:
        settings("deployment=robot")
    assert "SEKRET" not in str(error.value)


def test_secrets_show_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RVC_EVENT_SECRET", "SEKRET, SEKRET2")
    monkeypatch.setenv("PERCEPTION_AUTH_TOKEN", "SEKRET")
    monkeypatch.setenv("RVC_CALLBACK_URL", "http://brain/x?token=SEKRET")
    loaded = settings()
    assert loaded.event_secrets == ["SEKRET", "SEKRET2"]
    assert "SEKRET" not in str(loaded.shown())
    monkeypatch.setenv("RVC_CALLBACK_URL", "no url?token=SEKRET")
    (tmp_path / "buffer.yaml").write_text(
        "defaults: [source: ros, tasks: static, events: webhook, _self_]\nevent_secrt: SEKRET\n"
    )
    for tree in (None, tmp_path):
        with pytest.raises(ConfigError) as error:
            settings(config_dir=tree)
        assert "SEKRET" not in str(error.value)
        assert "RVC_CALLBACK_URL" in str(error.value)


@pytest.mark.parametrize("blank", [" ", " , ", ",,"])
def test_a_secret_of_nothing_is_refused(blank: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RVC_EVENT_SECRET", blank)
    with pytest.raises(ConfigError, match="RVC_EVENT_SECRET"):
        settings()


def test_a_token_that_no_header_can_carry_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERCEPTION_AUTH_TOKEN", "clé secrète")
    with pytest.raises(ConfigError, match="visible ASCII"):
        settings()


def test_the_folder_that_systemd_names_keeps_the_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/perception")
    assert settings().state_dir == Path("/var/lib/perception")
    assert Settings().state_dir == Path("/var/lib/perception")


def test_what_is_in_force_is_shown_with_its_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_PORT", "1")
    loaded, origins = load_settings(["history_depth=4", "tasks.timeout_s=1"])
    assert loaded.shown()["history_depth"] == "4"
    assert origins.of("port") == "environment MCP_PORT"
    assert origins.of("history_depth") == "command line"
    assert origins.of("tasks.timeout_s") == "command line"
    assert origins.of("tasks.service").endswith("tasks/ros_service.yaml")
    assert origins.of("retention_s").endswith("config/buffer.yaml")
    assert origins.of("ros_domain_id").endswith("config/buffer.yaml")


def test_what_a_file_of_ones_own_leaves_out_is_the_default(tmp_path: Path) -> None:
    own = tmp_path / "buffer.yaml"
    own.write_text("defaults: [source: ros, tasks: static, events: webhook, _self_]\nport: 1000\n")
    loaded, origins = load_settings([], tmp_path)
    assert (loaded.port, loaded.history_depth) == (1000, 10)
    assert origins.of("port") == str(own)
    assert origins.of("history_depth") == "default"


@pytest.mark.parametrize(
    ("missing", "advice"), [("rclpy", "uv sync"), ("ros2_vision_interfaces", "colcon")]
)
def test_what_cannot_be_imported_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str, advice: str
) -> None:
    (tmp_path / "needs_it.py").write_text(f"raise ImportError('not here', name={missing!r})")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UnavailableError, match=advice):
        Component.of("needs_it.Thing").load()


def test_variables_that_belong_to_others_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        if name != "ros_domain_id":
            monkeypatch.setenv(name.upper(), "somebody else's")
    assert settings() == Settings()
    assert settings("port=9300").port == 9300
