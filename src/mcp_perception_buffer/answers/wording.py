"""A message in words and as data, both without its age; pure.

What depends on a message alone is made once a message, and kept for as long as that lives; only
ages are filled in per answer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from mcp_perception_buffer.answers.budget import few, size
from mcp_perception_buffer.answers.places import NOWHERE, Place, place, where
from mcp_perception_buffer.answers.sightings import count, sight
from mcp_perception_buffer.decoding.text import quoted
from mcp_perception_buffer.decoding.text import topic as clean_topic
from mcp_perception_buffer.model import (
    IMAGES,
    Detection,
    ImageSize,
    Observation,
    StreamInfo,
    StreamView,
)


@dataclass(frozen=True, slots=True, eq=False)  # a key of caches, cheap to hash
class RenderLimits:
    """What bounds an answer's text; its data are bounded by a multiple of `max_chars`."""

    max_chars: int = 4000
    max_detections: int = 10  # named in a summary; the rest is "N more"
    min_score: float = 0.05  # below it a detection is only counted
    max_value_chars: int = 300


class Told(NamedTuple):
    """A message in words and as the data of an answer, both without its age."""

    line: str
    data: dict[str, Any]
    size: int  # of the data, in bytes of JSON


def tell(
    seen: Observation, info: StreamInfo, limits: RenderLimits, image: ImageSize | None = None
) -> Told:
    """Return what an answer says of a message.

    Args:
        seen: the message.
        info: of its stream.
        limits: of the answer.
        image: size of the image that its boxes refer to, where it is known.
    """
    told = seen.told.get((limits, image))
    if told is None:
        if len(seen.told) >= MAX_TELLINGS:
            seen.told.clear()
        told = seen.told[limits, image] = _tell(seen, info, limits, image)
    return cast("Told", told)


MAX_TELLINGS = 4  # of one message: it rarely is more than two


def _tell(
    seen: Observation, info: StreamInfo, limits: RenderLimits, image: ImageSize | None
) -> Told:
    stamp = stamp_of(seen)
    ref = {"topic": clean_topic(info.topic), "stamp": stamp}
    if info.kind in IMAGES:
        return Told("", ref, size(ref))
    if info.kind == "detections":
        line, data = _tell_detections(seen, limits, image)
        masked = any(detection.has_mask for detection in seen.detections)
        data |= {"stamp": stamp, "mask_ref": ref if masked else None}
        return Told(line, data, size(data))
    text, more = cut_value(seen.value, limits.max_value_chars)
    value = seen.value if not more else text
    data = {"value": value, "stamp": stamp}
    if more:
        data["more_chars"] = more
    line = f"{info.output}: {text}" + (f"… ({more} characters more)" if more else "")
    return Told(line, data, size(data))


def cut_value(value: Any, limit: int) -> tuple[str, int]:
    """Return a value as JSON, at most `limit` characters of it, and how many are left out."""
    text = json.dumps(value, ensure_ascii=False)
    return text[:limit], max(0, len(text) - limit)


def stamp_of(seen: Observation | None) -> dict[str, int] | None:
    """Return a message's stamp; one of zero was never set."""
    if seen is None or seen.stamp is None or not any(seen.stamp):
        return None
    return {"sec": seen.stamp.sec, "nanosec": seen.stamp.nanosec}


def _tell_detections(
    seen: Observation, limits: RenderLimits, image: ImageSize | None
) -> tuple[str, dict[str, Any]]:
    sights = sight(seen, limits.min_score)
    best = sights.told[: limits.max_detections]
    places = [place(found, image, seen.frame_id) for found in best]
    left_out = count(sights.told[len(best) :])
    data: dict[str, Any] = {
        "count": len(seen.detections),
        "counts": few(sights.counts),
        "best": [brief(*pair) for pair in zip(best, places, strict=True)],
        "more": few(left_out),
        "folded": sights.folded,
        "uncertain": sights.uncertain,
        "frame_id": seen.frame_id or None,
        "image": image._asdict() if image else None,
    }
    if not seen.detections:
        return "looked, saw nothing", data
    parts = [_words(found, at, seen.frame_id) for found, at in zip(best, places, strict=True)]
    if left_out:
        parts.append(f"{sum(left_out.values())} more: {counted(left_out)}")
    line = "; ".join(parts)
    if sights.counts:
        line = f"{counted(sights.counts)}: {line}"
    frames = {found.frame_id or seen.frame_id for found, at in zip(best, places, strict=True)
              if at.distance_m is not None}  # fmt: skip
    extra = [f"in {quoted(frame)}" for frame in sorted(filter(None, frames))]
    if sights.folded:
        extra.append(f"{sights.folded} near-duplicates folded")
    if sights.uncertain:
        extra.append(f"{sights.uncertain} below score {limits.min_score:g}")
    if not line:
        return ", ".join(extra), data
    return f"{line} ({', '.join(extra)})" if extra else line, data


def counted(counts: dict[str, int]) -> str:
    """Return counts in words, such as "3 person, 2 chair"."""
    return ", ".join(f"{number} {quoted(label)}" for label, number in few(counts).items())


def brief(found: Detection, at: Place) -> dict[str, Any]:
    """Return one detection as a summary's data: what is not known is left out."""
    data: dict[str, Any] = {
        "label": found.label,
        "score": None if found.score is None else short(found.score),
    }
    if found.box is not None:
        data["box"] = box_data(found)
    if found.point is not None:
        data["point"] = dict(zip("xyz", map(short, found.point), strict=True))
        if found.frame_id:
            data["frame_id"] = found.frame_id
    if at.side:
        data["side"] = at.side
    if at.distance_m is not None:
        data["distance_m"] = round(at.distance_m, 2)
        data["ahead"] = at.ahead
    if at.range:
        data["range"] = at.range
    if found.track_id is not None:
        data["track_id"] = found.track_id
    return data


def box_data(found: Detection) -> dict[str, float] | None:
    """Return a detection's box as data."""
    box = found.box
    return None if box is None else dict(zip(box._fields, map(short, box), strict=True))


def short(value: float) -> float:
    """Return the short decimal that a float32 stands for: 0.91, not 0.9100000262260437."""
    return float(f"{value:.7g}")


def _words(found: Detection, at: Place, frame_id: str | None) -> str:
    text = quoted(found.label)
    if found.score is not None:
        text += f" {found.score:.2f}"
    if found.box is not None:
        x, y, width, height = found.box
        text += f" [{x:.0f},{y:.0f} {width:.0f}x{height:.0f}]"
    if at is not NOWHERE or found.point is not None:
        text = ", ".join((text, *where(found, at, frame_id)))
    if found.track_id is not None:
        text += f", track {quoted(found.track_id)}"
    return f"{text}, mask" if found.has_mask else text


def unreadable(view: StreamView) -> str:
    """Say of a stream of which nothing could be read that it is not silent, and why."""
    return f"received {view.received}, none readable: {view.last_error}"


def ago(age_s: float) -> str:
    """Return an age in words."""
    return f"{age_s:.1f} s ago" if age_s < 60 else f"{age_s / 60:.0f} min ago"


def flag(view: StreamView) -> str:
    """Return what stands behind the age of a value that is not fresh."""
    if view.state == "fresh":
        return ""
    return f", {view.state.upper()}{', FROZEN' if view.frozen else ''}"
