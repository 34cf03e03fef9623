"""Finds faces, cat faces and eyes by OpenCV's haar cascades, with masks and track ids.

Nothing here knows ROS. Frames are BGR, uint8, of shape (height, width, 3).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import cv2
import numpy as np

from .boxes import Box
from .frames import StartError
from .masks import cut_mask

if TYPE_CHECKING:
    from cv2.typing import MatLike

# Heights of the pictures that are searched, so that the cost does not grow with the frame.
FACE_SEARCH_PX = 160
CAT_SEARCH_PX = 70
CAT_MARGIN_PX = 17
CAT_TILTS_DEG = (0.0, 8.0, -8.0)
SMALLEST_FACE_PX = 24
MISSES_FORGIVEN = 3


@dataclass(frozen=True)
class Detection:
    """One thing that was found; `mask` has the shape (box.height, box.width), uint8, 0 or 255."""

    label: str
    score: float
    box: Box
    mask: MatLike
    track_id: str


class Cascade:
    """One haar cascade with the search settings and the least score that make it trustworthy.

    Raises:
        StartError: OpenCV does not bring this cascade.
    """

    def __init__(self, name: str, step: float, neighbours: int, min_score: float) -> None:
        path = Path(cv2.__file__).with_name("data") / f"haarcascade_{name}.xml"
        self._classifier = cv2.CascadeClassifier(str(path))
        if self._classifier.empty():
            raise StartError(f"OpenCV has no {path.name}; run with `uv run --extra demo`")
        self._step = step
        self._neighbours = neighbours
        self._min_score = min_score
        file = cv2.FileStorage(str(path), cv2.FILE_STORAGE_READ)
        stages = file.getNode("cascade").getNode("stages")
        self._threshold = stages.at(stages.size() - 1).getNode("stageThreshold").real()

    def find(self, grey: MatLike, min_px: int) -> list[tuple[Box, float]]:
        """Return boxes with scores in 0..1, best first.

        A cascade knows no probability. The score is how far the best window passed the threshold
        of the last stage, squashed: 1 - exp(-margin / 2). It orders and filters, no more.
        """
        boxes, _, weights = self._classifier.detectMultiScale3(
            grey,
            scaleFactor=self._step,
            minNeighbors=self._neighbours,
            minSize=(min_px, min_px),
            outputRejectLevels=True,
        )
        found = [
            (Box(*map(int, box)), 1 - math.exp(-max(0.0, weight - self._threshold) / 2))
            for box, weight in zip(boxes, weights, strict=True)
        ]
        return sorted((f for f in found if f[1] >= self._min_score), key=lambda f: -f[1])


class Detector:
    """Finds faces, eyes within them, and cat faces.

    A call looks for cat faces at one tilt of the head only, to bound its cost: the tilt that last
    found one, else the next of three. So the third look at a cat is the latest to find it.
    """

    def __init__(self) -> None:
        # Chosen for few misses of a whole face, and no false alarm, over the default photographs.
        self._face = Cascade("frontalface_alt2", step=1.2, neighbours=3, min_score=0.5)
        self._eye = Cascade("eye", step=1.1, neighbours=4, min_score=0.4)
        self._cat = Cascade("frontalcatface_extended", step=1.07, neighbours=3, min_score=0.72)
        self._tilt = 0
        self._tracks = Tracks()

    def detect(self, frame: MatLike) -> list[Detection]:
        """Return what is in the frame: faces, cat faces, eyes; boxes lie inside the frame."""
        grey = cv2.cvtColor(frame, cv2.COLOR_BGR2GRAY)
        faces = self._faces(grey)
        cats = [c for c in self._cats(grey) if all(c[0].overlap(f) < 0.3 for f, _ in faces)]
        eyes = [eye for face, _ in faces for eye in self._eyes(grey, face)]
        self._tracks.next_frame()
        return [
            Detection(label, score, box, cut_mask(frame, box), self._tracks.name(label, box))
            for label, found in (("face", faces), ("cat face", cats), ("eye", eyes))
            for box, score in found
        ]

    def _faces(self, grey: MatLike) -> list[tuple[Box, float]]:
        factor = max(1, round(grey.shape[0] / FACE_SEARCH_PX))
        small = cv2.equalizeHist(_reduce(grey, factor))
        return [
            (box.scaled(factor).clipped(grey.shape), score)
            for box, score in self._face.find(small, SMALLEST_FACE_PX)
        ]

    def _eyes(self, grey: MatLike, face: Box) -> list[tuple[Box, float]]:
        """Return the best eye in each half of the upper face."""
        upper = grey[face.y : face.y + face.height * 3 // 5, face.x : face.x + face.width]
        factor = max(1, face.width // 100)
        best: dict[bool, tuple[Box, float]] = {}
        for part, score in self._eye.find(_reduce(upper, factor), face.width // factor // 6):
            x, y, width, height = part.scaled(factor)
            eye = Box(face.x + x, face.y + y, width, height).clipped(grey.shape)
            best.setdefault(x + width / 2 > face.width / 2, (eye, score))
        return list(best.values())

    def _cats(self, grey: MatLike) -> list[tuple[Box, float]]:
        factor = max(1, round(grey.shape[0] / CAT_SEARCH_PX))
        small = _reduce(grey, factor)
        # The margin lets a face be found whose ears or chin the picture cuts off.
        pad = CAT_MARGIN_PX
        small = cv2.copyMakeBorder(small, pad, pad, pad, pad, cv2.BORDER_REPLICATE)
        height, width = small.shape
        turn = cv2.getRotationMatrix2D((width / 2, height / 2), CAT_TILTS_DEG[self._tilt], 1)
        turned = cv2.warpAffine(small, turn, (width, height), borderMode=cv2.BORDER_REPLICATE)
        back = cv2.invertAffineTransform(turn)
        cats = []
        for box, score in self._cat.find(turned, SMALLEST_FACE_PX):
            middle = np.array([box.x + box.width / 2, box.y + box.height / 2, 1])
            x, y = back @ middle - pad
            upright = Box(round(x - box.width / 2), round(y - box.height / 2), *box[2:])
            cats.append((upright.scaled(factor).clipped(grey.shape), score))
        if not cats:
            self._tilt = (self._tilt + 1) % len(CAT_TILTS_DEG)
        return cats


class Tracks:
    """Names what overlaps a thing of the same label in one of the last frames as that thing."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, Box, int]] = {}
        self._frame = 0
        self._named = 0

    def next_frame(self) -> None:
        """Forget what has been out of sight for too long."""
        self._frame += 1
        oldest = self._frame - 1 - MISSES_FORGIVEN
        self._seen = {key: seen for key, seen in self._seen.items() if seen[2] >= oldest}

    def name(self, label: str, box: Box) -> str:
        """Return the id of the best match not yet taken in this frame, or a new one."""
        rivals = {
            key: box.overlap(last)
            for key, (kind, last, frame) in self._seen.items()
            if kind == label and frame < self._frame
        }
        best = max(rivals, key=lambda key: rivals[key], default="")
        if not best or rivals[best] < 0.2:
            self._named += 1
            best = f"{label.replace(' ', '-')}-{self._named}"
        self._seen[best] = (label, box, self._frame)
        return best


def _reduce(grey: MatLike, factor: int) -> MatLike:
    height, width = grey.shape[:2]
    return cv2.resize(grey, (width // factor, height // factor), interpolation=cv2.INTER_AREA)
