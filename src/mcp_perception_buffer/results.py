"""The shapes of the tools' answers, which are also their output schemas."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict  # pydantic needs it below Python 3.12

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
SkillState = Annotated[State, Field(description="fresh; stale: silent; gone: no publisher; never.")]


class OverlayResult(TypedDict):
    """Where the annotated image is, and how old."""

    topic: str
    stamp: StampResult | None
    age_s: Age
    stale: Stale


class OutputResult(TypedDict):
    """A semantic output: text, number, bool, list or object."""

    value: Any
    age_s: Age
    stale: Stale
    stamp: StampResult | None


class DetectionsResult(TypedDict):
    """A line about a skill's newest detections; count 0 means it looked and saw nothing."""

    count: int
    summary: Annotated[str, Field(description="label score [x,y widthxheight in px], best first")]
    age_s: Age
    stale: Stale
    stamp: StampResult | None
    mask_ref: RefResult | None


class SkillResult(TypedDict):
    """All that one skill says."""

    state: SkillState
    outputs: dict[str, OutputResult]
    detections: DetectionsResult | None
    overlay_ref: OverlayResult | None


class CameraResult(TypedDict):
    """Whether camera images still arrive."""

    topic: str
    alive: bool
    age_s: Age | None


class SceneResult(TypedDict):
    """The answer of `what_do_you_see`."""

    text: Annotated[str, Field(description="The scene in words, ready for a prompt.")]
    generated_at: str
    freshness_window_s: float
    skills: dict[str, SkillResult]
    camera: CameraResult | None


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


class DetectionResult(TypedDict):
    """One detected object."""

    label: str
    score: float | None
    box: BoxResult | None
    point: PointResult | None
    track_id: str | None
    mask_ref: RefResult | None


class LatestResult(TypedDict):
    """The answer of `get_latest`."""

    skill: str
    state: SkillState
    topic: str | None
    stamp: StampResult | None
    frame_id: str | None
    age_s: Age | None
    stale: Stale
    detections: Annotated[list[DetectionResult], Field(description="By falling score.")]
    outputs: dict[str, OutputResult]
    overlay_ref: OverlayResult | None


class StreamResult(TypedDict):
    """One live stream."""

    topic: str
    skill: str
    kind: Annotated[Kind, Field(description="overlay and camera: images, never sent.")]
    type: str
    state: SkillState
    frozen: Annotated[
        bool, Field(description="True: messages arrive, but all repeat one old header stamp.")
    ]
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


class StreamsResult(TypedDict):
    """The answer of `list_streams`."""

    streams: list[StreamResult]
    silent: Annotated[list[str], Field(description="Topics with nothing new within the window.")]
    unsupported: list[UnsupportedResult]
    discovering: Annotated[
        bool, Field(description="True just after start-up: the lists may still be incomplete.")
    ]


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

    watches: list[WatchResult]
    outbox_depth: int
    lost: int
    problems: Annotated[list[str], Field(description="Why tasks or disk fail at present.")]
