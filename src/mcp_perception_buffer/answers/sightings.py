"""What of one message's detections is worth telling: the certain ones, each object once; pure."""

from __future__ import annotations

import struct
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mcp_perception_buffer.model import Box, Detection, Observation

# Boxes of one label that share this much of their area are of one object.
SAME_IOU = 0.9
# Only so many are compared: duplicates stand next to each other in score.
MAX_COMPARED = 100


class Sightings(NamedTuple):
    """A message's detections as they are told; nothing of it depends on time."""

    told: tuple[Detection, ...]  # by falling score
    counts: dict[str, int]  # of those by label, the most frequent first
    folded: int  # near-duplicates of told ones
    uncertain: int  # below the least score


def sight(seen: Observation, min_score: float) -> Sightings:
    """Fold near-duplicates and leave out what is below `min_score`; both are counted."""
    told: list[Detection] = []
    by_label: dict[str, list[Box]] = {}
    folded = uncertain = 0
    min_score = least(min_score)
    for index, found in enumerate(seen.detections):
        if found.score is not None and found.score < min_score:
            uncertain += 1
            continue
        if found.box is not None and index < MAX_COMPARED:
            boxes = by_label.setdefault(found.label, [])
            if any(_iou(found.box, box) >= SAME_IOU for box in boxes):
                folded += 1
                continue
            boxes.append(found.box)
        told.append(found)
    return Sightings(tuple(told), count(told), folded, uncertain)


def least(score: float) -> float:
    """Return a least score as messages have it: 0.7 is 0.699999988 there, and has to meet 0.7."""
    return float(struct.unpack("f", struct.pack("f", score))[0])


def count(found: list[Detection] | tuple[Detection, ...]) -> dict[str, int]:
    """Count detections by label, the most frequent first."""
    return dict(Counter(one.label for one in found).most_common())


def _iou(a: Box, b: Box) -> float:
    across = min(a.x + a.width, b.x + b.width) - max(a.x, b.x)
    down = min(a.y + a.height, b.y + b.height) - max(a.y, b.y)
    if across <= 0 or down <= 0:
        return 0.0
    shared = across * down
    return shared / (a.width * a.height + b.width * b.height - shared)
