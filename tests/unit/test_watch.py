"""Definitions, truth and edges; time is a number."""

import contextlib
import json
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_perception_buffer.model import Detection, Observation
from mcp_perception_buffer.watch import (
    MAX_WATCH_CHARS,
    Edge,
    InvalidWatchError,
    Memory,
    Watch,
    canonical,
    parse,
)

settings.register_profile("repeatable", deadline=None, database=None, derandomize=True)
settings.load_profile("repeatable")

WINDOW_S = 5.0
TRIGGERED = {"output": "triggered", "equals": True}


def ns(seconds: float) -> int:
    return round(seconds * 1e9)


def said(value: Any) -> Observation:
    return Observation(value=value)


def saw(*found: tuple[str, float | None]) -> Observation:
    def float32(score: float) -> float:
        return float(struct.unpack("f", struct.pack("f", score))[0])

    return Observation(
        detections=tuple(
            Detection(label, None if score is None else float32(score), None, None, None, False)
            for label, score in found
        )
    )


def watch(definition: dict[str, Any] | None = None, memory: Memory | None = None) -> Watch:
    text = json.dumps({**TRIGGERED, **(definition or {})})
    return Watch(parse(text), window_s=WINDOW_S, memory=memory)


def edges(watch: Watch, *steps: tuple[float, Any]) -> list[float]:
    """The times of those steps that were events; a value of `...` only lets time pass."""
    fired = []
    for at_s, value in steps:
        edge = watch.advance(ns(at_s)) if value is ... else watch.observe(said(value), ns(at_s))
        if edge is not None:
            fired.append(at_s)
    return fired


# --- definitions --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "JSON"),
        ("{", "JSON"),
        ("[" * 3000, "JSON"),
        ("1" * 5000, "longer than"),
        ('{"output": "x", "gt": NaN}', "NaN"),
        ('{"output": "x", "gt": 1e999}', "gt"),
        ("[]", "object"),
        ("true", "object"),
        ("{}", "needs an output"),
        ('{"output": "x"}', "needs an output"),
        ('{"equals": true}', "needs an output"),
        ('{"output": "x", "equal": true}', "equal: unknown key"),
        ('{"output": "x", "equals": null}', "equals: must not be null"),
        ('{"output": 3, "equals": true}', "output"),
        ('{"output": "", "equals": true}', "output"),
        ('{"output": "detections", "equals": true}', "no output"),
        ('{"output": "overlay", "equals": true}', "no output"),
        ('{"output": "x", "gt": "3"}', "gt"),
        ('{"output": "x", "gt": true}', "gt"),
        ('{"output": "x", "gt": [1]}', "gt"),
        ('{"output": "x", "contains": ""}', "contains"),
        ('{"output": "x", "equals": 1, "for_s": -1}', "for_s"),
        ('{"output": "x", "equals": 1, "for_s": true}', "for_s"),
        ('{"output": "x", "equals": 1, "for_s": "2"}', "for_s"),
        ('{"output": "x", "equals": 1, "clear_for_s": 1e9}', "clear_for_s"),
        ('{"output": "x", "equals": 1, "cooldown_s": null}', "cooldown_s"),
        ('{"output": "x", "equals": 1, "initial": "now"}', "initial"),
        ('{"output": "x", "equals": 1, "detections": {}}', "not both"),
        ('{"detections": {"label": "cup"}, "gt": 1}', "not both"),
        ('{"detections": "cup"}', "detections"),
        ('{"detections": {"label": ""}}', "detections.label"),
        ('{"detections": {"label": null}}', "detections.label"),
        ('{"detections": {"min_count": 0}}', "detections.min_count"),
        ('{"detections": {"min_count": 1.5}}', "detections.min_count"),
        ('{"detections": {"min_count": true}}', "detections.min_count"),
        ('{"detections": {"min_score": 2}}', "detections.min_score"),
        ('{"detections": {"colour": "red"}}', "detections.colour: unknown key"),
    ],
)
def test_an_unusable_definition_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidWatchError) as caught:
        parse(text)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda b: b.decode("utf-8", "replace")))
def test_no_text_raises_anything_but_a_reason(text: str) -> None:
    with contextlib.suppress(InvalidWatchError):
        parse(text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
keys = st.sampled_from(
    ["output", "detections", "equals", "gt", "lte", "contains", "for_s", "initial", "label", "x"]
)


@given(st.dictionaries(keys, json_values), json_values)
def test_any_definition_is_refused_or_can_judge_any_value(data: Any, value: Any) -> None:
    try:
        definition = parse(json.dumps(data))
    except InvalidWatchError:
        return
    assert definition.truth(said(value)) in (True, False, None)


def test_the_same_definition_is_told_from_another_whatever_its_spacing() -> None:
    assert canonical('{"output":"x","equals":1}') == canonical('{ "equals": 1, "output": "x" }')
    assert canonical('{"output":"x","equals":1}') != canonical('{"output":"x","equals":true}')
    assert canonical("{") == "{"
    assert len(canonical("[" * 10 * MAX_WATCH_CHARS)) <= MAX_WATCH_CHARS + 1


# --- truth --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("test", "value", "truth"),
    [
        ({"equals": True}, True, True),
        ({"equals": True}, False, False),
        ({"equals": True}, 1, False),
        ({"equals": True}, "yes", False),
        ({"equals": 1}, True, False),
        ({"equals": 1}, 1.0, True),
        ({"equals": "cup"}, "cup", True),
        ({"equals": "true"}, True, True),
        ({"equals": "3.5"}, 3.5, True),
        ({"equals": ["cup", 1]}, ["cup", 1], True),
        ({"equals": ["cup", 1]}, ["cup", True], False),
        ({"equals": {"a": 1}}, {"a": 1}, True),
        ({"equals": {"a": 1}}, {"a": True}, False),
        ({"equals": {"a": 1}}, "a", False),
        ({"equals": True}, None, None),
        ({"not_equals": "idle"}, "busy", True),
        ({"not_equals": "idle"}, "idle", False),
        ({"not_equals": True}, 1, True),
        ({"not_equals": "idle"}, None, None),
        ({"gt": 3}, 3, False),
        ({"gt": 3}, 3.01, True),
        ({"gte": 3}, 3, True),
        ({"lt": 3}, 3, False),
        ({"lt": 3}, -1, True),
        ({"lte": 3}, 3, True),
        ({"gt": 3}, "4", None),
        ({"gt": 0}, True, None),
        ({"gt": 0}, [1], None),
        ({"gt": 0}, None, None),
        ({"gte": 2, "lt": 4}, 3, True),
        ({"gte": 2, "lt": 4}, 4, False),
        ({"gte": 2, "not_equals": "off"}, "off", False),
        ({"gte": 2, "not_equals": "off"}, "on", None),
        ({"contains": "cup"}, "a cup on a table", True),
        ({"contains": "cup"}, "a plate", False),
        ({"contains": "cup"}, ["cup", "plate"], True),
        ({"contains": "cup"}, ["cups"], False),
        ({"contains": "cup"}, [], False),
        ({"contains": 1}, [True], False),
        ({"contains": 1}, [0, 1], True),
        ({"contains": 1}, "1", None),
        ({"contains": "cup"}, 3, None),
        ({"contains": "cup"}, {"cup": 1}, None),
    ],
)
def test_a_value_is_judged(test: dict[str, Any], value: Any, truth: bool | None) -> None:
    assert parse(json.dumps({"output": "x", **test})).truth(said(value)) is truth


@pytest.mark.parametrize(
    ("objects", "found", "truth"),
    [
        ({"label": "cup"}, [("cup", 0.1)], True),
        ({"label": "cup"}, [("Cup", 0.9)], False),
        ({"label": "cup"}, [], False),
        ({"label": "tür ☕"}, [("tür ☕", 0.9)], True),
        ({"label": "cup", "min_score": 0.5}, [("cup", 0.49)], False),
        ({"label": "cup", "min_score": 0.7}, [("cup", 0.7)], True),  # as float32 it is below 0.7
        ({"label": "cup", "min_score": 0.5}, [("cup", None)], False),
        ({"label": "cup"}, [("cup", None)], True),
        ({"label": "cup", "min_count": 2}, [("cup", 0.9), ("plate", 0.9)], False),
        ({"min_count": 2}, [("cup", 0.9), ("plate", 0.9)], True),
        ({}, [], False),
    ],
)
def test_detections_are_counted(objects: Any, found: Any, truth: bool) -> None:
    definition = parse(json.dumps({"detections": objects}))
    assert definition.truth(saw(*found)) is truth
    assert definition.stream == "detections"


def test_an_event_reports_the_value_or_the_number_of_detections() -> None:
    counting = Watch(parse('{"detections": {"label": "cup"}}'), window_s=WINDOW_S)
    edge = counting.observe(saw(("cup", 0.9), ("cup", 0.8), ("plate", 0.9)), 0)
    assert edge == Edge(seq=1, initial=True, value=2)
    assert watch({"equals": "a"}).observe(said("a"), 0) == Edge(1, True, "a")


# --- edges --------------------------------------------------------------------------------------


def test_it_fires_once_until_it_was_false() -> None:
    assert edges(watch(), (0, False), (1, True), (2, True), (3, False), (4, True)) == [1, 4]


def test_first_seen_true_is_an_initial_event() -> None:
    assert watch().observe(said(True), 0) == Edge(1, initial=True, value=True)
    later = watch()
    later.observe(said(False), 0)
    assert later.observe(said(True), 1) == Edge(1, initial=False, value=True)


def test_first_seen_true_only_arms_when_asked_to() -> None:
    assert edges(watch({"initial": "arm"}), (0, True), (1, True), (2, False), (3, True)) == [3]
    assert edges(watch({"initial": "arm"}), (0, False), (1, True)) == [1]


def test_stale_input_neither_fires_nor_rearms() -> None:
    seen = watch()
    assert edges(seen, (0, True), (20, ...), (20, True), (40, True)) == [0]
    assert seen.status(ns(40)) == (True, ns(40), None)
    assert seen.status(ns(46)) == (None, ns(45), "stale")


def test_a_value_that_cannot_be_compared_neither_fires_nor_rearms() -> None:
    hot = Watch(parse('{"output": "t", "gt": 50}'), window_s=WINDOW_S)
    assert edges(hot, (0, 60), (1, "sensor error"), (2, 60), (3, None), (4, 60)) == [0]
    assert hot.status(ns(4))[0] is True


def test_unknown_says_why() -> None:
    seen = Watch(parse('{"output": "t", "contains": "x"}'), window_s=WINDOW_S)
    assert seen.status(0) == (None, None, "nothing received yet")
    seen.observe(said(3), ns(1))
    assert seen.status(ns(2)) == (None, ns(1), "the value cannot be compared")


def test_a_hold_fires_when_its_time_is_up_without_another_message() -> None:
    seen = watch({"for_s": 2})
    assert edges(seen, (0, False), (1, True)) == []
    assert seen.deadline_ns == ns(3)
    assert edges(seen, (2.9, ...), (3, ...), (4, True)) == [3]
    assert seen.deadline_ns is None


def test_a_frozen_stream_tells_nothing_and_a_hold_begins_anew_after_it() -> None:
    one = watch({"for_s": 3.0})
    assert edges(one, (0, False), (1, True), (2, True)) == []
    assert one.observe(None, ns(2.5)) is None
    assert one.status(ns(2.6)) == (None, ns(2.5), "frozen")
    assert edges(one, (4.5, ...), (5, True), (7.9, True), (8, True)) == [8]


def test_what_came_due_before_a_stream_froze_is_an_event() -> None:
    one = watch({"for_s": 3.0})
    assert edges(one, (0, True)) == []
    assert one.observe(None, ns(4)) is not None


def test_a_hold_begins_anew_after_a_false_or_unknown_value() -> None:
    assert edges(watch({"for_s": 2}), (0, True), (1, False), (1.5, True), (3.4, True)) == []
    assert edges(watch({"for_s": 6}), (0, True), (6, True), (9, True), (12, ...)) == [12]
    text = Watch(parse('{"output": "t", "gt": 1, "for_s": 2}'), window_s=WINDOW_S)
    assert edges(text, (0, 2), (1, "?"), (1.5, 2), (3, 2), (3.5, 2)) == [3.5]


def test_a_hold_that_ended_before_a_late_false_was_an_event() -> None:
    seen = watch({"equals": "a", "for_s": 2})
    seen.observe(said("a"), ns(0))
    assert seen.observe(said("b"), ns(3)) == Edge(1, True, "a")


def test_a_hold_longer_than_the_window_needs_messages() -> None:
    seen = watch({"for_s": 8})
    assert edges(seen, (0, True)) == []
    assert seen.deadline_ns is None
    assert edges(seen, (4, True)) == []
    assert seen.deadline_ns == ns(8)


def test_rearming_takes_as_long_as_asked_for() -> None:
    steps = [(0.0, True), (1.0, False), (2.0, True), (3.0, False), (5.0, ...), (5.5, True)]
    assert edges(watch({"clear_for_s": 2}), *steps) == [0, 5.5]
    # Silence in between is no witness that it stayed false.
    assert edges(watch({"clear_for_s": 6}), (0, True), (1, False), (9, True)) == [0]


def test_an_edge_within_the_cooldown_waits_for_its_end() -> None:
    seen = watch({"cooldown_s": 10})
    assert edges(seen, (0, True), (1, False), (6, True), (8, True)) == [0]
    assert seen.deadline_ns == ns(10)
    assert edges(seen, (10, ...), (11, False)) == [10]
    assert edges(seen, (12, True), (13, False), (19, False), (21, ...)) == []


@pytest.mark.parametrize(
    ("damped", "at_most"),
    [({"for_s": 0.5}, 0), ({"clear_for_s": 1}, 1), ({"cooldown_s": 3}, 4)],
)
def test_a_score_that_flutters_around_the_threshold_fires_once_a_period(
    damped: dict[str, float], at_most: int
) -> None:
    fluttering = Watch(parse(json.dumps({"output": "s", "gt": 0.7, **damped})), window_s=WINDOW_S)
    fired = edges(fluttering, *((i / 10, 0.71 if i % 2 else 0.69) for i in range(100)))
    assert len(fired) == at_most


def test_memory_goes_on_where_an_earlier_process_stopped() -> None:
    before = watch()
    edges(before, (0, False), (1, True))
    again = watch(memory=before.memory)
    assert again.status(0) == (None, None, "nothing received yet")
    assert edges(again, (0, True), (1, False)) == []
    assert again.observe(said(True), ns(2)) == Edge(2, initial=False, value=True)


# --- properties ---------------------------------------------------------------------------------

steps = st.lists(
    st.tuples(
        # Seconds since the step before: often beyond the window, often right at a deadline.
        st.sampled_from([0.0, 0.4, 1.0, 2.0, 4.9, 5.0, 5.1, 7.0]),
        # None is a value that cannot be compared, `...` only time that passes.
        st.sampled_from([True, False, None, ...]),
    ),
    max_size=60,
)
durations = st.sampled_from([0, 0, 1, 2, 6])


@given(steps, durations, durations, durations, st.sampled_from(["fire", "arm"]))
def test_events_are_rising_edges_of_what_was_seen(
    steps: list[tuple[float, Any]], for_s: int, clear_for_s: int, cooldown_s: int, initial: str
) -> None:
    seen = watch(
        {
            "for_s": for_s, "clear_for_s": clear_for_s,
            "cooldown_s": cooldown_s, "initial": initial,
        }
    )  # fmt: skip
    now_s, heard_s = 0.0, None
    truth: bool | None = None
    falses_since_event, falses, values = 0, 0, 0
    events: list[float] = []
    for pause_s, value in steps:
        now_s += pause_s
        before = truth if heard_s is not None and now_s - heard_s <= WINDOW_S else None
        edge = seen.advance(ns(now_s))
        if edge is not None:
            # Time alone turns nothing true: it was, by the last message, and had to hold.
            assert truth is True
            assert for_s or cooldown_s
        if value is not ...:
            second = seen.observe(said(value), ns(now_s))
            assert edge is None or second is None
            if second is not None:
                assert value is True
                # At once, or else a hold that had been running ends with this very message.
                assert for_s == 0 or before is True
            edge = edge or second
        if edge is not None:
            assert edge.seq == len(events) + 1
            assert falses_since_event or not events
            assert edge.initial == (falses == 0)
            assert not (edge.initial and initial == "arm")
            assert not events or now_s - events[-1] >= cooldown_s
            events.append(now_s)
            falses_since_event = 0
        if value is not ...:
            truth, heard_s = value, now_s
            if value is not None:
                values += 1
            if value is False:
                falses += 1
                falses_since_event += 1
        deadline_ns = seen.deadline_ns
        assert deadline_ns is None or deadline_ns >= ns(now_s)
    assert len(events) <= falses + 1


@given(st.lists(st.sampled_from([True, False, None]), max_size=60))
def test_without_conditions_on_time_every_seen_edge_is_an_event(values: list[bool | None]) -> None:
    expected, armed = [], True
    for at, value in enumerate(values):
        if value is True and armed:
            expected.append(at)
        if value is not None:
            armed = not value
    assert edges(watch(), *((float(at), value) for at, value in enumerate(values))) == expected


@given(steps, durations)
def test_a_restart_at_any_moment_adds_no_event(steps: list[tuple[float, Any]], for_s: int) -> None:
    through = watch({"for_s": for_s})
    restarted = watch({"for_s": for_s})
    now_s = 0.0
    for pause_s, value in steps:
        now_s += pause_s
        for one in (through, restarted):
            edges(one, (now_s, value))
        restarted = watch({"for_s": for_s}, restarted.memory)
    assert restarted.memory.seq <= through.memory.seq
