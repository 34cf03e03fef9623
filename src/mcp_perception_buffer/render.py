"""Snapshot -> tool results; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcp_perception_buffer.errors import UnknownSkillError
from mcp_perception_buffer.findings import note
from mcp_perception_buffer.model import BEST_FIRST
from mcp_perception_buffer.wording import Skill, scene_text, tell

if TYPE_CHECKING:
    from mcp_perception_buffer.model import Kind, Observation, Snapshot, StreamView
    from mcp_perception_buffer.results import (
        CameraResult,
        DetectionResult,
        LatestResult,
        OutputResult,
        OverlayResult,
        RefResult,
        SceneResult,
        SkillResult,
        StampResult,
        StreamResult,
        StreamsResult,
    )
    from mcp_perception_buffer.wording import RenderLimits


def scene(snapshot: Snapshot, limits: RenderLimits, generated_at: str) -> SceneResult:
    """Render all skills; `generated_at` is the wall clock's ISO 8601 time."""
    grouped: dict[str, list[StreamView]] = {}
    for view in snapshot.streams:
        grouped.setdefault(view.info.skill, []).append(view)
    no_skill = grouped.pop("", None)
    camera = no_skill[0] if no_skill else None
    skills = _by_importance(grouped)
    return {
        "text": scene_text(snapshot, skills, camera, limits),
        "generated_at": generated_at,
        "freshness_window_s": snapshot.freshness_window_s,
        "skills": {skill.name: _skill(skill, limits) for skill in skills},
        "camera": _camera(camera) if camera else None,
    }


def latest(snapshot: Snapshot, skill: str, limits: RenderLimits) -> LatestResult:
    """Render one skill in full.

    Raises:
        UnknownSkillError: no stream belongs to `skill`; its text names the skills there are.
    """
    found = _find_skill(snapshot, skill)
    view = found.detections
    seen = view.observation if view else None
    return {
        "skill": skill,
        "state": found.state,
        "topic": view.info.topic if view else None,
        "stamp": _stamp(seen),
        "frame_id": seen.frame_id if seen else None,
        "age_s": _age(view) if view else None,
        "stale": view is None or view.state != "fresh",
        "detections": _detections_json(seen, view.info.topic) if view and seen else [],
        "outputs": _outputs(found, limits),
        "overlay_ref": _aged(found.overlay, limits),
    }


def overlay_ref(snapshot: Snapshot, skill: str, limits: RenderLimits) -> OverlayResult:
    """Say where a skill's annotated image is.

    Raises:
        UnknownSkillError: there is no such skill, or it has published no overlay.
    """
    found: OverlayResult | None = _aged(_find_skill(snapshot, skill).overlay, limits)
    if found is None:
        raise UnknownSkillError(f"{skill} has published no overlay. {_known(snapshot, 'overlay')}")
    return found


def streams(snapshot: Snapshot) -> StreamsResult:
    """List what is live and how fresh, what is silent, and what cannot be read."""
    live: list[StreamResult] = []
    silent = []
    for view in snapshot.streams:
        if view.state in ("stale", "gone") and not view.frozen:
            silent.append(view.info.topic)
        else:
            live.append(_stream(view, snapshot.freshness_window_s))
    return {
        "streams": live,
        "silent": silent,
        "unsupported": [
            {"topic": u.topic, "skill": u.skill, "type": u.type, "reason": u.reason}
            for u in snapshot.unsupported
        ],
        "discovering": snapshot.discovering,
    }


# --- parts of results ---------------------------------------------------------------------------


def _stream(view: StreamView, freshness_window_s: float) -> StreamResult:
    return {
        "topic": view.info.topic,
        "skill": view.info.skill,
        "kind": view.info.kind,
        "type": view.info.type,
        "state": view.state,
        "frozen": view.frozen,
        "last_update_age_s": _age(view),
        "rate_hz": round(view.rate_hz, 2),
        "publishers": view.publishers,
        "received": view.received,
        "dropped": view.dropped,
        "lost": view.lost,
        "undecodable": view.undecodable,
        "last_error": view.last_error,
        "note": note(view, freshness_window_s),
    }


def _by_importance(grouped: dict[str, list[StreamView]]) -> list[Skill]:
    """Sort skills: fresh before old, what sees something before what sees nothing."""
    skills = [Skill.of(name, views) for name, views in sorted(grouped.items())]
    return sorted(skills, key=lambda skill: (BEST_FIRST.index(skill.state), not skill.sees))


def _find_skill(snapshot: Snapshot, skill: str) -> Skill:
    views = [v for v in snapshot.streams if v.info.skill == skill and v.info.kind != "camera"]
    if not views:
        reasons = [f"{u.topic}: {u.reason}" for u in snapshot.unsupported if u.skill == skill]
        raise unknown_skill(snapshot, f"Not readable: {'; '.join(reasons)}." if reasons else "")
    return Skill.of(skill, views)


def unknown_skill(snapshot: Snapshot, hint: str = "") -> UnknownSkillError:
    """Return the error for a skill that nothing is known of; names those that are."""
    return UnknownSkillError(f"There is no such skill. {_known(snapshot)} {hint}".rstrip())


def _known(snapshot: Snapshot, kind: Kind | None = None) -> str:
    views = [v for v in snapshot.streams if v.info.kind != "camera"]
    names = sorted({v.info.skill for v in views if kind is None or v.info.kind == kind})
    what = "Skills with an overlay" if kind else "Known skills"
    if names:
        return f"{what}: {', '.join(names[:50])}{', …' if len(names) > 50 else ''}."
    if snapshot.discovering:
        return f"{what}: none yet, still discovering; ask again in a moment."
    return f"{what}: none, nothing is being published."


def _age(view: StreamView) -> float | None:
    """Return it in whole milliseconds, in a third of the time that `round` takes."""
    return None if view.age_s is None else int(view.age_s * 1000 + 0.5) / 1000


def _stamp(observation: Observation | None) -> StampResult | None:
    if observation is None or observation.stamp is None:
        return None
    return {"sec": observation.stamp.sec, "nanosec": observation.stamp.nanosec}


def _skill(skill: Skill, limits: RenderLimits) -> SkillResult:
    return {
        "state": skill.state,
        "outputs": _outputs(skill, limits),
        "detections": _aged(skill.detections, limits),
        "overlay_ref": _aged(skill.overlay, limits),
    }


def _outputs(skill: Skill, limits: RenderLimits) -> dict[str, OutputResult]:
    return {
        view.info.output: _aged(view, limits)
        for view in skill.outputs
        if view.observation is not None
    }


def _aged(view: StreamView | None, limits: RenderLimits) -> Any:
    """Return a stream's newest message and its age, as the result of its kind; None without one."""
    if view is None or view.observation is None:
        return None
    data = tell(view.observation, view.info, limits).data
    return {**data, "age_s": _age(view), "stale": view.state != "fresh"}


def _camera(view: StreamView) -> CameraResult:
    alive = view.state == "fresh"
    return {"topic": view.info.topic, "alive": alive, "age_s": _age(view)}


def _detections_json(observation: Observation, topic: str) -> list[DetectionResult]:
    ref: RefResult = {"topic": topic, "stamp": _stamp(observation)}
    return [
        {
            "label": seen.label,
            "score": None if seen.score is None else _float32(seen.score),
            "box": None
            if seen.box is None
            else {
                "x": _float32(seen.box.x),
                "y": _float32(seen.box.y),
                "width": _float32(seen.box.width),
                "height": _float32(seen.box.height),
            },
            "point": None
            if seen.point is None
            else {"x": seen.point.x, "y": seen.point.y, "z": seen.point.z},
            "track_id": seen.track_id,
            "mask_ref": ref if seen.has_mask else None,
        }
        for seen in observation.detections
    ]


def _float32(value: float) -> float:
    """Return the short decimal that a float32 stands for: 0.91, not 0.9100000262260437."""
    return float(f"{value:.7g}")
