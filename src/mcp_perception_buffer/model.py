"""What the service knows, as immutable values: no ROS, no asyncio, no I/O.

`decode` makes observations, `buffer` keeps them and hands out snapshots, `render` reads those.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

if TYPE_CHECKING:
    from collections.abc import Mapping

# A semantic output: text, number, bool, list or object, as JSON knows them; finite numbers only.
JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]


# What a stream carries, which decides how its messages are read. Of images only the header matters.
Kind = Literal["detections", "semantic", "overlay", "camera"]
IMAGES: tuple[Kind, ...] = ("overlay", "camera")

# How far a stream's newest value can be trusted, best first. Stale: a publisher is there, but
# silent past the freshness window, or frozen; gone: no publisher; unreadable: messages came, and
# none could be read; never: nothing received yet.
State = Literal["fresh", "stale", "gone", "unreadable", "never"]
BEST_FIRST: tuple[State, ...] = get_args(State)

# What one line of a diagnosis says, worst first.
Status = Literal["problem", "warning", "ok"]
WORST_FIRST: tuple[Status, ...] = get_args(Status)


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
    """A position in metres; all finite, never the origin itself."""

    x: float
    y: float
    z: float


class Size(NamedTuple):
    """Extents in metres along the axes of an object; all positive."""

    x: float
    y: float
    z: float


class Quaternion(NamedTuple):
    """An orientation; all finite, not all zero."""

    x: float
    y: float
    z: float
    w: float


class Hypothesis(NamedTuple):
    """What else a detection may be."""

    label: str
    score: float | None


# What a detection is called for which its detector gave neither a name nor a class.
NO_LABEL = "(no label)"


class Detection(NamedTuple):
    """One detected object. What is no measurement is None; of a mask only the existence is kept.

    `frame_id` is that of `point`, `size` and `orientation`, where it is not the message's.
    """

    label: str
    score: float | None = None  # 0 to 1
    box: Box | None = None
    point: Point | None = None
    track_id: str | None = None
    has_mask: bool = False
    frame_id: str | None = None
    size: Size | None = None
    orientation: Quaternion | None = None
    keypoints: int | None = None  # how many
    others: tuple[Hypothesis, ...] = ()  # by falling score, the leading one left out


class ImageSize(NamedTuple):
    """Of an image, in pixels."""

    width: int
    height: int


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """One decoded message.

    `value` is set for semantic streams, `detections` for detections, `image` for images that say
    their size.
    """

    stamp: Stamp | None = None
    frame_id: str | None = None
    value: JsonValue = None
    detections: tuple[Detection, ...] = ()  # by falling score
    odd_scores: int = 0  # detections whose score is given, but outside of its scale
    image: ImageSize | None = None
    # Its words, by the limits they were made within; see `wording.tell`.
    told: dict[object, object] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """How a stream's messages are read beyond what their type says: the same object is the same."""

    labels: Mapping[str, str] = field(default_factory=dict)  # class id to name
    fields: Mapping[str, str] = field(default_factory=dict)  # row of `decoding.fields` to a path


PLAIN = Reading()


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """One subscribed topic; `output` is its part after the skill. Cameras alone have neither."""

    topic: str
    skill: str
    output: str
    kind: Kind
    type: str
    robot: str = ""  # whose it is, where several are told apart
    reading: Reading = PLAIN

    @property
    def key(self) -> tuple[str, str]:
        """Skill and output: what watches and answers know it by, whatever its topic."""
        return self.skill, self.output


class Link(NamedTuple):
    """How a subscription stands with its publishers, as the source last saw it."""

    matched: int  # publishers that the middleware has connected to it
    qos: str  # asked for, such as "reliable, volatile"
    mismatch: str | None  # the QoS policy that kept a publisher from matching


class StreamView(NamedTuple):
    """A stream at the moment of a snapshot. `age_s` is None until something was received.

    `frozen`: messages arrive, but all with the same header stamp; such a stream is stale.
    `silent_s` counts from the last message of any kind, or from the beginning of the stream.
    """

    info: StreamInfo
    state: State
    publishers: int
    observation: Observation | None
    age_s: float | None
    rate_hz: float
    received: int
    dropped: int  # here, before the buffer
    undecodable: int
    last_error: str | None
    frozen: bool = False
    silent_s: float = 0.0
    usual_hz: float | None = None  # None: too few messages yet
    lost: int = 0  # on the way here, by gaps in the publishers' sequence numbers
    link: Link | None = None  # None: not known


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A topic under a watched prefix that cannot be read, and why."""

    topic: str
    type: str
    reason: str
    skill: str = ""


@dataclass(frozen=True, slots=True)
class Unmapped:
    """A topic outside of what is watched that looks like detections, and how it would be read."""

    topic: str
    type: str
    advice: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything known at one moment; safe to keep, nothing in it changes."""

    freshness_window_s: float
    discovering: bool
    streams: tuple[StreamView, ...]  # by topic, the camera included
    unsupported: tuple[Unsupported, ...]
    unmapped: tuple[Unmapped, ...] = ()
