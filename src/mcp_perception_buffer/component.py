"""An implementation chosen by configuration: `_target_` and its options, as Hydra trees have it."""

from __future__ import annotations

import importlib
import inspect
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from mcp_perception_buffer.errors import ConfigError, UnavailableError

# What the wiring hands to an implementation; everything else in its signature is an option.
DEPENDENCIES = frozenset(
    ("buffer", "topics", "decoder", "ros_args", "reconcile_interval_s", "source", "url", "secrets")
)

# How long an adapter may wait for somebody else, in seconds.
Timeout = Annotated[float, Field(ge=0.1, le=60)]

NO_RCLPY = """\
rclpy cannot be imported: {error}
Either source the robot's ROS installation (source /opt/ros/jazzy/setup.bash) and run this with
its Python, or install the ROS wheels: uv sync --inexact --extra ros (x86-64 Linux)."""


NO_MESSAGES = """\
rclpy is there, but the messages are not: {error}
Build ros2_vision_interfaces with colcon and source its workspace (source install/setup.bash)."""


class Component(BaseModel):
    """A class by its import path, with the keyword arguments that the configuration gives it."""

    model_config = ConfigDict(extra="allow", populate_by_name=True)

    target: str = Field(alias="_target_", pattern=r"^[A-Za-z_][\w.]*\.[A-Za-z_]\w*$")

    @classmethod
    def of(cls, target: str, **options: Any) -> Self:
        """Return the component that a YAML file with these keys would give."""
        return cls.model_validate({"_target_": target, **options})

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments beside `_target_`."""
        return dict(self.model_extra or {})

    def load(self) -> Any:
        """Import the class.

        Raises:
            UnavailableError: it needs rclpy, which is not installed.
            ConfigError: there is no such class.
        """
        module, _, name = self.target.rpartition(".")
        try:
            return getattr(importlib.import_module(module), name)
        except ImportError as error:
            missing = {"rclpy": NO_RCLPY, "ros2_vision_interfaces": NO_MESSAGES}
            if text := missing.get((error.name or "").split(".")[0]):
                raise UnavailableError(text.format(error=error)) from error
            raise ConfigError(f"_target_ = {self.target!r}: {error}") from error
        except AttributeError as error:
            raise ConfigError(f"_target_ = {self.target!r}: {error}") from error

    def check(self, group: str) -> None:
        """Check the options against the class's signature, as far as it can be imported here.

        Raises:
            ConfigError: an unknown option or a wrong value; the text says what is allowed.
        """
        try:
            loaded = self.load()
        except UnavailableError:
            return  # said when it is built; looking at the configuration needs no ROS
        module = vars(importlib.import_module(loaded.__module__))
        allowed = {
            name: parameter
            for name, parameter in inspect.signature(loaded).parameters.items()
            if name not in DEPENDENCIES and not name.endswith("clock_s")
        }
        for name, value in self.options.items():
            if name not in allowed:
                known = ", ".join(sorted(allowed)) or "none"
                raise ConfigError(f"{group}.{name} = {value!r}: unknown; {self.target} has {known}")
            annotation = allowed[name].annotation
            try:
                kind = eval(annotation, module) if isinstance(annotation, str) else annotation  # noqa: S307
                TypeAdapter(kind).validate_python(value)
            except NameError:
                continue  # a type that only its type checker knows: the class checks it itself
            except ValidationError as error:
                said = "; ".join(item["msg"] for item in error.errors())
                raise ConfigError(f"{group}.{name} = {value!r}: {said}") from error

    def build(self, **dependencies: Any) -> Any:
        """Make the object from its options and those dependencies that it asks for."""
        loaded = self.load()
        asked = inspect.signature(loaded).parameters
        return loaded(
            **self.options, **{name: dep for name, dep in dependencies.items() if name in asked}
        )
