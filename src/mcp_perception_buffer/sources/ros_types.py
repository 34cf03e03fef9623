"""Message types of the ROS installation: their definitions, their Python classes, their hashes."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp_perception_buffer.errors import UnknownTypeError

if TYPE_CHECKING:
    from collections.abc import Iterator


def prefixes() -> list[Path]:
    """Return where ROS is installed.

    The sourced prefixes come first; ROS wheels put theirs into the Python environment itself.
    """
    sourced = os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)
    return [*(Path(prefix) for prefix in sourced if prefix), Path(sys.prefix)]


def installed_definition(type_name: str) -> str:
    """Read a type's `.msg` file from the ROS installation.

    Raises:
        UnknownTypeError: no prefix holds it.
    """
    for path in _installed(type_name, "msg"):
        return path.read_text(encoding="utf-8")
    package = type_name.partition("/")[0]
    raise UnknownTypeError(
        f"no definition of {type_name} is installed: install the package {package or type_name}, or"
        " mcp-perception-buffer interfaces add FOLDER with its definitions"
    )


def load_type(type_name: str) -> Any:
    """Import the Python class of a type."""
    package, _, name = type_name.partition("/msg/")
    return getattr(importlib.import_module(f"{package}.msg"), name)


def why_not_loadable(type_name: str) -> str | None:
    """Say why a type's Python class cannot be imported, None if it can."""
    try:
        load_type(type_name)
    except (ImportError, AttributeError) as error:
        importlib.invalidate_caches()  # its package may be installed before the next try
        return f"{type_name} cannot be loaded: {error}"
    return None


def is_foreign(type_name: str, type_hash: str) -> bool:
    """Say whether a publisher's type has the name, but not the fields, of the one installed here.

    Its messages would be taken for something else. A publisher that tells no hash is believed.

    Args:
        type_name: for example `"std_msgs/msg/String"`.
        type_hash: of the publisher's definition, as REP 2011 writes it (`RIHS01_` and hex digits).
    """
    ours = _installed_hash(type_name)
    return ours is not None and type_hash.startswith("RIHS01_") and type_hash != ours


@lru_cache(maxsize=1024)
def _installed_hash(type_name: str) -> str | None:
    for path in _installed(type_name, "json"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            hashes = json.loads(path.read_text(encoding="utf-8"))["type_hashes"]
            return next(str(h["hash_string"]) for h in hashes if h["type_name"] == type_name)
    return None


def _installed(type_name: str, suffix: str) -> Iterator[Path]:
    package, _, name = type_name.partition("/msg/")
    # Names come from anyone on the network, and go into a path.
    if not (package.isidentifier() and name.isidentifier()):
        return
    for prefix in prefixes():
        path = Path(prefix, "share", package, "msg", f"{name}.{suffix}")
        if path.is_file():
            yield path
