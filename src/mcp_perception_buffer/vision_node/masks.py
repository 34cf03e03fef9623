"""Cuts a mask out of the pixels of a box."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cv2
import numpy as np

from .boxes import Box

if TYPE_CHECKING:
    from cv2.typing import MatLike

# GrabCut's cost grows with the area; an outline needs no more.
WORK_PX = 64
# Ellipses, as shares of the box, from the outside in. Beyond the first all is background.
FIRST_GUESS = ((1.2, cv2.GC_PR_BGD), (0.95, cv2.GC_PR_FGD), (0.7, cv2.GC_FGD))


def cut_mask(frame: MatLike, box: Box) -> MatLike:
    """Separate the thing in the box from its surroundings by GrabCut on a reduced copy.

    An ellipse in the box is the first guess, and the answer where GrabCut goes far astray. Returns
    uint8 of shape (box.height, box.width), 0 or 255; the box has to lie inside the frame.
    """
    pad_x, pad_y = box.width // 4, box.height // 4
    area = Box(box.x - pad_x, box.y - pad_y, box.width + 2 * pad_x, box.height + 2 * pad_y)
    area = area.clipped(frame.shape)
    left, top = box.x - area.x, box.y - area.y
    scale = min(1.0, WORK_PX / max(area.width, area.height))
    part = frame[area.y : area.y + area.height, area.x : area.x + area.width]
    work = cv2.resize(part, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    guess = np.full(work.shape[:2], cv2.GC_BGD, np.uint8)
    middle = (round((left + box.width / 2) * scale), round((top + box.height / 2) * scale))
    for share, kind in FIRST_GUESS:
        axes = (round(box.width / 2 * share * scale), round(box.height / 2 * share * scale))
        cv2.ellipse(guess, middle, axes, 0, 0, 360, kind, cv2.FILLED)
    ellipse = _foreground(guess)
    if ellipse.all():
        # Too small to have surroundings, without which GrabCut refuses to work.
        return np.full((box.height, box.width), 255, np.uint8)
    # GrabCut's clustering draws from it: the same frame shall give the same mask.
    cv2.setRNGSeed(0)
    models = np.zeros((1, 65)), np.zeros((1, 65))
    cv2.grabCut(work, guess, (0, 0, 1, 1), *models, 2, cv2.GC_INIT_WITH_MASK)
    kept = _foreground(guess)
    if not 0.5 < kept.sum() / ellipse.sum() < 1.5:
        kept = ellipse
    whole = cv2.resize(kept, (area.width, area.height), interpolation=cv2.INTER_LINEAR)
    inside = whole[top : top + box.height, left : left + box.width]
    return cv2.threshold(inside, 127, 255, cv2.THRESH_BINARY)[1]


def _foreground(guess: MatLike) -> MatLike:
    return np.where(np.isin(guess, (cv2.GC_FGD, cv2.GC_PR_FGD)), 255, 0).astype(np.uint8)
