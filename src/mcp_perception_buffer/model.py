"""What the service knows, as immutable values: no ROS, no asyncio, no I/O.

`decode` makes observations, `buffer` keeps them and hands out snapshots, `render` reads those.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

# A semantic output: text, number, bool, list or object, as JSON knows them; finite numbers only.
JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]


class Kind(StrEnum):
    """What a stream carries, which decides how its messages are read."""

    DETECTIONS = "detections"
    SEMANTIC = "semantic"
    OVERLAY = "overlay"
    CAMERA = "camera"

    @property
    def is_image(self) -> bool:
        """Whether only the header of its messages matters here."""
        return self in (Kind.OVERLAY, Kind.CAMERA)


class State(StrEnum):
    """How far a stream's newest value can be trusted, best first."""

    FRESH = "fresh"
    STALE = "stale"  # a publisher is there, but silent past the freshness window
    GONE = "gone"  # no publisher
    NEVER = "never"  # subscribed, nothing received yet


class Stamp(NamedTuple):
    """The time in a message's header, exactly as sent (`builtin_interfaces/Time`)."""

    sec: int
    nanosec: int


class Box(NamedTuple):
    """Top-left corner and size in pixels; all finite."""

    x: float
    y: float
    width: float
    height: float


class Point(NamedTuple):
    """A position in metres in the message's `frame_id`; all finite."""

    x: float
    y: float
    z: float


class Detection(NamedTuple):
    """One detected object. Of its mask only the existence is kept, never a pixel."""

    label: str
    score: float | None
    box: Box | None
    point: Point | None
    track_id: str | None
    has_mask: bool


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """One decoded message. `value` is set for semantic streams, `detections` for detections."""

    stamp: Stamp | None = None
    frame_id: str | None = None
    value: JsonValue = None
    detections: tuple[Detection, ...] = ()  # by falling score


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """One subscribed topic. `output` is the topic's part after the skill."""

    topic: str
    skill: str
    output: str
    kind: Kind
    type: str


@dataclass(frozen=True, slots=True)
class StreamView:
    """A stream at the moment of a snapshot. `age_s` is None until something was received."""

    info: StreamInfo
    state: State
    publishers: int
    observation: Observation | None
    age_s: float | None
    rate_hz: float
    received: int
    dropped: int
    undecodable: int
    last_error: str | None


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A topic under a watched prefix that cannot be read, and why."""

    topic: str
    type: str
    reason: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything known at one moment; safe to keep, nothing in it changes."""

    freshness_window_s: float
    discovering: bool
    streams: tuple[StreamView, ...]  # by topic, the camera included
    unsupported: tuple[Unsupported, ...]
