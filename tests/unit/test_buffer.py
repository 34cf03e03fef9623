from typing import Any

import pytest

from mcp_perception_buffer.buffer import EAGER_BYTES, Buffer
from mcp_perception_buffer.decoding.decoder import Decoder
from mcp_perception_buffer.errors import DecodeError
from mcp_perception_buffer.model import Observation, StreamInfo, StreamView
from support import Scene, definition, detection, detections, make, serialise, stamped_string

TEXT = "/vision/a/text"
SEEN = "/vision/a/detections"


def only(scene: Scene) -> StreamView:
    [view] = scene.snapshot().streams
    return view


def test_latest_value_and_history_are_retained() -> None:
    scene = Scene(history_depth=3)
    for text in "abcde":
        scene.put(TEXT, stamped_string(text))
    assert only(scene).observation is not None
    assert only(scene).observation.value == "e"  # type: ignore[union-attr]
    assert [seen.value for seen in scene.buffer.recent(TEXT, 9)] == ["c", "d", "e"]
    assert [seen.value for seen in scene.buffer.recent(TEXT, 2)] == ["d", "e"]
    assert only(scene).received == 5


def test_age_and_staleness_follow_the_monotonic_clock_alone() -> None:
    scene = Scene(freshness_window_s=5.0)
    scene.put(TEXT, stamped_string("x", sec=2_000_000_000))  # a header from the future
    assert (only(scene).age_s, only(scene).state) == (0.0, "fresh")
    scene.clock.advance(5.0)
    assert (only(scene).age_s, only(scene).state) == (5.0, "fresh")
    scene.clock.advance(0.001)
    assert only(scene).state == "stale"
    assert only(scene).rate_hz == 0.0


def test_an_age_is_never_negative() -> None:
    scene = Scene()
    scene.open(TEXT)
    scene.buffer.put(TEXT, stamped_string("x"), scene.clock() + 1_000_000)
    assert only(scene).age_s == 0.0


def test_the_four_states_are_told_apart() -> None:
    scene = Scene()
    scene.open(TEXT)
    assert (only(scene).state, only(scene).age_s) == ("never", None)
    scene.put(TEXT, stamped_string("x"))
    assert only(scene).state == "fresh"
    scene.clock.advance(6)
    assert only(scene).state == "stale"
    scene.buffer.set_publishers(TEXT, 0)
    assert only(scene).state == "gone"


def test_a_gone_stream_stays_readable_until_its_retention_ends() -> None:
    scene = Scene(retention_s=60)
    scene.put(TEXT, stamped_string("last words"))
    scene.buffer.set_publishers(TEXT, 0)
    scene.clock.advance(60)
    assert only(scene).observation is not None
    scene.clock.advance(0.001)
    assert scene.snapshot().streams == ()


def test_a_stream_that_left_without_a_word_is_forgotten_at_once() -> None:
    scene = Scene()
    scene.open(TEXT)
    scene.buffer.set_publishers(TEXT, 0)
    assert scene.snapshot().streams == ()


def test_a_returning_publisher_continues_its_stream() -> None:
    scene = Scene()
    scene.put(TEXT, stamped_string("before"))
    scene.buffer.set_publishers(TEXT, 0)
    scene.put(TEXT, stamped_string("after"))
    assert only(scene).state == "fresh"
    assert only(scene).received == 2


def test_a_stream_of_another_type_begins_anew() -> None:
    scene = Scene()
    scene.put(TEXT, stamped_string("x"))
    scene.open(TEXT, "std_msgs/msg/String")
    assert (only(scene).state, only(scene).received) == ("never", 0)


def test_undecodable_messages_are_counted_and_the_last_good_one_stays() -> None:
    scene = Scene(history_depth=2)
    scene.put(TEXT, stamped_string("good"))
    scene.clock.advance(1)
    for _ in range(5):
        scene.put(TEXT, b"\x00\x01\x00\x00garbage")
        view = only(scene)
    assert view.observation is not None
    assert view.observation.value == "good"
    assert view.age_s == 1.0
    assert (view.received, view.undecodable) == (6, 5)
    assert view.last_error
    scene.put(TEXT, stamped_string("good again"))
    assert only(scene).observation.value == "good again"  # type: ignore[union-attr]


def test_a_good_message_that_nobody_read_survives_garbage_behind_it() -> None:
    scene = Scene(history_depth=2)
    scene.put(TEXT, stamped_string("first"))
    scene.put(TEXT, stamped_string("second"))
    scene.put(TEXT, b"garbage")
    assert only(scene).observation.value == "second"  # type: ignore[union-attr]
    assert only(scene).undecodable == 1
    scene.put(TEXT, b"garbage")
    assert [seen.value for seen in scene.buffer.recent(TEXT, 1)] == ["second"]


def repeat(scene: Scene, times: int, every_s: float = 0.5, **head: Any) -> StreamView:
    for _ in range(times):
        scene.clock.advance(every_s)
        scene.put(TEXT, stamped_string("x", **head))
    return only(scene)


def test_one_stamp_again_and_again_over_the_window_is_frozen_and_stale() -> None:
    scene = Scene(freshness_window_s=5.0)
    assert not repeat(scene, 10).frozen
    view = repeat(scene, 1)
    assert (view.frozen, view.state, view.age_s) == (True, "stale", 0.0)
    assert view.rate_hz == 2.0
    view = repeat(scene, 1, nanosec=3)
    assert (view.frozen, view.state) == (False, "fresh")


def test_a_few_slow_messages_with_one_stamp_are_not_frozen_yet() -> None:
    scene = Scene(freshness_window_s=5.0)
    assert not repeat(scene, 4, every_s=4.0).frozen
    assert repeat(scene, 1, every_s=4.0).frozen


def test_a_frozen_stream_that_falls_silent_is_only_stale() -> None:
    scene = Scene(freshness_window_s=5.0)
    assert repeat(scene, 20).frozen
    scene.clock.advance(5.1)
    assert (only(scene).frozen, only(scene).state) == (False, "stale")


def test_stamps_never_set_or_without_a_header_are_not_frozen() -> None:
    scene = Scene(freshness_window_s=1.0)
    assert not repeat(scene, 20, sec=0, nanosec=0).frozen
    plain = "std_msgs/msg/String"
    for _ in range(20):
        scene.clock.advance(0.5)
        scene.put(TEXT, serialise(make(plain, data="the same text")), plain)
    assert not only(scene).frozen


def test_the_usual_rate_outlasts_a_slow_spell() -> None:
    scene = Scene()
    assert repeat(scene, 31, every_s=0.1).usual_hz is None
    assert repeat(scene, 289, every_s=0.1).usual_hz == pytest.approx(10)
    view = repeat(scene, 32, every_s=1.0)
    assert view.rate_hz == pytest.approx(1.0)
    assert view.usual_hz == pytest.approx(9, abs=0.5)


class CountingDecoder:
    def __init__(self) -> None:
        self.calls = 0
        self._decoder = Decoder(definition)

    def __call__(self, info: StreamInfo, cdr: bytes) -> Observation:
        self.calls += 1
        return self._decoder.decode(info, cdr)


def test_a_message_that_nobody_reads_is_not_decoded() -> None:
    decode = CountingDecoder()
    scene = Scene()
    scene.buffer = Buffer(decode, clock_ns=scene.clock)
    for _ in range(100):
        scene.put(SEEN, detections(detection()))
    first = decode.calls
    scene.snapshot()
    scene.snapshot()
    assert (first, decode.calls) == (1, 2)


def preparing() -> tuple[Scene, CountingDecoder, list[Observation]]:
    """Return a scene, what decodes its messages, and those that were prepared for an answer."""
    scene, decode, prepared = Scene(), CountingDecoder(), list[Observation]()
    scene.buffer = Buffer(
        decode, clock_ns=scene.clock, prepare=lambda seen, info: prepared.append(seen)
    )
    return scene, decode, prepared


def test_who_asks_for_every_message_finds_it_decoded_and_in_words() -> None:
    scene, decode, prepared = preparing()
    for _ in range(2):
        scene.put(SEEN, detections(detection()))
        scene.snapshot()
    assert prepared == []
    scene.put(SEEN, detections(detection("cup")))
    [seen], before = prepared, decode.calls
    assert (only(scene).observation, decode.calls) == (seen, before)


def test_who_asks_now_and_then_has_nothing_decoded_ahead() -> None:
    scene, decode, prepared = preparing()
    for _ in range(10):
        for _ in range(5):
            scene.put(SEEN, detections(detection()))
        scene.snapshot()
    assert (decode.calls, prepared) == (1 + 10, [])  # the very first one, and what was asked for


@pytest.mark.parametrize(
    ("topic", "cdr"),
    [
        (SEEN, detections(detection(mask=(320, 240)))),
        ("/vision/a/overlay", stamped_string("any header will do")),
        ("/camera/image_raw", stamped_string("any header will do")),
    ],
)
def test_no_pixel_outlives_its_arrival(topic: str, cdr: bytes) -> None:
    decode = CountingDecoder()
    scene = Scene()
    scene.buffer = Buffer(decode, clock_ns=scene.clock)
    assert topic != SEEN or len(cdr) > EAGER_BYTES
    for _ in range(3):
        scene.put(topic, cdr)
    assert decode.calls == 3


def test_rate_is_that_of_the_last_messages() -> None:
    scene = Scene()
    for _ in range(100):
        scene.clock.advance(0.1)
        scene.put(TEXT, stamped_string("x"))
    assert only(scene).rate_hz == pytest.approx(10.0)


def test_messages_that_waited_and_are_taken_in_one_go_are_no_rate() -> None:
    scene = Scene(freshness_window_s=5.0)
    for _ in range(40):
        scene.clock.advance(10e-6)
        scene.put(TEXT, stamped_string("waited"))
    assert (only(scene).rate_hz, only(scene).usual_hz) == (0.0, None)
    for second in range(60 * 20):
        scene.clock.advance(0.05)
        scene.put(TEXT, stamped_string("x", sec=second))
    assert only(scene).rate_hz == pytest.approx(20)
    assert only(scene).usual_hz == pytest.approx(20, rel=0.05)


def test_a_group_over_the_edge_of_a_mark_is_no_rate() -> None:
    scene = Scene(freshness_window_s=5.0)
    rates = set()
    for group in range(600):
        scene.clock.advance(1 / 60 - 12 * 10e-6)
        for _ in range(13):
            scene.put(TEXT, stamped_string("x", sec=group))
            scene.clock.advance(10e-6)
            rates.add(only(scene).rate_hz)
    assert max(rates) < 2 * 13 * 60
    assert only(scene).usual_hz == pytest.approx(13 * 60, rel=0.1)


@pytest.mark.parametrize("together", [1, 8, 50])
def test_the_rate_is_right_however_messages_are_gathered(together: int) -> None:
    scene = Scene(freshness_window_s=5.0)
    for _ in range(4000 // together):
        scene.clock.advance(together / 500)
        for _ in range(together):
            scene.put(TEXT, stamped_string("x"))
    assert only(scene).rate_hz == pytest.approx(500, rel=0.05)


def test_a_message_that_is_old_when_it_comes_is_shown_as_such_and_told_to_nobody() -> None:
    scene, heard = Scene(freshness_window_s=5.0), list[Any]()
    scene.open(TEXT)
    scene.buffer.listen("a", "text", lambda seen, _: heard.append(seen and seen.value))
    scene.clock.advance(10)
    scene.buffer.put(TEXT, stamped_string("old"), scene.clock() - 6_000_000_000)
    assert (only(scene).state, only(scene).age_s, heard) == ("stale", 6.0, [])
    scene.buffer.put(TEXT, stamped_string("young"), scene.clock())
    assert heard == ["young"]


def test_a_snapshot_does_not_change_when_the_buffer_does() -> None:
    scene = Scene()
    scene.put(TEXT, stamped_string("x"))
    before = scene.snapshot()
    scene.put(TEXT, stamped_string("y"))
    assert before.streams[0].observation.value == "x"  # type: ignore[union-attr]
    attribute: Any = before.streams[0]
    with pytest.raises(AttributeError):
        attribute.age_s = 3


def test_an_absent_camera_stays_listed() -> None:
    scene = Scene()
    info = scene.topics.classify("/camera/image_raw", "")
    assert info is not None
    scene.buffer.open(info, publishers=0)
    scene.clock.advance(1e6)
    assert only(scene).state == "gone"


def test_a_decoder_error_is_the_only_one_that_is_survived() -> None:
    def broken(info: StreamInfo, cdr: bytes) -> Observation:
        raise DecodeError("no")

    scene = Scene()
    scene.buffer = Buffer(broken, clock_ns=scene.clock)
    scene.put(TEXT, b"")
    assert (only(scene).state, only(scene).last_error) == ("unreadable", "no")


def test_messages_of_which_none_can_be_read_are_neither_silence_nor_nothing() -> None:
    scene = Scene()
    scene.open(TEXT)
    assert only(scene).state == "never"
    for _ in range(6):
        scene.put(TEXT, b"garbage")
    view = only(scene)
    assert (view.state, view.received, view.undecodable) == ("unreadable", 6, 6)
    scene.put(TEXT, stamped_string("good"))
    assert only(scene).state == "fresh"


def test_a_stream_is_found_by_skill_and_output_whatever_its_topic() -> None:
    scene = Scene()
    scene.put(TEXT, stamped_string("x"))
    found = scene.buffer.find("a", "text")
    assert found is not None
    assert found.info.topic == TEXT
    assert scene.buffer.find("a", "other") is None
