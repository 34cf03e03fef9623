"""Shows which of the installed message types this service reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from mcp_perception_buffer.interfaces import installed

if TYPE_CHECKING:
    from collections.abc import Callable


def table(kind_of: Callable[[str], str | None]) -> Table:
    """Return what is read of the interface packages, those of the ROS wheels themselves left out.

    Args:
        kind_of: what the messages of a type are read as, None if they are not; for example
            `"vision_msgs/msg/Detection2DArray"` to `"detections"`.
    """
    shown = Table()
    for column in ("package", "message", "read as"):
        shown.add_column(column, overflow="fold")
    for package, types in installed.message_types().items():
        if installed.is_of_wheels(package):
            continue
        kinds = {name: kind for name in types if (kind := kind_of(name))}
        for name, kind in kinds.items():
            shown.add_row(package, name.rpartition("/")[2], kind)
        if not kinds:
            shown.add_row(package, f"none of its {len(types)}", "", style="dim")
    return shown
