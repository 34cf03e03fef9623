"""What came, left or changed since a cursor; one odd frame is no change."""

import asyncio

import pytest

from mcp_perception_buffer.answers.changed import changed
from mcp_perception_buffer.answers.wording import RenderLimits
from mcp_perception_buffer.errors import ArgumentError
from mcp_perception_buffer.memory.changes import MAX_CHANGES, SLEEP_AFTER_S, Changes
from support import Scene, detection, detections, eventually, stamped_string

FOUND = "/vision/find/detections"
TEXT = "/vision/find/triggered"


class Story:
    """A scene whose changes are told line by line."""

    def __init__(self) -> None:
        self.scene = Scene()
        self.changes = Changes(self.scene.buffer, clock_ns=self.scene.clock)

    def sees(self, *labels: str, times: int = 3, tracks: bool = False) -> None:
        for _ in range(times):
            self.scene.clock.advance(0.1)
            found = [
                detection(one, track_id=one if tracks else "", box=(90 * i, 0, 50, 50))
                for i, one in enumerate(labels)
            ]
            self.scene.put(FOUND, detections(*found))

    def says(self, value: str) -> None:
        self.scene.put(TEXT, stamped_string(value))

    def told(self, cursor: str) -> list[str]:
        since = self.changes.since(cursor)
        answer = changed(since, RenderLimits(), self.scene.clock(), 1_000_000.0)
        lines = [line for line in answer.text.splitlines() if line.startswith("- ")]
        assert len(lines) == len(answer.data["changes"])
        return [line.partition(": ")[2] for line in lines]


def test_labels_that_appear_leave_or_change_in_number_are_told() -> None:
    story = Story()
    story.sees("cup")
    cursor = story.changes.cursor()
    assert story.told(cursor) == []
    story.sees("cup", "person")
    story.changes.look()
    story.sees("person", "person")
    assert story.told(cursor) == ["person appeared (1)", "cup left", "person 1 -> 2"]


def test_a_flicker_of_one_frame_is_no_change() -> None:
    story = Story()
    story.sees("cup")
    cursor = story.changes.cursor()
    story.sees(times=1)
    assert story.told(cursor) == []
    story.sees("cup", "ghost", times=1)
    assert story.told(cursor) == []
    story.sees("cup")
    assert story.told(cursor) == []


def test_an_odd_second_frame_of_a_stream_is_no_change_either() -> None:
    story = Story()
    story.sees("cup", times=1, tracks=True)
    cursor = story.changes.cursor()
    story.sees(times=1)
    assert story.told(cursor) == []
    story.sees(times=1)
    assert story.told(cursor) == ["cup left", "track cup (cup) left"]


def test_tracks_come_and_go() -> None:
    story = Story()
    story.sees("a", tracks=True)
    cursor = story.changes.cursor()
    story.sees("b", tracks=True)
    assert set(story.told(cursor)) == {
        "a left",
        "b appeared (1)",
        "track a (a) left",
        "track b (b) came",
    }


def test_outputs_and_streams_that_change_are_told_with_their_time() -> None:
    story = Story()
    story.says("false")
    cursor = story.changes.cursor()
    story.says("true")
    story.changes.look()
    story.scene.clock.advance(9)
    assert story.told(cursor) == [
        "triggered: false -> true",
        "/vision/find/triggered fresh -> STALE",
    ]
    since = story.changes.since(cursor)
    answer = changed(since, RenderLimits(), story.scene.clock(), 1_000_000.0)
    assert answer.data["changes"][0]["age_s"] == 9.0
    assert answer.data["changes"][0]["at"] == "1970-01-12T13:46:31.000Z"
    story.sees("cup")
    story.scene.buffer.set_publishers(TEXT, 0)
    later = story.told(answer.data["cursor"])
    assert later == ["/vision/find/detections came (fresh)", "/vision/find/triggered stale -> GONE"]


def test_changes_of_one_skill_can_be_asked_for() -> None:
    story = Story()
    story.says("false")
    cursor = story.changes.cursor()
    story.says("true")
    assert len(story.changes.since(cursor, skill="find").changes) == 1
    assert story.changes.since(cursor, skill="other").changes == []
    assert story.changes.since(cursor, robot="r1").changes == []


def test_a_cursor_from_before_a_restart_says_so() -> None:
    cursor = Story().changes.cursor()
    since = Story().changes.since(cursor)
    assert "restart" in (since.incomplete or "")


def test_a_cursor_older_than_the_history_says_so() -> None:
    story = Story()
    story.says("0")
    cursor = story.changes.cursor()
    for number in range(MAX_CHANGES + 2):
        story.says(str(number + 1))
        story.changes.look()
    since = story.changes.since(cursor)
    assert len(since.changes) == MAX_CHANGES
    assert "are kept" in (since.incomplete or "")
    assert story.changes.since(since.cursor).incomplete is None


@pytest.mark.parametrize("cursor", ["", "yesterday", "1234567.8", "12345678.x", "12345678.-1"])
def test_what_is_no_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(ArgumentError, match="since is no cursor"):
        Story().changes.since(cursor)


def test_an_answer_is_bounded_and_keeps_the_newest() -> None:
    story = Story()
    story.says("0")
    cursor = story.changes.cursor()
    for number in range(500):
        story.says(str(number + 1))
        story.changes.look()
    answer = changed(story.changes.since(cursor), RenderLimits(), story.scene.clock(), 1e6)
    assert len(answer.text) <= 4000
    assert answer.data["changes"][-1]["after"] == "500"
    assert answer.data["left_out"] == 500 - len(answer.data["changes"]) > 0


async def test_it_sleeps_when_nobody_has_asked_for_long_and_says_what_that_costs() -> None:
    story = Story()
    story.says("1")
    running = asyncio.create_task(story.changes.run())
    cursor = story.changes.cursor()
    story.scene.clock.advance(SLEEP_AFTER_S + 1)
    async with asyncio.timeout(10):
        while story.changes.awake:
            await asyncio.sleep(0.05)
    story.says("2")
    since = story.changes.since(cursor)
    assert "nobody asked" in (since.incomplete or "")
    assert [change.after for change in since.changes][-1] == "2"
    running.cancel()


async def test_a_cursor_from_after_a_sleep_in_which_nothing_changed_is_complete() -> None:
    story = Story()
    before = story.changes.cursor()
    running = asyncio.create_task(story.changes.run())
    story.scene.clock.advance(SLEEP_AFTER_S + 1)
    await eventually(lambda: not story.changes.awake)
    assert story.changes.since(story.changes.cursor()).incomplete is None
    since = story.changes.since(before)
    assert "nobody asked" in (since.incomplete or "")
    assert story.changes.since(since.cursor).incomplete is None
    running.cancel()


async def test_who_waits_is_told_as_soon_as_something_changes() -> None:
    story = Story()
    story.says("1")
    running = asyncio.create_task(story.changes.run())
    cursor = story.changes.cursor()
    waiting = asyncio.create_task(story.changes.wait(cursor, 30, skill="find"))
    await asyncio.sleep(0)
    story.says("2")
    async with asyncio.timeout(10):
        since = await waiting
    assert [change.after for change in since.changes] == ["2"]
    assert (await story.changes.wait(since.cursor, 0.01)).changes == []
    running.cancel()


async def test_who_is_cancelled_while_waiting_leaves_nothing_behind() -> None:
    story = Story()
    for _ in range(3):
        waiting = asyncio.create_task(story.changes.wait(story.changes.cursor(), 30))
        await asyncio.sleep(0)
        assert story.changes.waiting == 1
        waiting.cancel()
        await asyncio.wait([waiting])
        assert story.changes.waiting == 0
