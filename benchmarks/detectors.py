"""Messages of other people's detectors for the rows about them; the tests say what is in them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from look_alikes import LOOKS, crowd
from scripted_node import fill, load

VISION_MSGS = LOOKS["array_2d"].type
NESTED = LOOKS["ultralytics"].type
ALONE = ("single_2d", "single_3d")  # looks of one detection a message

__all__ = ["ALONE", "LOOKS", "NESTED", "VISION_MSGS", "install", "load", "message"]


def install() -> None:
    """Build the types into this environment, unless they are there.

    Raises:
        RuntimeError: they cannot be built; the text says why.
    """
    from interfaces_env import DEFINITIONS, add

    done = add(DEFINITIONS)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)


def message(type_name: str, count: int, mask: tuple[int, int] | None = None) -> Any:
    """Return a message of so many detections, each with a mask of this size if its type has any."""
    name = next(name for name, look in LOOKS.items() if look.type == type_name)
    fields = crowd(name, count)
    if fields.pop("masks", None) and mask is not None:
        width, height = mask
        shape = {"width": width, "height": height, "step": width, "encoding": "mono8"}
        fields["masks"] = [{**shape, "data": b"\xff" * (width * height)}] * count
    made = load(type_name)()
    fill(made, {**fields, "header": {"frame_id": "camera"}})
    return made
