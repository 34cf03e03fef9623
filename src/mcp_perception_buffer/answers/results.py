"""The shapes of the tools' answers, which are also their output schemas."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict  # pydantic needs it below Python 3.12

from mcp_perception_buffer.answers.places import Range, Side  # noqa: TC001
from mcp_perception_buffer.memory.changes import What  # noqa: TC001
from mcp_perception_buffer.model import Kind, State, Status


class StampResult(TypedDict):
    """A ROS header stamp, exactly as published."""

    sec: int
    nanosec: int


class RefResult(TypedDict):
    """Where a ROS consumer finds the pixels."""

    topic: str
    stamp: StampResult | None


Age = Annotated[float, Field(description="Seconds since this was received.", ge=0)]
Stale = Annotated[bool, Field(description="True: too old or no longer published, do not act.")]
Frozen = Annotated[bool, Field(description="True: messages come, all with one old stamp.")]
Counts = Annotated[dict[str, int], Field(description="By label, the most frequent first.")]
SkillState = Annotated[
    State,
    Field(
        description="fresh; stale: silent; gone: no publisher; unreadable: messages come, none is"
        " readable; never: nothing received yet."
    ),
]


class OverlayResult(TypedDict):
    """Where the annotated image is, and how old."""

    topic: str
    stamp: StampResult | None
    age_s: Age
    stale: Stale
    frozen: NotRequired[Frozen]
    matches: NotRequired[Annotated[bool | None, Field(description="Stamped as the detections.")]]


class OutputResult(TypedDict):
    """A semantic output: text, number, bool, list or object."""

    value: Annotated[Any, Field(description="Of a long one the beginning of its JSON text.")]
    more_chars: NotRequired[Annotated[int, Field(description="So much of the value is left out.")]]
    age_s: Age
    stale: Stale
    frozen: NotRequired[Frozen]
    stamp: StampResult | None


class BoxResult(TypedDict):
    """Top-left corner and size in pixels."""

    x: float
    y: float
    width: float
    height: float


class PointResult(TypedDict):
    """Metres in the frame `frame_id`."""

    x: float
    y: float
    z: float


class ImageResult(TypedDict):
    """Size of the image that boxes refer to, pixels."""

    width: int
    height: int


class BriefResult(TypedDict):
    """One detected object; what is not known is left out."""

    label: str
    score: float | None
    box: NotRequired[BoxResult]
    point: NotRequired[PointResult]
    frame_id: NotRequired[Annotated[str, Field(description="Of the point, if not the skill's.")]]
    side: NotRequired[Side]
    distance_m: NotRequired[float]
    ahead: NotRequired[Annotated[bool, Field(description="False: it is behind.")]]
    range: NotRequired[Annotated[Range, Field(description="near: up to 1 m; far: from 4 m on.")]]
    track_id: NotRequired[str]


class DetectionsResult(TypedDict):
    """A skill's newest detections; count 0 means it looked and saw nothing."""

    count: Annotated[int, Field(description="As published.")]
    counts: Counts
    best: Annotated[list[BriefResult], Field(description="By falling score.")]
    more: Annotated[dict[str, int], Field(description="Left out of `best`, by label.")]
    folded: Annotated[int, Field(description="Near-duplicates that are not counted.")]
    uncertain: Annotated[int, Field(description="Below the least score, and not counted.")]
    frame_id: str | None
    image: ImageResult | None
    age_s: Age
    stale: Stale
    frozen: NotRequired[Frozen]
    stamp: StampResult | None
    mask_ref: RefResult | None


class SkillResult(TypedDict):
    """All that one skill says."""

    state: SkillState
    robot: NotRequired[str]
    outputs: dict[str, OutputResult]
    more_outputs: NotRequired[Annotated[int, Field(description="Left out; see get_latest.")]]
    detections: DetectionsResult | None
    overlay_ref: OverlayResult | None
    problems: NotRequired[Annotated[list[str], Field(description="What could not be read.")]]


class CameraResult(TypedDict):
    """Whether camera images still arrive."""

    topic: str
    robot: NotRequired[str]
    alive: bool
    age_s: Age | None
    frozen: NotRequired[Frozen]


class MoreResult(TypedDict):
    """What did not fit, and how to ask for it."""

    count: int
    names: Annotated[list[str], Field(description="The first of them.")]
    ask: str


class SceneResult(TypedDict):
    """The answer of `what_do_you_see`."""

    generated_at: str
    cursor: Annotated[str, Field(description="Give it to what_changed later.")]
    freshness_window_s: float
    discovering: Annotated[bool, Field(description="True just after start-up: more may appear.")]
    warnings: Annotated[list[str], Field(description="Contradictions: read before you act.")]
    skill_count: Annotated[int, Field(description="Of all, those under `more` included.")]
    skills: Annotated[dict[str, SkillResult], Field(description="The most important first.")]
    more: MoreResult | None
    camera: CameraResult | None
    cameras: Annotated[list[CameraResult], Field(description="Further ones.")]


class HypothesisResult(TypedDict):
    """What else a detection may be."""

    label: str
    score: float | None


class QuaternionResult(TypedDict):
    """An orientation in the frame of the point."""

    x: float
    y: float
    z: float
    w: float


class DetectionResult(TypedDict):
    """One detected object; what was not measured is null."""

    label: str
    score: Annotated[float | None, Field(description="0 to 1.")]
    box: BoxResult | None
    point: PointResult | None
    frame_id: Annotated[str | None, Field(description="Of point, size and orientation.")]
    side: Side | None
    distance_m: float | None
    size: Annotated[PointResult | None, Field(description="Extents in metres.")]
    orientation: QuaternionResult | None
    keypoints: Annotated[int | None, Field(description="How many.")]
    track_id: str | None
    hypotheses: Annotated[list[HypothesisResult], Field(description="Other ones, best first.")]
    mask_ref: RefResult | None


class LeftOutResult(TypedDict):
    """What did not fit or was not asked for, and how to ask for it."""

    count: int
    counts: Counts
    ask: str


class LatestResult(TypedDict):
    """The answer of `get_latest`."""

    skill: str
    state: SkillState
    cursor: str
    topic: str | None
    stamp: StampResult | None
    frame_id: str | None
    image: ImageResult | None
    age_s: Age | None
    stale: Stale
    frozen: NotRequired[Frozen]
    warnings: list[str]
    count: Annotated[int, Field(description="As published; 0: looked, and saw nothing.")]
    counts: Counts
    detections: Annotated[list[DetectionResult], Field(description="By falling score.")]
    more: LeftOutResult | None
    outputs: dict[str, OutputResult]
    more_outputs: list[str]
    overlay_ref: OverlayResult | None
    problems: Annotated[list[str], Field(description="What could not be read, and why.")]


class StreamResult(TypedDict):
    """One stream."""

    topic: str
    skill: str
    robot: NotRequired[str]
    kind: Annotated[Kind, Field(description="overlay and camera: images, never sent.")]
    type: str
    state: SkillState
    frozen: Frozen
    last_update_age_s: Age | None
    rate_hz: float
    publishers: int
    received: int
    dropped: Annotated[int, Field(description="Discarded here, because too many came at once.")]
    lost: Annotated[int, Field(description="Published, but they never reached this service.")]
    undecodable: int
    last_error: str | None
    note: Annotated[str | None, Field(description="What is wrong with it and what to do.")]


class UnsupportedResult(TypedDict):
    """A topic that cannot be read, and why."""

    topic: str
    skill: str
    type: str
    reason: str


class UnmappedResult(TypedDict):
    """A topic that looks like detections and is not watched, and how it would be."""

    topic: str
    type: str
    advice: str


class StreamsResult(TypedDict):
    """The answer of `list_streams`."""

    streams: list[StreamResult]
    states: Annotated[dict[str, int], Field(description="How many streams are in each state.")]
    next_cursor: Annotated[str | None, Field(description="Give it as `cursor` for the next ones.")]
    silent: Annotated[list[str], Field(description="Topics with nothing new within the window.")]
    unsupported: list[UnsupportedResult]
    unmapped: list[UnmappedResult]
    left_out: Annotated[dict[str, int], Field(description="Of the three lists, for want of room.")]
    discovering: Annotated[
        bool, Field(description="True just after start-up: the lists may still be incomplete.")
    ]


class ChangeResult(TypedDict):
    """One thing that is not as it was."""

    at: str
    age_s: Age
    skill: str
    robot: NotRequired[str]
    what: What
    name: Annotated[str, Field(description="The label, track, output or topic.")]
    before: Annotated[str | None, Field(description="Null: it came.")]
    after: Annotated[str | None, Field(description="Null: it left.")]


class ChangesResult(TypedDict):
    """The answer of `what_changed` and `wait_for_change`."""

    changes: Annotated[list[ChangeResult], Field(description="Oldest first.")]
    cursor: Annotated[str, Field(description="Give it as `since` next time.")]
    incomplete: Annotated[str | None, Field(description="Why more may have changed than is told.")]
    left_out: Annotated[int, Field(description="Older ones that did not fit.")]


class CheckResult(TypedDict):
    """One line of a diagnosis."""

    subject: Annotated[str, Field(description="A topic, or: network, brain.")]
    status: Annotated[Status, Field(description="ok; warning: usable; problem: this is why.")]
    finding: str
    advice: Annotated[str | None, Field(description="What to do about it.")]


class DiagnosisResult(TypedDict):
    """The answer of `diagnose`."""

    skill: str
    summary: Annotated[str, Field(description="The first problem, or that all is well.")]
    checks: Annotated[list[CheckResult], Field(description="Problems first.")]
    left_out: int


class WatchResult(TypedDict):
    """One watched condition."""

    skill: str
    skill_id: str
    condition: str
    predicate: Annotated[str, Field(description="The watch's definition, as it was given.")]
    state: Literal["true", "false", "unknown", "invalid"]
    reason: Annotated[str | None, Field(description="Why it is unknown or invalid.")]
    age_s: Annotated[float | None, Field(description="How long it has been in this state.")]
    last_seq: Annotated[int | None, Field(description="Number of its last event.")]
    delivery: Annotated[str | None, Field(description="What became of that event.")]
    delivery_reason: str | None
    pending: Annotated[int, Field(description="Its events that still wait for delivery.")]
    lost: Annotated[int, Field(description="Its events that ended undelivered.")]


class WatchStateResult(TypedDict):
    """The answer of `get_watch_state`."""

    watches: Annotated[list[WatchResult], Field(description="True ones first.")]
    states: Annotated[dict[str, int], Field(description="How many watches are in each state.")]
    next_cursor: Annotated[str | None, Field(description="Give it as `cursor` for the next ones.")]
    outbox_depth: int
    lost: int
    problems: Annotated[list[str], Field(description="Why tasks or disk fail at present.")]
