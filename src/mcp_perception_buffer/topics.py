"""Which topics are wanted, and what each of them carries; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_perception_buffer.model import Kind, StreamInfo

if TYPE_CHECKING:
    from collections.abc import Sequence


class TopicFilter:
    """Sorts topics by `{prefix}{skill}/detections|overlay|{output}`, and knows the camera's."""

    def __init__(
        self,
        prefixes: Sequence[str] = ("/vision/",),
        *,
        camera_topic: str | None = None,
        include_hidden: bool = False,
    ) -> None:
        """Watch whole path segments below each prefix.

        Args:
            prefixes: such as `"/vision/"`; a trailing `**` is allowed and means the same.
            camera_topic: one image topic outside of the skills.
            include_hidden: also take names with a segment that begins with `_`.
        """
        segments = (prefix.removesuffix("**").strip("/") for prefix in prefixes)
        self._prefixes = [f"/{path}/" if path else "/" for path in segments]
        self.camera_topic = camera_topic
        self._include_hidden = include_hidden

    def classify(self, topic: str, type_name: str) -> StreamInfo | None:
        """Return what a topic is to us, or None if it is not wanted.

        Skills below the first prefix go by their own name, those below another one by their path,
        so that equal names stay two skills and no name depends on what else is running.
        """
        if topic == self.camera_topic:
            return StreamInfo(topic, "", "", "camera", type_name)
        for index, prefix in enumerate(self._prefixes):
            skill, _, output = topic.removeprefix(prefix).partition("/")
            if not topic.startswith(prefix) or not skill or not output:
                continue
            if not self._include_hidden and "/_" in topic:
                return None
            if output.startswith("overlay/"):
                return None  # the same picture as image_transport packs it
            kind = _KINDS.get(output, "semantic")
            name = skill if index == 0 else f"{prefix.lstrip('/') or '/'}{skill}"
            return StreamInfo(topic, name, output, kind, type_name)
        return None

    def topic_of(self, skill: str, output: str) -> str:
        """Return the topic that `classify` takes for this output of this skill."""
        if "/" in skill:  # its path
            return f"/{skill.lstrip('/')}/{output}"
        return f"{self._prefixes[0]}{skill}/{output}"


_KINDS: dict[str, Kind] = {"detections": "detections", "overlay": "overlay"}
