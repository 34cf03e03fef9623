"""A snapshot's streams grouped by skill, robot and camera; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mcp_perception_buffer.answers.budget import shown
from mcp_perception_buffer.answers.places import image_of
from mcp_perception_buffer.errors import UnknownSkillError
from mcp_perception_buffer.model import BEST_FIRST, State

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from mcp_perception_buffer.model import ImageSize, Kind, Snapshot, StreamView

MAX_KNOWN = 50  # names in an error


class Skill(NamedTuple):
    """A skill's streams, and what they are worth together."""

    name: str
    robot: str
    state: State
    sees: bool  # whether anything but emptiness is among its values
    detections: StreamView | None
    outputs: Sequence[StreamView]  # the semantic ones, by topic
    overlay: StreamView | None
    image: ImageSize | None = None  # that its boxes refer to, where that is known

    @classmethod
    def of(cls, name: str, views: Iterable[StreamView], cameras: Sequence[StreamView]) -> Skill:
        """Give it the best state among its values; a fresh picture of nothing is no value."""
        detections = overlay = None
        outputs: list[StreamView] = []
        ranks: list[int] = []
        sees, robot = False, ""
        for view in views:
            kind, robot = view.info.kind, view.info.robot
            if kind == "overlay":
                overlay = view
                continue
            if kind == "detections":
                detections = view
            else:
                outputs.append(view)
            ranks.append(BEST_FIRST.index(view.state))
            seen = view.observation
            sees = sees or (seen is not None and bool(seen.detections or seen.value))
        state = BEST_FIRST[min(ranks)] if ranks else overlay.state if overlay else "never"
        image = None
        if detections is not None and (cameras or overlay):
            image = image_of(detections, [*cameras, overlay] if overlay else cameras)
        return cls(name, robot, state, sees, detections, outputs, overlay, image)

    @property
    def values(self) -> Sequence[StreamView]:
        """What it says, detections first."""
        return [self.detections, *self.outputs] if self.detections else self.outputs

    @property
    def frozen(self) -> bool:
        """Whether one of its streams is."""
        return any(view.frozen for view in (*self.values, self.overlay) if view)


class World(NamedTuple):
    """All skills, the most important first, and all cameras."""

    skills: list[Skill]
    cameras: list[StreamView]


def world(
    snapshot: Snapshot, wanted: Collection[str] | None = None, robot: str | None = None
) -> World:
    """Group a snapshot; fresh skills come before old ones, what sees something before the rest.

    Args:
        snapshot: as of now.
        wanted: names of skills; None means all.
        robot: its name; None means all.

    Raises:
        UnknownSkillError: one of these is not known; the text names those that are.
    """
    grouped: dict[str, list[StreamView]] = {}
    cameras: list[StreamView] = []
    for view in snapshot.streams:
        if robot is not None and view.info.robot != robot:
            continue
        if view.info.kind == "camera":
            cameras.append(view)
        elif wanted is None or view.info.skill in wanted:
            grouped.setdefault(view.info.skill, []).append(view)
    if robot is not None and not grouped and not cameras:
        raise unknown_robot(snapshot)
    for name in wanted or ():
        if name not in grouped:
            raise unknown_skill(snapshot, name)
    skills = [Skill.of(name, views, cameras) for name, views in sorted(grouped.items())]
    skills.sort(key=lambda skill: (BEST_FIRST.index(skill.state), not skill.sees))
    return World(skills, cameras)


def find_skill(snapshot: Snapshot, name: str) -> Skill:
    """Return one skill.

    Raises:
        UnknownSkillError: it is not known; the text names those that are.
    """
    return world(snapshot, (name,)).skills[0]


def unknown_skill(snapshot: Snapshot, name: str, hint: str = "") -> UnknownSkillError:
    """Return the error for a skill that nothing is known of; names those that are."""
    reasons = [f"{u.topic}: {u.reason}" for u in snapshot.unsupported if u.skill == name]
    readable = f"Not readable: {'; '.join(reasons)}." if reasons else ""
    said = " ".join(part for part in (known(snapshot), readable, hint) if part)
    return UnknownSkillError(f"There is no such skill. {said}")


def unknown_robot(snapshot: Snapshot) -> UnknownSkillError:
    """Return the error for a robot that nothing is known of; names those that are."""
    names = sorted({view.info.robot for view in snapshot.streams} - {""})
    told = f"Known robots: {shown(names, MAX_KNOWN)}." if names else "No robot is told apart here."
    return UnknownSkillError(f"There is no such robot. {told}")


def known(snapshot: Snapshot, kind: Kind | None = None) -> str:
    """Say which skills there are, those of one kind if it is given."""
    views = [v for v in snapshot.streams if v.info.kind != "camera"]
    names = sorted({v.info.skill for v in views if kind is None or v.info.kind == kind})
    what = "Skills with an overlay" if kind else "Known skills"
    if names:
        return f"{what}: {shown(names, MAX_KNOWN)}."
    if snapshot.discovering:
        return f"{what}: none yet, still discovering; ask again in a moment."
    return f"{what}: none, nothing is being published."
