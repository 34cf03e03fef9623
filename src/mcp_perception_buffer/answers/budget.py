"""What fits into an answer: parts in the order of their worth, and the names of those left out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# The data of an answer may be so many times as long as its text, in bytes of UTF-8.
DATA_FACTOR = 3
MAX_LABELS = 20  # counted one by one in an answer


def size(data: Any) -> int:
    """Return how many bytes of JSON this is."""
    return len(json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode())


def fit(sizes: Iterable[int], room: int) -> int:
    """Return how many of the parts, taken in order, fit into `room`."""
    count = 0
    for one in sizes:
        room -= one
        if room < 0:
            break
        count += 1
    return count


def few(counts: Mapping[str, int], room: int = 400) -> dict[str, int]:
    """Return the first counts that fit, and in the last one how many others there are.

    Args:
        counts: by label, in the order of their worth.
        room: in bytes of JSON.
    """
    kept = min(MAX_LABELS, fit((size(label) + 8 for label in counts), room))
    told = dict(list(counts.items())[:kept])
    if rest := len(counts) - kept:
        told[f"… {rest} other labels"] = sum(counts.values()) - sum(told.values())
    return told


def shown(names: Iterable[str], limit: int = 5) -> str:
    """Return the first of these names, with a sign if there are more."""
    listed = list(names)
    return ", ".join(listed[:limit]) + (", …" if len(listed) > limit else "")


class Answer(NamedTuple):
    """The same facts as text and as data, each enough to act on and each in bounds."""

    text: str
    data: Any  # of a shape in `results`
