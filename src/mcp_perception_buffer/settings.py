"""Typed settings, checked before anything starts; the only file that knows Hydra.

The YAML tree is composed by Hydra, the environment stands above it, pydantic checks the result.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Sequence  # noqa: TC003  # pydantic evaluates annotations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, cast

import hydra
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from pydantic import (
    AnyHttpUrl,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from mcp_perception_buffer.answers.wording import RenderLimits
from mcp_perception_buffer.component import Component
from mcp_perception_buffer.decoding.labels import Labels  # noqa: TC001
from mcp_perception_buffer.errors import ConfigError
from mcp_perception_buffer.sources.mapping import Streams, Topic, topic_filter

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic.fields import FieldInfo

    from mcp_perception_buffer.model import Kind
    from mcp_perception_buffer.sources.topics import TopicFilter

ROOT = "buffer"
GROUPS = ("source", "tasks", "events")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
SECRETS = ("callback_url", "event_secret", "auth_token")  # a URL's query may hold a token


def _state_directory() -> Path | None:
    named = os.environ.get("STATE_DIRECTORY")  # by systemd
    return Path(named) if named else None


Secret = Annotated[SecretStr, Field(min_length=1)]


class RenderSettings(BaseModel):
    """Bounds of the prompt-ready text."""

    model_config = ConfigDict(extra="forbid")

    max_chars: int = Field(4000, ge=400, le=100_000)
    max_detections: int = Field(10, ge=0, le=1000)
    min_score: float = Field(0.05, ge=0, le=1)
    max_value_chars: int = Field(300, ge=10, le=4000)

    def limits(self) -> RenderLimits:
        """Return the same as the renderer's own type."""
        return RenderLimits(**self.model_dump())


class Settings(BaseSettings):
    """All settings of the service. Keys and defaults are those of `config/buffer.yaml`."""

    model_config = SettingsConfigDict(extra="forbid", populate_by_name=True)

    source: Component = Component.of("mcp_perception_buffer.sources.ros.RosSource")
    tasks: Component = Component.of(
        "mcp_perception_buffer.tasks.ros_service.RosTaskSource",
        service="/robot_mcp_perception/list_vision_tasks",
        timeout_s=2.0,
    )
    events: Component = Component.of(
        "mcp_perception_buffer.events.webhook.WebhookSink", timeout_s=10.0
    )

    topic_patterns: list[Topic] = Field(["/vision/"], min_length=1)
    include_hidden: bool = False
    camera_topic: Topic | None = "/camera/image_raw"
    streams: Streams = []
    labels: Labels | None = None
    reconcile_interval_s: float = Field(2.0, ge=0.2, le=60)
    history_depth: int = Field(10, ge=1, le=1000)
    freshness_window_s: float = Field(5.0, gt=0, le=3600)
    retention_s: float = Field(60.0, ge=0, le=86_400)

    watch_push: bool = True
    callback_url: AnyHttpUrl | None = Field(None, validation_alias="RVC_CALLBACK_URL")
    event_secret: Secret | None = Field(None, validation_alias="RVC_EVENT_SECRET")
    state_dir: Path | None = Field(default_factory=_state_directory)
    outbox_size: int = Field(1000, ge=16, le=100_000)
    expires_after_s: float = Field(3600, ge=1, le=604_800)
    backoff_first_s: float = Field(0.5, ge=0.01, le=60)
    backoff_max_s: float = Field(30, ge=0.1, le=300)

    render: RenderSettings = RenderSettings()

    transport: Literal["streamable-http", "sse", "stdio"] = Field(
        "streamable-http", validation_alias="MCP_TRANSPORT"
    )
    host: str = "127.0.0.1"
    port: int = Field(9202, ge=0, le=65_535, validation_alias="MCP_PORT")
    allowed_hosts: list[Annotated[str, Field(min_length=1)]] = []
    allowed_origins: list[Annotated[str, Field(pattern="^https?://")]] = []
    auth_token: Secret | None = Field(None, validation_alias="PERCEPTION_AUTH_TOKEN")

    ros_domain_id: int | None = Field(None, ge=0, le=232, validation_alias="ROS_DOMAIN_ID")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_pretty: bool = False

    @model_validator(mode="after")
    def _guard_the_port(self) -> Self:
        if self.host not in LOOPBACK and not (self.allowed_hosts and self.auth_token):
            raise ValueError(
                f"host {self.host} is reachable from the network: it needs allowed_hosts and "
                "PERCEPTION_AUTH_TOKEN (see deployment/network.yaml), or host: 127.0.0.1"
            )
        return self

    @model_validator(mode="after")
    def _refuse_blank_secrets(self) -> Self:
        if self.event_secret is not None and not self.event_secrets:
            raise ValueError("RVC_EVENT_SECRET holds nothing but blanks and commas")
        token = self.auth_token.get_secret_value() if self.auth_token else "x"
        if not (token.isascii() and token.isprintable() and " " not in token):
            raise ValueError("PERCEPTION_AUTH_TOKEN must be visible ASCII without blanks")
        return self

    def topics(self, kind_of: Callable[[str], Kind | None]) -> TopicFilter:
        """Return which topics are wanted; `kind_of` as `Decoder` has it.

        Raises:
            ConfigError: a file of labels cannot be read.
        """
        return topic_filter(
            self.streams,
            self.labels,
            packaged_config() / "names",
            prefixes=self.topic_patterns,
            camera_topic=self.camera_topic,
            include_hidden=self.include_hidden,
            kind_of=kind_of,
        )

    @property
    def event_secrets(self) -> list[str]:
        """The secrets that sign an event together, for rotation."""
        text = self.event_secret.get_secret_value() if self.event_secret else ""
        return [part.strip() for part in text.split(",") if part.strip()]

    def shown(self) -> dict[str, str]:
        """Return every value by its dotted key, as one would write it; secrets are masked."""
        flat: dict[str, str] = {}
        for key, value in self.model_dump(mode="json", by_alias=False).items():
            parts = value.items() if isinstance(value, dict) else ()
            for name, part in parts:
                flat[f"{key}.{'_target_' if name == 'target' else name}"] = json.dumps(part)
            if not parts:
                masked = key in SECRETS and value is not None
                flat[key] = "**********" if masked else json.dumps(value)
        return flat

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Let the environment stand above the YAML, which comes in as arguments."""
        return _Environment(settings_cls), init_settings


class _Environment(PydanticBaseSettingsSource):
    """The variables that a field names; pydantic's own source would take `HOST` or `PORT` too."""

    def __call__(self) -> dict[str, Any]:
        return {alias: os.environ[alias] for alias in FIELDS if os.environ.get(alias)}

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        raise NotImplementedError  # only called by pydantic's own sources


def load_settings(
    overrides: Sequence[str] = (), config_dir: Path | None = None
) -> tuple[Settings, Origins]:
    """Compose and check the settings; the second result says where each value comes from.

    Args:
        overrides: `KEY=VALUE` or `group=name`, in Hydra's grammar.
        config_dir: a tree of one's own; files that it lacks come from the packaged one.

    Raises:
        ConfigError: something is wrong; the text names key, value, file and what is allowed.
    """
    composed, choices = _compose(overrides, config_dir)
    origins = Origins(overrides, choices, config_dirs(config_dir))
    try:
        settings = Settings(**composed)
    except ValidationError as error:
        lines = []
        for item in error.errors(include_url=False):
            top, *rest = map(str, item["loc"] or ["host"])
            key = ".".join([FIELDS.get(top, top), *rest])
            # What may hold a secret is not shown, nor an unknown key's value, which may be one.
            hidden = not item["loc"] or item["type"] == "extra_forbidden" or key in SECRETS
            shown = "" if hidden else f" = {item['input']!r}"
            said = item["msg"]
            if item["type"] == "extra_forbidden":
                close = difflib.get_close_matches(key, Settings.model_fields, 1)
                said = f"there is no such key{f'; perhaps {close[0]}?' if close else ''}"
            lines.append(f"  {_alias(key) or key}{shown}: {said} ({origins.of(key)})")
        # The cause would carry the input, and with it perhaps a secret.
        raise ConfigError("\n".join(["wrong settings:", *lines])) from None
    for group in GROUPS:
        try:
            getattr(settings, group).check(group)
        except ConfigError as error:
            raise ConfigError(f"{error} ({origins.of(f'{group}._target_')} or above it)") from error
    return settings, origins


def _compose(
    overrides: Sequence[str], config_dir: Path | None
) -> tuple[dict[str, Any], dict[str, str]]:
    """Let Hydra compose the tree, its interpolations resolved, and say what each group chose."""
    primary, *others = config_dirs(config_dir)
    # Hydra takes a list after a group's name for options of that group, whatever is in it.
    rules = [word for word in overrides if word.startswith("streams=[")]
    words = [word for word in overrides if word not in rules]
    if others:
        words.append(f"hydra.searchpath=[{','.join(f'file://{other}' for other in others)}]")
    if preset := os.environ.get("PERCEPTION_DEPLOYMENT"):
        words.append(f"deployment={preset}")
    try:
        with hydra.initialize_config_dir(str(primary), version_base="1.3"):
            composed = hydra.compose(ROOT, overrides=words, return_hydra_config=True)
        assert isinstance(composed, DictConfig)
        choices = OmegaConf.to_container(composed.hydra.runtime.choices)
        with open_dict(composed):
            del composed["hydra"]
        for rule in OverridesParser.create().parse_overrides(rules):
            OmegaConf.update(composed, "streams", rule.value(), force_add=True)
        resolved = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
    except (HydraException, OmegaConfBaseException, yaml.YAMLError, OSError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        if unset := re.search(r"Environment variable '(\w+)' not found", lines[0]):
            key = lines[1].removeprefix("full_key: ")
            lines = [f"{unset[1]} is unset, and {key} needs it in the chosen deployment"]
        text = "\n  ".join(lines)
        raise ConfigError(f"the configuration in {primary} cannot be composed: {text}") from error
    return cast("dict[str, Any]", resolved), cast("dict[str, str]", choices)


def packaged_config() -> Path:
    """Return the folder of the packaged tree: in the wheel, or at the top of a checkout."""
    here = Path(__file__).parent
    inside = here / "config"
    return inside if inside.is_dir() else here.parents[1] / "config"


def config_dirs(config_dir: Path | None = None) -> list[Path]:
    """Return the folders that are searched, the one with the root file first."""
    packaged = packaged_config()
    if config_dir is None:
        return [packaged]
    own = config_dir.absolute()
    if not own.is_dir():
        raise ConfigError(f"{own} is no folder; --config-dir names one with {ROOT}.yaml")
    return [own, packaged] if (own / f"{ROOT}.yaml").is_file() else [packaged, own]


# A variable's name where pydantic reports an error under it, to the field's.
FIELDS = {
    field.validation_alias: name
    for name, field in Settings.model_fields.items()
    if isinstance(field.validation_alias, str)
}


class Origins:
    """Says where a value of the effective configuration comes from."""

    def __init__(
        self, overrides: Sequence[str], choices: dict[str, str], folders: list[Path]
    ) -> None:
        self._overrides = {word.partition("=")[0].lstrip("+~") for word in overrides}
        self._choices = choices
        self._folders = folders

    def of(self, key: str) -> str:
        """Name the source of a dotted key: the environment, the command line, a file, a default."""
        top, _, option = key.partition(".")
        if alias := _alias(top):
            return f"environment {alias}"
        if key in self._overrides or (top in self._overrides and top not in GROUPS):
            return "command line"
        for name, sought in (
            (f"deployment/{self._choices.get('deployment')}", top),
            (f"streams/{self._choices.get('streams')}", top),
            (ROOT, top),
            (f"{top}/{self._choices.get(top)}", option),
        ):
            paths = [folder / f"{name}.yaml" for folder in self._folders]
            path = next((path for path in paths if path.is_file()), None)  # the one that is read
            if path and sought in (yaml.safe_load(path.read_text("utf-8")) or {}):
                return str(path)
        return "default"


def _alias(key: str) -> str | None:
    """Return the environment variable that sets a setting at present."""
    field = Settings.model_fields.get(key.partition(".")[0])
    alias = field.validation_alias if field else None
    return alias if isinstance(alias, str) and os.environ.get(alias) else None
