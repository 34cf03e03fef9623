"""The answers of `list_streams` and `get_watch_state`: page by page; pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mcp_perception_buffer.answers.budget import DATA_FACTOR, Answer, fit, size
from mcp_perception_buffer.answers.findings import note
from mcp_perception_buffer.answers.scene import age
from mcp_perception_buffer.answers.skills import unknown_robot
from mcp_perception_buffer.answers.wording import ago
from mcp_perception_buffer.decoding.text import one_line
from mcp_perception_buffer.decoding.text import topic as clean_topic
from mcp_perception_buffer.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mcp_perception_buffer.answers.wording import RenderLimits
    from mcp_perception_buffer.model import Snapshot, State, StreamView
    from mcp_perception_buffer.watcher import WatchViews

DEFAULT_LIMIT = 50
MAX_NOTE_CHARS = 300
SHORT_CHARS = 40  # where answers are set to be very small


def streams(
    snapshot: Snapshot,
    limits: RenderLimits,
    *,
    limit: int = DEFAULT_LIMIT,
    state: State | None = None,
    cursor: str | None = None,
    robot: str | None = None,
) -> Answer:
    """List what is live and how fresh, what is silent, and what cannot be read.

    Args:
        snapshot: as of now.
        limits: of the text; the data have `DATA_FACTOR` times as many bytes.
        limit: the most streams in one answer.
        state: only such streams; without it, all but the silent ones.
        cursor: of the page before.
        robot: only its streams.

    Raises:
        ArgumentError: the cursor is none of ours.
        UnknownSkillError: there is no such robot.
    """
    mine = [v for v in snapshot.streams if robot is None or v.info.robot == robot]
    if robot is not None and not mine:
        raise unknown_robot(snapshot)
    silent = [v for v in mine if v.state in ("stale", "gone") and not v.frozen]
    listed = [v for v in mine if (v.state == state if state else v not in silent)]
    data: dict[str, Any] = {
        "streams": [],
        "states": dict(Counter(view.state for view in mine)),
        "next_cursor": None,
        "silent": [clean_topic(view.info.topic) for view in silent],
        "unsupported": [
            {
                "topic": clean_topic(u.topic),
                "skill": clean_topic(u.skill),
                "type": clean_topic(u.type),
                "reason": one_line(u.reason, 500),
            }
            for u in snapshot.unsupported
        ],
        "unmapped": [
            {
                "topic": clean_topic(u.topic),
                "type": clean_topic(u.type),
                "advice": one_line(u.advice, 500),
            }
            for u in snapshot.unmapped
        ],
        "left_out": {},
        "discovering": snapshot.discovering,
    }
    room = DATA_FACTOR * limits.max_chars - 500
    for key in ("unsupported", "unmapped", "silent"):  # at most a sixth of the room each
        kept = fit((size(one) + 1 for one in data[key]), room // 6)
        if rest := len(data[key]) - kept:
            data["left_out"][key] = rest
        data[key] = data[key][:kept]
    room -= size(data)
    start = _start(cursor, len(listed))
    found = [_stream(v, snapshot.freshness_window_s) for v in listed[start : start + limit]]
    lines = [_stream_line(one) for one in found]
    head, tail = _around(data, len(mine), limits.max_chars // 3)
    chars = limits.max_chars - len(head) - len(tail) - 80
    number = _both(found, lines, room, chars, shortened=("note", "last_error"))
    data["streams"] = found[:number]
    if start + number < len(listed):
        data["next_cursor"] = str(start + number)
        tail = f"\n{len(listed) - start - number} more: cursor={start + number}{tail}"
    return Answer("\n".join((head, *lines[:number])) + tail, data)


def _start(cursor: str | None, length: int) -> int:
    if not cursor:
        return 0
    if not (cursor.isdecimal() and len(cursor) < 10):
        raise ArgumentError(
            "cursor: not one that an earlier answer gave; leave it out to begin anew"
        )
    return min(int(cursor), length)


def _both(
    found: list[Any], lines: list[str], room: int, chars: int, shortened: Sequence[str]
) -> int:
    """Return how many fit as data and as text alike, at least one, or no page would follow.

    Args:
        found: the data of each.
        lines: the text of each.
        room: for the data, in bytes.
        chars: for the text.
        shortened: keys of a first one that would not fit.
    """
    as_data = fit((size(one) + 1 for one in found), room)
    as_text = fit((len(line) + 1 for line in lines), chars)
    if found and not as_data:
        cut = {key: found[0][key] and one_line(found[0][key], SHORT_CHARS) for key in shortened}
        found[0] = {**found[0], **cut}
    if lines and not as_text:
        lines[0] = one_line(lines[0], max(chars, SHORT_CHARS))
    return max(min(as_data, as_text), min(1, len(found)))


def _stream(view: StreamView, freshness_window_s: float) -> dict[str, Any]:
    said = note(view, freshness_window_s)
    data = {
        "topic": clean_topic(view.info.topic),
        "skill": view.info.skill,
        "kind": view.info.kind,
        "type": clean_topic(view.info.type),
        "state": view.state,
        "frozen": view.frozen,
        "last_update_age_s": age(view),
        "rate_hz": round(view.rate_hz, 2),
        "publishers": view.publishers,
        "received": view.received,
        "dropped": view.dropped,
        "lost": view.lost,
        "undecodable": view.undecodable,
        "last_error": view.last_error,
        "note": one_line(said, MAX_NOTE_CHARS) if said else None,
    }
    return {**data, "robot": view.info.robot} if view.info.robot else data


def _stream_line(one: dict[str, Any]) -> str:
    last = one["last_update_age_s"]
    parts = [one["kind"], f"{one['state']}{', FROZEN' if one['frozen'] else ''}"]
    parts.append("nothing received yet" if last is None and not one["received"] else "")
    parts.append(ago(last) if last is not None else "")
    parts.append(f"{one['rate_hz']:.1f} Hz" if one["rate_hz"] else "")
    parts += [f"{one[key]} {key}" for key in ("dropped", "lost", "undecodable") if one[key]]
    text = f"- {one['topic']}: {', '.join(part for part in parts if part)}"
    return f"{text}; {one['note']}" if one["note"] else text


def _around(data: dict[str, Any], total: int, chars: int) -> tuple[str, str]:
    """Return what stands before the streams and behind them, the latter within `chars`."""
    states = ", ".join(f"{number} {state}" for state, number in data["states"].items())
    head = f"{total} stream{'' if total == 1 else 's'}" + (f": {states}." if states else ".")
    if data["discovering"]:
        head += " Still discovering: there may be more."
    tail = ""
    if data["silent"]:
        tail += f"\nSilent: {', '.join(data['silent'][:10])}"
        tail += ", …" if len(data["silent"]) > 10 or data["left_out"].get("silent") else ""
        tail += '; list_streams(state="stale") or (state="gone") tells more.'
    for key, title, said in (
        ("unsupported", "Not readable", "reason"),
        ("unmapped", "Not watched", "advice"),
    ):
        for one in data[key][:5]:
            tail += f"\n{title}: {one['topic']} ({one['type']}): {one[said][:200]}"
        if more := len(data[key][5:]) + data["left_out"].get(key, 0):
            tail += f"\n{title}: {more} more."
    return head, tail[:chars]


# --- watches ------------------------------------------------------------------------------------

_TRUE_FIRST = ("true", "invalid", "unknown", "false")


def watch_state(
    views: WatchViews,
    limits: RenderLimits,
    *,
    limit: int = DEFAULT_LIMIT,
    cursor: str | None = None,
) -> Answer:
    """Tell every watch, true ones first.

    Raises:
        ArgumentError: the cursor is none of ours.
    """
    ordered = sorted(views.watches, key=lambda watch: _TRUE_FIRST.index(watch.state))
    most = min(MAX_NOTE_CHARS, limits.max_chars // 5)
    data: dict[str, Any] = {
        "watches": [],
        "states": dict(Counter(watch.state for watch in ordered)),
        "next_cursor": None,
        "outbox_depth": views.outbox_depth,
        "lost": views.lost,
        "problems": [one_line(problem, most) for problem in views.problems],
    }
    start = _start(cursor, len(ordered))
    found = [_watch(asdict(watch)) for watch in ordered[start : start + limit]]
    lines = [_watch_line(one) for one in found]
    states = ", ".join(f"{number} {state}" for state, number in data["states"].items())
    head = f"{len(ordered)} watches" + (f": {states}." if states else ": nothing is watched.")
    head += "".join(f"\nPROBLEM: {problem}" for problem in data["problems"])
    if views.outbox_depth or views.lost:
        head += f"\n{views.outbox_depth} events wait, {views.lost} were lost."
    room = DATA_FACTOR * limits.max_chars - size(data) - 40
    chars = limits.max_chars - len(head) - 60
    number = _both(found, lines, room, chars, shortened=("condition", "predicate", "reason"))
    data["watches"] = found[:number]
    tail = ""
    if start + number < len(ordered):
        data["next_cursor"] = str(start + number)
        tail = f"\n{len(ordered) - start - number} more: cursor={start + number}"
    return Answer("\n".join((head, *lines[:number])) + tail, data)


def _watch(one: dict[str, Any]) -> dict[str, Any]:
    """Keep a single watch far below what an answer holds."""
    for key, most in (
        *(("condition", 200), ("predicate", 400), ("skill", 128)),
        *(("reason", 200), ("delivery_reason", 200)),
    ):
        one[key] = one_line(one[key], most) if one[key] is not None else None
    return one


def _watch_line(one: dict[str, Any]) -> str:
    parts: Iterable[str] = (
        one["state"].upper() if one["state"] == "true" else one["state"],
        f"({one['reason']})" if one["reason"] else "",
        f"for {one['age_s']:.1f} s" if one["age_s"] is not None else "",
        f"last event #{one['last_seq']}" if one["last_seq"] else "",
        one["delivery"] or "",
        f"{one['pending']} wait" if one["pending"] else "",
        f"{one['lost']} lost" if one["lost"] else "",
    )
    what = one["condition"] or one["predicate"]
    said = " ".join(part for part in parts if part)
    return f'- {one["skill"]} ({one["skill_id"][:64]}): "{what}" is {said}'
