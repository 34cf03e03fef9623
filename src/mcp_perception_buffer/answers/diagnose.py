"""Why is there no data? Snapshot and surroundings -> one line a finding, with what to do; pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mcp_perception_buffer.answers.budget import DATA_FACTOR, Answer, fit, size
from mcp_perception_buffer.answers.findings import Finding, stream_findings
from mcp_perception_buffer.answers.skills import unknown_skill
from mcp_perception_buffer.decoding.text import one_line
from mcp_perception_buffer.decoding.text import topic as clean_topic
from mcp_perception_buffer.model import WORST_FIRST

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mcp_perception_buffer.model import Snapshot, Status

MAX_CHECKS = 20  # one screen; what does not fit is the least important
MAX_TEXT_CHARS = 400  # of a finding, and of its advice
# Beyond this, signatures come close to the five minutes that receivers usually tolerate.
MAX_SKEW_S = 60.0


@dataclass(frozen=True, slots=True)
class BrainStatus:
    """How the receiver of events is doing, as far as the last attempts tell."""

    reachable: bool | None  # None: not known
    reason: str | None = None  # why it is not reachable
    clock_skew_s: float | None = None  # its clock minus ours; None: not known


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all streams depend on together."""

    network: Mapping[str, str] = field(default_factory=dict)  # such as {"domain id": "0"}
    brain: BrainStatus | None = None  # None: no events are sent


def explain(
    snapshot: Snapshot,
    skill: str,
    surroundings: Surroundings,
    wall_clock_s: float,
    max_chars: int = 4000,
) -> Answer:
    """Say what keeps a skill's data from arriving, or that nothing does.

    Args:
        snapshot: as of now.
        skill: its name, as `list_streams` has it.
        surroundings: what its topics depend on besides their publishers.
        wall_clock_s: Unix time of the snapshot.
        max_chars: of the text; the data have `DATA_FACTOR` times as many bytes.

    Raises:
        UnknownSkillError: nothing was ever published under that name.
    """
    own = list(_topics(snapshot, skill, wall_clock_s))
    if not own:
        where = ", ".join(f"{name} {value}" for name, value in surroundings.network.items())
        unmapped = "; ".join(f"{u.topic}: {u.advice}" for u in snapshot.unmapped[:3])
        raise unknown_skill(
            snapshot,
            skill,
            "Nothing was ever published under that name: check the name, that its node runs, and"
            f" that it runs in the same domain ({where or 'ROS_DOMAIN_ID'})."
            + (f" Published, but not watched: {unmapped}" if unmapped else ""),
        )
    found = [*own, *_camera(snapshot, wall_clock_s), *_around(snapshot, surroundings)]
    found.sort(key=lambda line: WORST_FIRST.index(line[1].status))
    subject, worst = found[0]
    well = worst.status == "ok"
    checks = [
        {
            "subject": clean_topic(name),
            "status": said.status,
            "finding": one_line(said.text, MAX_TEXT_CHARS),
            "advice": said.advice and one_line(said.advice, MAX_TEXT_CHARS),
        }
        for name, said in found[:MAX_CHECKS]
    ]
    summary = "All is well: data arrives." if well else f"{subject}: {worst.text}"
    return _within(skill, one_line(summary, MAX_TEXT_CHARS), checks, len(found), max_chars)


def _within(
    skill: str, summary: str, checks: list[dict[str, Any]], total: int, max_chars: int
) -> Answer:
    head = f"{skill}: {summary}"
    lines = [_line(check) for check in checks]
    as_text = fit((len(line) + 1 for line in lines), max_chars - len(head) - 40)
    as_data = fit((size(check) + 1 for check in checks), DATA_FACTOR * max_chars - 1000)
    kept = min(as_text, as_data)
    left_out = total - kept
    tail = f"\n{left_out} more, none of them worse." if left_out else ""
    data = {"skill": skill, "summary": summary, "checks": checks[:kept], "left_out": left_out}
    return Answer("\n".join((head, *lines[:kept])) + tail, data)


def _line(check: dict[str, Any]) -> str:
    line = f"- {check['status']}: {check['subject']}: {check['finding']}"
    told = check["advice"] and check["status"] != "ok"
    return f"{line}; {check['advice']}" if told else line


def _topics(snapshot: Snapshot, skill: str, wall_clock_s: float) -> Iterator[tuple[str, Finding]]:
    read = set()
    for view in snapshot.streams:
        if view.info.skill == skill and view.info.kind != "camera":
            read.add(view.info.topic)
            for finding in stream_findings(view, snapshot.freshness_window_s, wall_clock_s):
                yield view.info.topic, finding
    for entry in snapshot.unsupported:
        if entry.skill == skill:
            status: Status = "warning" if entry.topic in read else "problem"
            advice = "once that is mended it is picked up within seconds, without a restart"
            yield entry.topic, Finding(status, f"{entry.type} is not read: {entry.reason}", advice)


def _camera(snapshot: Snapshot, wall_clock_s: float) -> Iterator[tuple[str, Finding]]:
    for view in snapshot.streams:
        if view.info.kind == "camera":
            for finding in stream_findings(view, snapshot.freshness_window_s, wall_clock_s):
                # The skill's data may come from elsewhere, so it is not itself the answer.
                status = max(finding.status, "warning", key=WORST_FIRST.index)
                yield view.info.topic, finding._replace(status=status)


def _around(snapshot: Snapshot, surroundings: Surroundings) -> Iterator[tuple[str, Finding]]:
    if snapshot.discovering:
        yield "network", Finding("warning", "still discovering", "ask again in a few seconds")
    if surroundings.network:
        where = ", ".join(f"{name} {value}" for name, value in surroundings.network.items())
        yield "network", Finding("ok", where, "publishers must have the same")
    brain = surroundings.brain
    if brain is None:
        return
    if brain.reachable is False:
        yield (
            "brain",
            Finding(
                "warning",
                f"events are not delivered: {brain.reason or 'no answer'}",
                "start the brain, and check RVC_CALLBACK_URL and RVC_EVENT_SECRET on both sides",
            ),
        )
    elif brain.reachable:
        yield "brain", Finding("ok", "takes events")
    else:
        yield "brain", Finding("ok", "no failure is known")
    if brain.clock_skew_s is not None and abs(brain.clock_skew_s) > MAX_SKEW_S:
        side = "ahead of" if brain.clock_skew_s > 0 else "behind"
        yield (
            "brain",
            Finding(
                "warning",
                f"its clock is {abs(brain.clock_skew_s):.0f} s {side} ours",
                "synchronise the clocks (chrony), or signed events will be refused",
            ),
        )
