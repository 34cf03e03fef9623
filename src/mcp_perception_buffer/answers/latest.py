"""The answers about one skill: `get_latest` and `get_overlay_ref`; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mcp_perception_buffer.answers.budget import (
    DATA_FACTOR,
    MAX_LABELS,
    Answer,
    few,
    fit,
    shown,
    size,
)
from mcp_perception_buffer.answers.places import place
from mcp_perception_buffer.answers.scene import age, aged, cut, overlay_data, skill_problems
from mcp_perception_buffer.answers.scene import skill_text as block_of
from mcp_perception_buffer.answers.sightings import count, least
from mcp_perception_buffer.answers.skills import Skill, World, find_skill, known, world
from mcp_perception_buffer.answers.warnings import warnings
from mcp_perception_buffer.answers.wording import ago, box_data, short, stamp_of, tell
from mcp_perception_buffer.decoding.text import quoted
from mcp_perception_buffer.decoding.text import topic as clean_topic
from mcp_perception_buffer.errors import UnknownSkillError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mcp_perception_buffer.answers.wording import RenderLimits
    from mcp_perception_buffer.model import Detection, Observation, Snapshot

LATEST_BYTES = 300  # of an answer beside what is told
DEFAULT_LIMIT = 50


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which detections are asked for."""

    limit: int = DEFAULT_LIMIT
    label: str | None = None
    min_score: float = 0.0

    def takes(self, found: Detection) -> bool:
        """Whether a detection is among them; one without a score meets no least score."""
        if self.label is not None and found.label != self.label:
            return False
        return not self.min_score or (
            found.score is not None and found.score >= least(self.min_score)
        )


def latest(
    snapshot: Snapshot,
    skill: str,
    limits: RenderLimits,
    wall_clock_s: float,
    cursor: str = "",
    wanted: Wanted | None = None,
) -> Answer:
    """Tell one skill in full, as far as it fits.

    Raises:
        UnknownSkillError: no stream belongs to `skill`; its text names the skills there are.
    """
    wanted = wanted or Wanted()
    found = find_skill(snapshot, skill)
    view, seen = found.detections, found.detections.observation if found.detections else None
    cameras = [c for c in world(snapshot).cameras if c.info.robot == found.robot]
    warned = warnings(World([found], cameras), snapshot.freshness_window_s, wall_clock_s)
    data: dict[str, Any] = {
        "skill": found.name,
        "state": found.state,
        "cursor": cursor,
        "topic": clean_topic(view.info.topic) if view else None,
        "stamp": stamp_of(seen),
        "frame_id": seen.frame_id if seen else None,
        "image": found.image._asdict() if found.image else None,
        "age_s": age(view) if view else None,
        "stale": (view or found).state != "fresh",
        "warnings": warned,
        "count": len(seen.detections) if seen else 0,
        "counts": {},
        "detections": [],
        "more": None,
        "outputs": {},
        "more_outputs": [],
        "overlay_ref": overlay_data(found, limits),
        "problems": [],
    }
    if view is not None and view.frozen:
        data["frozen"] = True
    room = DATA_FACTOR * limits.max_chars - LATEST_BYTES - size(data)
    problems = skill_problems(found)
    data["problems"] = problems[: fit(map(size, problems), room // 3)]
    room -= size(data["problems"])
    # Outputs are few and small, detections may be many: those get what is left.
    room -= _put_outputs(data, found, limits, room // 2)
    if view is not None and seen is not None:
        _put_detections(data, found, seen, wanted, room)
    return Answer(_text(found, data, warned, limits), data)


def _put_outputs(data: dict[str, Any], skill: Skill, limits: RenderLimits, room: int) -> int:
    parts = [
        (view.info.output, aged(tell(view.observation, view.info, limits), view))
        for view in skill.outputs
        if view.observation is not None
    ]
    sizes = [size({output: value}) + 4 for output, value in parts]
    count_ = fit(sizes, room)
    data["outputs"] = dict(parts[:count_])
    data["more_outputs"] = [output[:64] for output, _ in parts[count_ : count_ + 5]]
    return sum(sizes[:count_]) + size(data["more_outputs"])


def _put_detections(
    data: dict[str, Any], skill: Skill, seen: Observation, wanted: Wanted, room: int
) -> None:
    topic = data["topic"]
    asked = [found for found in seen.detections if wanted.takes(found)]
    counts_room = min(400, room // 8)
    data["counts"] = few(count(asked), counts_room)
    room -= 2 * counts_room
    ref = {"topic": topic, "stamp": data["stamp"]}
    told = [detection_data(one, skill, seen, ref) for one in asked[: wanted.limit]]
    number = fit((size(one) + 1 for one in told), room)
    data["detections"] = told[:number]
    left_out = len(seen.detections) - number
    if left_out:
        shown_ones = {id(one) for one in asked[:number]}
        rest = [one for one in seen.detections if id(one) not in shown_ones]
        data["more"] = {
            "count": left_out,
            "counts": few(count(rest), counts_room),
            "ask": "get_latest(skill, label=…, min_score=…, limit=…)",
        }


def detection_data(
    found: Detection, skill: Skill, seen: Observation, ref: dict[str, Any]
) -> dict[str, Any]:
    """Return one detection in full; what was not measured is None."""
    at = place(found, skill.image, seen.frame_id)
    in_space = found.point or found.size or found.orientation
    return {
        "label": found.label,
        "score": None if found.score is None else short(found.score),
        "box": box_data(found),
        "point": _numbers(found.point),
        "frame_id": (found.frame_id or seen.frame_id or None) if in_space else None,
        "side": at.side,
        "distance_m": None if at.distance_m is None else round(at.distance_m, 3),
        "size": _numbers(found.size),
        "orientation": _numbers(found.orientation),
        "keypoints": found.keypoints,
        "track_id": found.track_id,
        "hypotheses": [
            {"label": h.label, "score": None if h.score is None else short(h.score)}
            for h in found.others
        ],
        "mask_ref": ref if found.has_mask else None,
    }


def _numbers(values: Any) -> dict[str, float] | None:
    if values is None:
        return None
    return dict(zip(values._fields, map(short, values), strict=True))


def _text(skill: Skill, data: dict[str, Any], warned: Sequence[str], limits: RenderLimits) -> str:
    """Return the skill's block, then its detections line by line as far as they fit."""
    text = "".join(f"WARNING: {line}\n" for line in warned)
    text += block_of(skill, limits, in_full=bool(data["detections"]))
    if data["detections"]:
        text += f"\nDetections of {data['topic']}:"
    lines = [_line(one) for one in data["detections"]]
    more = data["more"]
    closing = _closing(more["count"], more["counts"]) if more else ""
    room = limits.max_chars - len(closing) - 120
    text = cut(text, room)
    fitting = fit((len(line) + 1 for line in lines), room - len(text))
    text += "".join("\n" + line for line in lines[:fitting])
    if cut_off := len(lines) - fitting:
        rest: dict[str, int] = dict(more["counts"]) if more else {}
        for one in data["detections"][fitting:]:
            rest[one["label"]] = rest.get(one["label"], 0) + 1
        closing = _closing(cut_off + (more["count"] if more else 0), rest)
    return (text + closing)[: limits.max_chars]


def _closing(number: int, counts: dict[str, int]) -> str:
    few = shown((f"{n} {quoted(label)}" for label, n in counts.items()), MAX_LABELS)
    return cut(f"\n{number} more: {few}; narrow by label, min_score or limit", 1200)


def _line(one: dict[str, Any]) -> str:
    text = f"- {quoted(one['label'])}"
    if one["score"] is not None:
        text += f" {one['score']:.2f}"
    if (box := one["box"]) is not None:
        text += f" [{box['x']:.0f},{box['y']:.0f} {box['width']:.0f}x{box['height']:.0f}]"
    if (point := one["point"]) is not None:
        x, y, z = point.values()
        text += f", at ({x:.2f}, {y:.2f}, {z:.2f}) m"
        text += f" in {quoted(one['frame_id'])}" if one["frame_id"] else ""
    if one["distance_m"] is not None:
        text += f", {one['distance_m']:.1f} m away"
    for key, form in (("side", "{}"), ("track_id", "track {}"), ("keypoints", "{} keypoints")):
        if one[key] is not None:
            text += ", " + form.format(quoted(str(one[key])))
    if (extent := one["size"]) is not None:
        text += ", {x:.2f} x {y:.2f} x {z:.2f} m large".format(**extent)
    if one["hypotheses"]:
        text += f", or {', '.join(quoted(h['label']) for h in one['hypotheses'][:3])}"
    return f"{text}, mask" if one["mask_ref"] else text


def overlay_ref(snapshot: Snapshot, skill: str, limits: RenderLimits) -> Answer:
    """Say where a skill's annotated image is.

    Raises:
        UnknownSkillError: there is no such skill, or it has published no overlay.
    """
    found = find_skill(snapshot, skill)
    data = overlay_data(found, limits)
    if data is None:
        raise UnknownSkillError(f"{skill} has published no overlay. {known(snapshot, 'overlay')}")
    stale = ", STALE" if data["stale"] else ""
    same = {True: ", of the newest detections", False: ", not of the newest detections"}
    stamp = data["stamp"]
    when = f"{stamp['sec']}.{stamp['nanosec']:09d}" if stamp else "unset"
    return Answer(
        f"The annotated image of {skill}: topic {data['topic']}, stamp {when},"
        f" {ago(data['age_s'])}{stale}{same.get(data['matches'], '')}.",
        data,
    )
