"""Which topics are wanted, and what each of them carries; pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mcp_perception_buffer.decoding.text import topic as clean_topic
from mcp_perception_buffer.model import PLAIN, Kind, Reading, StreamInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Last parts of names under which detectors publish; what is before them names the detector.
USUAL = ("detections", "spatial_detections", "objects", "detections_output")
# What of a name is left that was nothing but hidden characters.
NO_NAME = "(no name)"
_KINDS: dict[str, Kind] = {"detections": "detections", "overlay": "overlay"}


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the setting `streams`: topics that match a pattern, and what they are.

    A segment `*` matches any one segment, and names the robot. What is None is found out.
    """

    topic: str
    skill: str | None = None
    output: str | None = None
    kind: Kind | None = None
    reading: Reading = PLAIN


class TopicFilter:
    """Sorts topics by rules, by `{prefix}{skill}/detections|overlay|{output}`, and by type."""

    def __init__(
        self,
        prefixes: Sequence[str] = ("/vision/",),
        *,
        camera_topic: str | None = None,
        include_hidden: bool = False,
        rules: Sequence[Rule] = (),
        auto: bool = False,
        reading: Reading = PLAIN,
        kind_of: Callable[[str], Kind | None] = lambda type_name: None,
    ) -> None:
        """Watch what the rules name, whole path segments below each prefix, and the camera.

        Args:
            prefixes: such as `"/vision/"`; a trailing `**` is allowed and means the same; a
                segment `*` names the robot.
            camera_topic: one image topic outside of the skills; it may have segments `*`.
            include_hidden: also take names with a segment that begins with `_`.
            rules: come before everything else, in their order.
            auto: also take every topic, wherever it is, whose type is one of detections.
            reading: of streams that no rule names.
            kind_of: what a topic of a type may carry; asked where no rule says it.
        """
        segments = (prefix.removesuffix("**").strip("/") for prefix in prefixes)
        self._prefixes = [f"/{path}/" if path else "/" for path in segments]
        self._below = [
            re.compile(_pattern(prefix) + "(?P<below>(?s:.+))") for prefix in self._prefixes
        ]
        self.camera_topic = camera_topic
        self._camera = re.compile(_pattern(camera_topic)) if camera_topic else None
        self._include_hidden = include_hidden
        self._rules = [(re.compile(_pattern(rule.topic)), rule) for rule in rules]
        self.auto = auto
        self._reading = reading
        self._kind_of = kind_of

    def classify(self, topic: str, type_name: str) -> StreamInfo | None:
        """Return what a topic is to us, or None if it is not wanted.

        Skills below the first prefix go by their own name, those below another one by their path,
        so that equal names stay two skills and no name depends on what else is running. Where a
        pattern names the robot, its name stands before the skill's. What is derived from a topic
        is fit to be shown, whatever characters a bag or another DDS allows; topic and type stay as
        they are, for the source.
        """
        info = self._find(topic, type_name)
        if info is None:
            return None
        skill, output, robot = map(_clean, (info.skill, info.output, info.robot))
        return replace(info, skill=skill, output=output, robot=robot)

    def _find(self, topic: str, type_name: str) -> StreamInfo | None:
        hidden = "/_" in topic and not self._include_hidden
        for pattern, rule in self._rules:
            match = pattern.fullmatch(topic)
            if match and not (hidden and match.groups()):
                return self._by_rule(topic, type_name, rule, "/".join(match.groups()))
        if self._camera and (match := self._camera.fullmatch(topic)):
            return StreamInfo(topic, "", "", "camera", type_name, "/".join(match.groups()))
        if hidden:
            return None
        for index, below in enumerate(self._below):
            if match := below.fullmatch(topic):
                *named, rest = match.groups()
                skill, _, output = rest.partition("/")
                if not skill or not output:
                    continue
                return self._by_prefix(topic, type_name, index, "/".join(named), skill, output)
        if self.auto and self._kind_of(type_name) == "detections":
            name = auto_name(topic)
            # `/r1/yolo/detections` has a robot, `/yolo/tracking` none.
            robot = name.partition("/")[0]
            robot = robot if topic.strip("/").removeprefix(f"{robot}/").count("/") else ""
            return StreamInfo(
                topic, name, "detections", "detections", type_name, robot, self._reading
            )
        return None

    def _by_rule(self, topic: str, type_name: str, rule: Rule, robot: str) -> StreamInfo:
        kind = rule.kind or self._kind_of(type_name) or "detections"
        if kind == "camera":
            return StreamInfo(topic, "", "", kind, type_name, robot)
        name = rule.skill or auto_name(topic)
        skill = f"{robot}/{rule.skill}" if robot and rule.skill else name
        output = kind if kind != "semantic" else rule.output or topic.rpartition("/")[2]
        return StreamInfo(topic, skill, output, kind, type_name, robot, rule.reading)

    def _by_prefix(
        self, topic: str, type_name: str, index: int, robot: str, skill: str, output: str
    ) -> StreamInfo | None:
        if output.startswith("overlay/"):
            return None  # the same picture as image_transport packs it
        kind = _KINDS.get(output, "semantic")
        if index > 0:
            path = topic[: -len(output) - len(skill) - 2].lstrip("/")
            skill = f"{path}/{skill}"
        elif robot:
            skill = f"{robot}/{skill}"
        return StreamInfo(topic, skill, output, kind, type_name, robot, self._reading)


def _clean(name: str) -> str:
    return name and (clean_topic(name) or NO_NAME)


def auto_name(topic: str) -> str:
    """Return the skill that a detector's topic is called after where nothing names it."""
    namespace, _, last = topic.strip("/").rpartition("/")
    return namespace if namespace and last in USUAL else topic.strip("/")


def _pattern(topic: str) -> str:
    return "/".join("([^/]+)" if part == "*" else re.escape(part) for part in topic.split("/"))
