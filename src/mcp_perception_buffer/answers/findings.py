"""What one stream's numbers mean, worst first, and what to do about it; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mcp_perception_buffer.answers.wording import unreadable
from mcp_perception_buffer.model import WORST_FIRST, Status

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mcp_perception_buffer.model import StreamView

# Losses below this share of all messages are nobody's trouble.
LOSS_SHARE = 0.01
# With fewer messages there is no rate to speak of.
FEW = 5
# A measured rate below this share of the usual one is worth a word.
SLOW_SHARE = 0.5
# Header stamps further than this from the wall clock come from another clock.
STAMP_OFFSET_S = 60.0

ANOTHER_USER = (
    "if it should be publishing, see whether it hangs (ros2 topic hz); if it runs as another user"
    " or in another container, its shared memory cannot be opened from here: start this service"
    " with FASTDDS_BUILTIN_TRANSPORTS=UDPv4"
)


class Finding(NamedTuple):
    """One thing to know, and what to do if it is not as it should be."""

    status: Status
    text: str
    advice: str | None = None


def note(view: StreamView, freshness_window_s: float) -> str | None:
    """Return the worst of what is wrong with a stream in one sentence, None if nothing is."""
    found = sorted(_trouble(view, freshness_window_s), key=_worst_first)
    return f"{found[0].text}; {found[0].advice}" if found else None


def stream_findings(
    view: StreamView, freshness_window_s: float, wall_clock_s: float
) -> list[Finding]:
    """Return all that is to be said about a stream, worst first; at least one line.

    Args:
        view: the stream.
        freshness_window_s: silence up to this long is none.
        wall_clock_s: Unix time of the snapshot, to judge header stamps by.
    """
    found = [*_trouble(view, freshness_window_s), *_stamps(view, wall_clock_s)]
    if not found and view.age_s is None:
        found.append(Finding("warning", "nothing received yet", "ask again in a few seconds"))
    elif not any(finding.status == "problem" for finding in found):
        found.append(Finding("ok", _well(view)))
    return sorted(found, key=_worst_first)


def _well(view: StreamView) -> str:
    parts = [f"{view.rate_hz:.1f} Hz" if view.received >= FEW else f"{view.received} messages"]
    if view.usual_hz:
        parts.append(f"usually {view.usual_hz:.1f} Hz")
    parts.append(f"last {view.age_s or 0.0:.1f} s ago")
    if view.link:
        parts.append(view.link.qos)
    return ", ".join(parts)


def _worst_first(finding: Finding) -> int:
    return WORST_FIRST.index(finding.status)


def _trouble(view: StreamView, window_s: float) -> Iterator[Finding]:
    yield from _connection(view, window_s)
    if view.undecodable:
        some = f"{view.undecodable} of {view.received} messages undecodable, the last one:"
        yield Finding(
            "problem" if view.observation is None else "warning",
            f"{some} {view.last_error}" if view.observation else unreadable(view),
            f"send {view.info.type} as it is defined here: the same package version on both sides",
        )
    if view.frozen:
        yield Finding(
            "problem",
            "FROZEN: messages arrive, but with the same header stamp again and again",
            "an old picture is being repeated: restart the camera or its driver; in simulation,"
            " see whether /clock runs",
        )
    total = view.received + view.dropped + view.lost
    if view.dropped > LOSS_SHARE * total:
        yield Finding(
            "warning",
            f"{view.dropped} of {total} messages dropped here under load",
            "publish more slowly, or give this machine more CPU",
        )
    if view.lost > LOSS_SHARE * total:
        yield Finding(
            "warning",
            f"{view.lost} of {total} messages lost on the way",
            "publish reliably; for large images set FASTDDS_BUILTIN_TRANSPORTS=LARGE_DATA on both"
            " sides",
        )
    if view.state == "fresh" and view.rate_hz < SLOW_SHARE * (view.usual_hz or 0.0):
        yield Finding(
            "warning",
            f"slow: {view.rate_hz:.1f} Hz, usually {view.usual_hz:.1f} Hz",
            "see what keeps its node busy",
        )


def _connection(view: StreamView, window_s: float) -> Iterator[Finding]:
    if view.publishers == 0:
        ever = f"since {view.silent_s:.0f} s" if view.received else "and there never was one"
        yield Finding(
            "problem",
            f"no publisher, {ever}",
            "start the node that publishes it, in the same domain (ros2 topic info --verbose)",
        )
        return
    link = view.link
    unmatched = view.publishers - link.matched if link else 0
    if link and unmatched > 0:
        of = f"{unmatched} of {view.publishers} publishers"
        status: Status = "warning" if link.matched else "problem"
        if link.mismatch:
            yield Finding(
                status,
                f"QoS mismatch: {of} cannot be read, incompatible {link.mismatch}",
                f"this service asks for {link.qos}: offer at least that",
            )
        else:
            yield Finding(
                status,
                f"{of} found, but not connected",
                "if this lasts, discovery gets through and data does not: open the UDP ports from"
                " 7400 on between the two machines",
            )
    if view.silent_s > window_s and (link is None or link.matched):
        yield Finding(
            "problem",
            f"publisher present, no messages for {view.silent_s:.0f} s",
            ANOTHER_USER
            if view.received == 0
            else "it may speak on a change only, or its node was killed just now; else see whether"
            " that hangs (ros2 topic hz)",
        )


def _stamps(view: StreamView, wall_clock_s: float) -> Iterator[Finding]:
    stamp = view.observation.stamp if view.observation else None
    if stamp is None or view.frozen:
        return
    if not any(stamp):
        yield Finding(
            "warning",
            "header stamps are zero",
            "set them; with use_sim_time, start what publishes /clock",
        )
        return
    offset_s = stamp.sec + stamp.nanosec / 1e9 - (wall_clock_s - (view.age_s or 0.0))
    if abs(offset_s) > STAMP_OFFSET_S:
        yield Finding(
            "warning",
            f"header stamps are {abs(offset_s):.0f} s {'ahead of' if offset_s > 0 else 'behind'}"
            " this machine's clock",
            "normal for simulated or recorded time; else synchronise the clocks (chrony)",
        )
