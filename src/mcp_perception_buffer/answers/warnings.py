"""What contradicts itself in a snapshot, so that nobody acts on it unwarned; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_perception_buffer.answers.budget import shown
from mcp_perception_buffer.decoding.text import topic as clean_topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mcp_perception_buffer.answers.skills import Skill, World
    from mcp_perception_buffer.model import Stamp, StreamView

# An overlay may be a picture behind: one this much apart is of another moment.
OVERLAY_APART_S = 0.5
# Stamps this far from the wall clock are no late pipeline but another clock.
OTHER_CLOCK_S = 86_400.0
MAX_WARNINGS = 6


def warnings(world: World, window_s: float, wall_clock_s: float) -> list[str]:
    """Return what to know before acting, one sentence each, at most `MAX_WARNINGS`.

    Args:
        world: skills and cameras as of now.
        window_s: the freshness window.
        wall_clock_s: Unix time of the snapshot, to judge header stamps by.
    """
    found = [
        *_silent_cameras(world),
        *_late(world.skills, window_s, wall_clock_s),
        *_other_overlays(world.skills),
        *_odd_scores(world.skills),
    ]
    if more := len(found) - MAX_WARNINGS:
        return found if more < 0 else [*found[:MAX_WARNINGS], f"{more} more warnings."]
    return found


def _silent_cameras(world: World) -> Iterator[str]:
    for camera in world.cameras:
        if camera.age_s is None or camera.state == "fresh":
            continue
        fresh = [
            skill.name
            for skill in world.skills
            if skill.robot == camera.info.robot and skill.state == "fresh"
        ]
        if fresh:
            how = (
                "repeats an old image" if camera.frozen else f"is silent since {camera.age_s:.1f} s"
            )
            yield (
                f"the camera {clean_topic(camera.info.topic)} {how}, while {shown(fresh)}"
                f" {'claims' if len(fresh) == 1 else 'claim'} to be fresh: what is seen may be old."
            )


def _late(skills: Sequence[Skill], window_s: float, wall_clock_s: float) -> Iterator[str]:
    late: dict[str, float] = {}
    other: dict[str, float] = {}
    for skill in skills:
        for view in skill.values:
            behind_s = _behind_s(view, wall_clock_s)
            if behind_s is not None and behind_s > window_s:
                into = other if behind_s > OTHER_CLOCK_S else late
                into[skill.name] = max(behind_s, into.get(skill.name, 0.0))
    if late:
        yield (
            f"header stamps are up to {max(late.values()):.1f} s older than their arrival in"
            f" {shown(late)}: a late pipeline, or clocks that differ."
        )
    if other:
        yield f"header stamps are of another clock (simulated or recorded time) in {shown(other)}."


def _behind_s(view: StreamView, wall_clock_s: float) -> float | None:
    stamp = view.observation.stamp if view.observation else None
    if stamp is None or not any(stamp) or view.state != "fresh" or view.age_s is None:
        return None
    return wall_clock_s - view.age_s - _seconds(stamp)


def _seconds(stamp: Stamp) -> float:
    return stamp.sec + stamp.nanosec / 1e9


def _other_overlays(skills: Sequence[Skill]) -> Iterator[str]:
    for skill in skills:
        apart_s = overlay_apart_s(skill)
        if apart_s is not None and apart_s > OVERLAY_APART_S:
            yield f"{skill.name}: its overlay is {apart_s:.1f} s apart from its detections."


def overlay_apart_s(skill: Skill) -> float | None:
    """Return how far the stamps of overlay and detections lie apart; None if that is not known."""
    stamps = [
        view.observation.stamp
        for view in (skill.overlay, skill.detections)
        if view and view.observation and view.observation.stamp and any(view.observation.stamp)
    ]
    return abs(_seconds(stamps[0]) - _seconds(stamps[1])) if len(stamps) == 2 else None


def _odd_scores(skills: Sequence[Skill]) -> Iterator[str]:
    for skill in skills:
        seen = skill.detections.observation if skill.detections else None
        if seen is not None and seen.odd_scores:
            yield (
                f"{skill.name}: {seen.odd_scores} of {len(seen.detections)} scores are outside of"
                " their scale, and left out."
            )
