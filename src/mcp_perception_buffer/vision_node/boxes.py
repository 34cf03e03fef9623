"""Boxes in whole pixels."""

from __future__ import annotations

from typing import NamedTuple


class Box(NamedTuple):
    """The top-left corner and the size, pixels."""

    x: int
    y: int
    width: int
    height: int

    def overlap(self, other: Box) -> float:
        """Return intersection over union, 0 to 1."""
        across = min(self.x + self.width, other.x + other.width) - max(self.x, other.x)
        down = min(self.y + self.height, other.y + other.height) - max(self.y, other.y)
        shared = max(0, across) * max(0, down)
        return shared / (self.width * self.height + other.width * other.height - shared)

    def scaled(self, factor: int) -> Box:
        """Return the box in a picture `factor` times as large."""
        return Box(*(value * factor for value in self))

    def clipped(self, shape: tuple[int, ...]) -> Box:
        """Return what lies inside a picture of shape (height, width, …), at least one pixel."""
        height, width = shape[:2]
        x, y = min(max(self.x, 0), width - 1), min(max(self.y, 0), height - 1)
        right, bottom = min(self.x + self.width, width), min(self.y + self.height, height)
        return Box(x, y, max(1, right - x), max(1, bottom - y))
