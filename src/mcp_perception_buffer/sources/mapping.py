"""The setting `streams`: how topics of other people's detectors become skills."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from mcp_perception_buffer.decoding.fields import TABLE
from mcp_perception_buffer.decoding.labels import Labels, load_labels
from mcp_perception_buffer.decoding.text import one_line
from mcp_perception_buffer.model import Kind, Reading, Unmapped
from mcp_perception_buffer.sources.topics import Rule, TopicFilter, auto_name

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable
    from pathlib import Path

    from mcp_perception_buffer.buffer import Buffer
    from mcp_perception_buffer.decoding.decoder import Decoder
    from mcp_perception_buffer.model import StreamInfo

# How the types of detectors are called, to tell of those that cannot be read yet.
_LOOKS_LIKE = re.compile("Detection|BoundingBox|Objects|Yolo|Classification")

# Topics that look like detections and are not watched; more are not told of.
MAX_UNMAPPED = 50


def _absolute(topic: object) -> object:
    if isinstance(topic, str) and not topic.startswith("/"):
        raise ValueError("a topic begins with '/', for example /vision/")
    return topic


Topic = Annotated[str, BeforeValidator(_absolute)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_/]{0,127}$")]


class StreamRule(BaseModel):
    """One line: a topic, `*` standing for any one segment of it, and what it is."""

    model_config = ConfigDict(extra="forbid")

    topic: Topic
    skill: Name | None = None
    output: Name | None = None
    kind: Kind | None = None
    labels: Labels | None = None
    fields: dict[str, str] = {}

    @field_validator("fields")
    @classmethod
    def _known(cls, fields: dict[str, str]) -> dict[str, str]:
        if unknown := fields.keys() - TABLE.keys():
            raise ValueError(f"{min(unknown)} is unknown; a message has {', '.join(TABLE)}")
        return fields


Streams = Literal["auto"] | list[StreamRule | Literal["auto"]]


def topic_filter(
    streams: Streams,
    labels: Labels | None,
    packaged: Path,
    *,
    prefixes: list[str],
    camera_topic: str | None,
    include_hidden: bool,
    kind_of: Callable[[str], Kind | None],
) -> TopicFilter:
    """Return the filter that the settings describe.

    Args:
        streams: the rules, `"auto"` alone or among them.
        labels: of streams that say none of their own.
        packaged: folder of the packaged sets of labels.
        prefixes: see `TopicFilter`, as all that follows.
        camera_topic: as well.
        include_hidden: as well.
        kind_of: as well.

    Raises:
        ConfigError: labels cannot be read.
    """
    listed = [streams] if isinstance(streams, str) else streams
    common = Reading(load_labels(labels, packaged))
    rules = []
    for rule in listed:
        if isinstance(rule, StreamRule):
            own = load_labels(rule.labels, packaged) if rule.labels is not None else common.labels
            reading = Reading(own, rule.fields) if rule.labels or rule.fields else common
            rules.append(Rule(rule.topic, rule.skill, rule.output, rule.kind, reading))
    return TopicFilter(
        prefixes,
        camera_topic=camera_topic,
        include_hidden=include_hidden,
        rules=rules,
        auto="auto" in listed,
        reading=common,
        kind_of=kind_of,
    )


def suggest(topic: str, type_name: str, why_unreadable: str | None) -> Unmapped | None:
    """Say how a topic that is not wanted could be read; None if nothing speaks for it.

    Args:
        topic: its name.
        type_name: its type.
        why_unreadable: what keeps its type from being read as detections; None if nothing does.
    """
    advice = f"add to streams: - {{topic: {topic}, skill: {auto_name(topic)}}}"
    if why_unreadable is None:
        return Unmapped(topic, type_name, f"{advice}; or serve streams=auto")
    if _LOOKS_LIKE.search(type_name.rpartition("/")[2]):
        return Unmapped(topic, type_name, f"{why_unreadable}; then {advice}")
    return None


def find_unmapped(others: Iterable[tuple[str, str]], decoder: Decoder) -> tuple[Unmapped, ...]:
    """Return which topics that are not wanted somebody may miss, the first `MAX_UNMAPPED`.

    Args:
        others: their names and types.
        decoder: says which of them could be read.
    """
    suggested = (
        suggest(
            one_line(topic, 256),
            one_line(type_name, 256),
            decoder.why_unreadable("detections", type_name),
        )
        for topic, type_name in others
    )
    return tuple(islice(filter(None, suggested), MAX_UNMAPPED))


def why_taken(info: StreamInfo, buffer: Buffer, published: Container[str]) -> str | None:
    """Say which other topic a skill's output is read from already; None if there is none.

    An answer shows one topic an output, so that of two which are called the same one would hide
    the other, now this and now that. Cameras have no output.

    Args:
        info: what a topic carries.
        buffer: knows from where each output comes.
        published: topics that are read and have not gone.
    """
    holder = buffer.topic_of(*info.key)
    if info.kind == "camera" or holder in (None, info.topic) or holder not in published:
        return None
    return (
        f"{info.output} of the skill {info.skill} come from {holder} already; give this topic a"
        f" skill of its own: add to streams: - {{topic: {info.topic}, skill: NAME}}"
    )
