"""The answer of `what_changed` and `wait_for_change`; pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from mcp_perception_buffer.answers.budget import DATA_FACTOR, Answer, fit, size
from mcp_perception_buffer.answers.wording import ago
from mcp_perception_buffer.decoding.text import quoted
from mcp_perception_buffer.decoding.text import topic as clean_topic

if TYPE_CHECKING:
    from mcp_perception_buffer.answers.wording import RenderLimits
    from mcp_perception_buffer.memory.changes import Change, Since


def changed(since: Since, limits: RenderLimits, now_ns: int, wall_clock_s: float) -> Answer:
    """Tell the changes, oldest first; where they do not all fit, the newest.

    Args:
        since: what changed.
        limits: of the text; the data have `DATA_FACTOR` times as many bytes.
        now_ns: on the clock of the changes.
        wall_clock_s: the same moment as Unix time.
    """
    newest = since.changes[::-1]
    told = [_data(change, now_ns, wall_clock_s) for change in newest]
    lines = [_line(change, one) for change, one in zip(newest, told, strict=True)]
    room = DATA_FACTOR * limits.max_chars - 400
    number = min(
        fit((size(one) + 1 for one in told), room),
        fit((len(line) + 1 for line in lines), limits.max_chars - 300),
    )
    left_out = len(told) - number
    head = "Nothing changed."
    if told:
        head = f"{len(told)} changes, oldest first:" if len(told) > 1 else "1 change:"
    if since.incomplete:
        head = f"INCOMPLETE: {since.incomplete}; ask what_do_you_see for all that is.\n{head}"
    if left_out:
        head += f"\n{left_out} older ones do not fit; ask what_do_you_see for all that is."
    data = {
        "changes": told[:number][::-1],
        "cursor": since.cursor,
        "incomplete": since.incomplete,
        "left_out": left_out,
    }
    tail = f"Next: what_changed(since={since.cursor})"
    return Answer("\n".join((head, *lines[:number][::-1], tail)), data)


def _data(change: Change, now_ns: int, wall_clock_s: float) -> dict[str, Any]:
    age_s = max(0, now_ns - change.at_ns) / 1e9
    at = datetime.fromtimestamp(wall_clock_s - age_s, UTC).isoformat(timespec="milliseconds")
    data: dict[str, Any] = {
        "at": at.replace("+00:00", "Z"),
        "age_s": round(age_s, 3),
        "skill": change.skill,
        "what": change.what,
        "name": clean_topic(change.name),
        "before": change.before,
        "after": change.after,
    }
    return {**data, "robot": change.robot} if change.robot else data


def _line(change: Change, one: dict[str, Any]) -> str:
    return f"- {ago(one['age_s'])}, {change.skill or 'camera'}: {_words(change)}"


def _words(change: Change) -> str:
    before, after = change.before, change.after
    match change.what:
        case "label":
            name = quoted(change.name)
            if before is None:
                return f"{name} appeared ({after})"
            return f"{name} left" if after is None else f"{name} {before} -> {after}"
        case "track":
            track = f"track {quoted(change.name)}"
            if before is None:
                return f"{track} ({quoted(after or '')}) came"
            if after is None:
                return f"{track} ({quoted(before)}) left"
            return f"{track} is {quoted(after)}, was {quoted(before)}"
        case "output":
            return f"{change.name}: {before or 'nothing'} -> {after or 'nothing'}"
        case _:
            topic = clean_topic(change.name)
            if before is None:
                return f"{topic} came ({after})"
            return f"{topic} left" if after is None else f"{topic} {before} -> {after.upper()}"
