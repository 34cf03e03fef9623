"""What to say, and what to draw, about a frame: things, places, brightness and colour."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import cv2
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cv2.typing import MatLike

    from .detect import Detection

# Where each hue ends, in OpenCV's half degrees.
HUE_ENDS = (7, 20, 33, 85, 130, 165, 180)
HUES = ("red", "orange", "yellow", "green", "blue", "purple", "red")
BRIGHTNESS_ENDS = (60, 100, 160)
BRIGHTNESS = ("dark", "dim", "medium bright", "bright")
GREEN = (0, 255, 0)


def describe_scene(frame: MatLike, detections: Sequence[Detection]) -> str:
    """Return one line such as `1 face (upper left), 2 eyes (upper left); bright, mostly orange`."""
    parts = []
    for label, count in Counter(one.label for one in detections).items():
        places = dict.fromkeys(_place(one, frame) for one in detections if one.label == label)
        parts.append(f"{count} {label}{'s' * (count > 1)} ({' and '.join(places)})")
    found = ", ".join(parts) or "no face and no cat face"
    level = np.searchsorted(BRIGHTNESS_ENDS, cv2.cvtColor(frame, cv2.COLOR_BGR2GRAY).mean())
    return f"{found}; {BRIGHTNESS[level]}, {_colour(frame)}"


def draw_overlay(frame: MatLike, detections: Sequence[Detection]) -> MatLike:
    """Return a copy of the frame with tinted masks, boxes, labels and scores."""
    overlay = frame.copy()
    for one in detections:
        x, y, width, height = one.box
        part = overlay[y : y + height, x : x + width]
        np.copyto(part, part // 2 + np.array([0, 110, 0], np.uint8), where=one.mask[..., None] > 0)
        cv2.rectangle(overlay, (x, y), (x + width - 1, y + height - 1), GREEN, 1)
        place, text = (x + 2, max(12, y - 4)), f"{one.label} {one.score:.2f}"
        cv2.putText(overlay, text, place, cv2.FONT_HERSHEY_SIMPLEX, 0.45, GREEN, 1, cv2.LINE_AA)
    return overlay


def _place(one: Detection, frame: MatLike) -> str:
    height, width = frame.shape[:2]
    column = int(3 * (one.box.x + one.box.width / 2) / width)
    row = int(3 * (one.box.y + one.box.height / 2) / height)
    return ("upper ", "", "lower ")[row] + ("left", "centre", "right")[column]


def _colour(frame: MatLike) -> str:
    """Name the commonest hue if at least a quarter of the picture has one; dark orange is brown."""
    small = cv2.resize(frame, (80, 60), interpolation=cv2.INTER_AREA)
    hue, saturation, value = cv2.cvtColor(small, cv2.COLOR_BGR2HSV).reshape(-1, 3).T
    coloured = (saturation > 60) & (value > 40)
    names = np.array(HUES)[np.searchsorted(HUE_ENDS, hue[coloured], side="right")]
    names[np.isin(names, ("red", "orange")) & (value[coloured] < 170)] = "brown"
    if coloured.mean() < 0.25:
        return "little colour"
    name, count = Counter(names.tolist()).most_common(1)[0]
    return f"{'mostly' if count > hue.size / 2 else 'partly'} {name}"
