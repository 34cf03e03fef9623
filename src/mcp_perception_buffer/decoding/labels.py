"""Names of classes: a list or a map in the settings, a file of names, or a packaged set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from mcp_perception_buffer.decoding.text import label
from mcp_perception_buffer.errors import ConfigError

MAX_CLASSES = 100_000
PACKAGED = ("coco80",)

Labels = str | list[str] | dict[int | str, str]


def load_labels(given: Labels | None, packaged: Path) -> dict[str, str]:
    """Return class ids as text, and their names.

    Args:
        given: a list (its first name is that of class 0), a map, the name of a packaged set, or a
            file: one name a line, or YAML with a list or a map (`names` in it, if there is such).
        packaged: the folder of the packaged sets.

    Raises:
        ConfigError: a file cannot be read, or holds no names.
    """
    if given is None:
        return {}
    names: Any = given
    if isinstance(given, str):
        path = packaged / f"{given}.txt" if given in PACKAGED else Path(given)
        names = _read(path)
    if isinstance(names, dict) and isinstance(names.get("names"), (list, dict)):
        names = names["names"]
    pairs = names.items() if isinstance(names, dict) else enumerate(names or ())
    found = {str(number): label(str(name)) for number, name in pairs if isinstance(name, str)}
    if not found or len(found) > MAX_CLASSES:
        raise ConfigError(f"labels = {given!r}: {len(found)} names of classes, 1 to {MAX_CLASSES}")
    return found


def _read(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix in (".yaml", ".yml"):
            return yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"labels = {str(path)!r}: {reason}; a file has one name a line, or is YAML;"
            f" {', '.join(PACKAGED)} is packaged"
        ) from error
    return [line.strip() for line in text.splitlines() if line.strip()]
