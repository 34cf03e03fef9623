"""Typed settings: the YAML tree below, the environment above, checked before anything starts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    AnyHttpUrl,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from mcp_perception_buffer.errors import ConfigError
from mcp_perception_buffer.render import RenderLimits


def _absolute(topic: object) -> object:
    if isinstance(topic, str) and not topic.startswith("/"):
        raise ValueError("a topic begins with '/', for example /vision/")
    return topic


Topic = Annotated[str, BeforeValidator(_absolute)]


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

    model_config = SettingsConfigDict(
        extra="forbid", populate_by_name=True, hide_input_in_errors=False, env_ignore_empty=True
    )

    topic_patterns: list[Topic] = Field(["/vision/"], min_length=1)
    include_hidden: bool = False
    camera_topic: Topic | None = "/camera/image_raw"
    reconcile_interval_s: float = Field(2.0, ge=0.2, le=60)
    history_depth: int = Field(10, ge=1, le=1000)
    freshness_window_s: float = Field(5.0, gt=0, le=3600)
    retention_s: float = Field(60.0, ge=0, le=86_400)
    watch_push: bool = True
    render: RenderSettings = RenderSettings()
    transport: Literal["streamable-http", "sse", "stdio"] = Field(
        "streamable-http", validation_alias="MCP_TRANSPORT"
    )
    host: Literal["127.0.0.1", "localhost", "::1"] = "127.0.0.1"
    port: int = Field(9202, ge=0, le=65_535, validation_alias="MCP_PORT")
    callback_url: AnyHttpUrl | None = Field(None, validation_alias="RVC_CALLBACK_URL")
    event_secret: SecretStr | None = Field(None, validation_alias="RVC_EVENT_SECRET")
    # Only checked here: rclpy reads it from the environment itself.
    ros_domain_id: int | None = Field(None, ge=0, le=232, validation_alias="ROS_DOMAIN_ID")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_pretty: bool = False

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
        return env_settings, init_settings


def load_settings(path: Path | None = None, **overrides: Any) -> Settings:
    """Read and check the settings.

    Args:
        path: a YAML file; without one, the file that the package carries.
        overrides: above everything else.

    Raises:
        ConfigError: the file cannot be read, or a key, type or range is wrong; the text names
            each key, its value and what is allowed.
    """
    path = path or default_config()
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path} must hold keys and values, for example `port: 9202`")
    try:
        return Settings(**data).model_copy(update=overrides)
    except ValidationError as error:
        lines = [
            f"  {_name(item['loc'])} = {item['input']!r}: {item['msg']}" for item in error.errors()
        ]
        raise ConfigError(
            "\n".join([f"wrong settings in {path} or the environment:", *lines])
        ) from error


def _name(location: tuple[int | str, ...]) -> str:
    """Name a setting as the person wrote it: the environment variable if that is set."""
    field = Settings.model_fields.get(str(location[0]))
    alias = field.validation_alias if field else None
    return alias if isinstance(alias, str) and alias in os.environ else ".".join(map(str, location))


def default_config() -> Path:
    """Return the configuration that travels with the package, or the repository's own."""
    here = Path(__file__).parent
    packaged = here / "config" / "buffer.yaml"
    return packaged if packaged.is_file() else here.parents[1] / "config" / "buffer.yaml"
