"""The outbox in memory and on a real disk, restarts and damage included."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mcp_perception_buffer.events import outbox as outbox_module
from mcp_perception_buffer.events.base import Event, Fate, Record
from mcp_perception_buffer.events.outbox import FILE_NAME, LaneView, Outbox
from mcp_perception_buffer.watch import Memory
from support import FakeClock, eventually


class Times:
    """Both clocks of one machine; a restart begins a new monotonic one."""

    def __init__(self) -> None:
        self.monotonic = FakeClock()
        self.unix_s = 1_785_196_800.0

    def advance(self, seconds: float) -> None:
        self.monotonic.advance(seconds)
        self.unix_s += seconds

    def reboot(self, seconds: float) -> None:
        self.monotonic = FakeClock()
        self.monotonic.ns = 5
        self.unix_s += seconds


@pytest.fixture
def times() -> Times:
    return Times()


@contextlib.asynccontextmanager
async def opened(times: Times, path: Path | None = None, **options: Any) -> AsyncIterator[Outbox]:
    outbox = Outbox(
        path, clock_ns=lambda: times.monotonic(), wall_clock_s=lambda: times.unix_s, **options
    )
    async with outbox:
        yield outbox


def put(outbox: Outbox, times: Times, skill_id: str, seq: int) -> Event:
    """Save an edge as the watcher does, and return it."""
    outbox.make_room(skill_id)
    body = f'{{"seq": {seq}, "of": "{skill_id} ☕"}}'.encode()
    event = Event(f"evt_{skill_id}_{seq}", skill_id, seq, body, times.monotonic())
    outbox.save(Record(skill_id, "d", Memory(seq, armed=False, cleared=True)), event)
    times.advance(0.001)
    return event


def waiting(outbox: Outbox, skill_id: str) -> list[int]:
    """The seqs of a watch's events, delivering them all."""
    seqs = []
    while (event := outbox.head(skill_id)) is not None:
        seqs.append(event.seq)
        outbox.delivered(event)
    return seqs


async def test_events_may_be_sent_once_committed_and_in_order(times: Times, tmp_path: Path) -> None:
    async with opened(times, tmp_path) as outbox:
        for seq in (1, 2, 3):
            put(outbox, times, "a", seq)
        assert outbox.head("a") is None
        await outbox.flush()
        assert await outbox.ready() == ["a"]
        assert waiting(outbox, "a") == [1, 2, 3]


@pytest.mark.parametrize("on_disk", [True, False])
async def test_a_full_outbox_drops_the_oldest_superseded_event(
    times: Times, tmp_path: Path, on_disk: bool
) -> None:
    async with opened(times, tmp_path if on_disk else None, size=4) as outbox:
        put(outbox, times, "alone", 1)
        for seq in range(1, 7):
            put(outbox, times, "busy", seq)
        await outbox.flush()
        assert outbox.depth == 4
        assert outbox.lost == 3
        assert waiting(outbox, "alone") == [1]
        assert waiting(outbox, "busy") == [4, 5, 6]


async def test_the_newest_of_a_watch_goes_only_when_nothing_is_superseded(times: Times) -> None:
    async with opened(times, size=2) as outbox:
        for skill_id in ("a", "b", "c"):
            put(outbox, times, skill_id, 1)
        await outbox.flush()
        assert outbox.view("a") == LaneView(Fate.DROPPED, None, 0, lost=1)
        put(outbox, times, "c", 2)
        assert outbox.view("b").pending == 1
        assert outbox.view("c") == LaneView(Fate.PENDING, None, 1, lost=1)


async def test_an_event_being_sent_is_not_dropped(times: Times) -> None:
    async with opened(times, size=2) as outbox:
        first = put(outbox, times, "a", 1)
        with outbox.in_flight(first):
            put(outbox, times, "a", 2)
            put(outbox, times, "a", 3)
        await outbox.flush()
        assert waiting(outbox, "a") == [1, 3]


async def test_what_is_lost_is_known_to_the_next_event_and_after_a_restart(
    times: Times, tmp_path: Path
) -> None:
    async with opened(times, tmp_path, size=2) as outbox:
        for seq in (1, 2, 3):
            put(outbox, times, "a", seq)
        assert outbox.make_room("a") == 2
    async with opened(times, tmp_path, size=2) as outbox:
        assert outbox.make_room("a") == 2
        assert outbox.make_room("b") == 0


async def test_a_restart_changes_no_event_and_no_memory(times: Times, tmp_path: Path) -> None:
    async with opened(times, tmp_path, expires_after_s=60) as outbox:
        events = [put(outbox, times, "a", seq) for seq in (1, 2)]
        fired = Record("b", "what", Memory(7, armed=True, cleared=True, fired_ns=times.monotonic()))
        outbox.save(fired)
        outbox.save(Record("new", "x", Memory()))
    times.reboot(20)
    async with opened(times, tmp_path, expires_after_s=60) as outbox:
        assert await outbox.ready() == ["a"]
        for event in events:
            again = outbox.head("a")
            assert again is not None
            assert (again.id, again.body, again.seq) == (event.id, event.body, event.seq)
            assert outbox.remaining_s(again) == pytest.approx(40, abs=0.1)
            outbox.delivered(again)
        known = outbox.recall("b")
        assert known is not None
        assert known.memory[:3] == fired.memory[:3]
        assert times.monotonic() - (known.memory.fired_ns or 0) == pytest.approx(20e9, abs=1e6)
        assert outbox.recall("new") == Record("new", "x", Memory())
        assert outbox.recall("never") is None
    async with opened(times, tmp_path) as outbox:
        assert outbox.depth == 0
        assert outbox.view("a").fate is Fate.DELIVERED


async def test_a_wall_clock_set_back_expires_nothing_and_prolongs_nothing(
    times: Times, tmp_path: Path
) -> None:
    async with opened(times, tmp_path, expires_after_s=60) as outbox:
        put(outbox, times, "a", 1)
    times.reboot(-1e8)
    async with opened(times, tmp_path, expires_after_s=60) as outbox:
        event = outbox.head("a")
        assert event is not None
        assert outbox.remaining_s(event) == pytest.approx(60)


@pytest.mark.parametrize("cancelled", [False, True])
async def test_an_event_that_ends_while_it_is_written_does_not_come_back(
    times: Times, tmp_path: Path, cancelled: bool
) -> None:
    async with opened(times, tmp_path, size=1) as outbox:
        put(outbox, times, "a", 1)
        flushing = asyncio.create_task(outbox.flush())
        await asyncio.sleep(0)  # now it waits for the disk
        put(outbox, times, "a", 2)
        if cancelled:
            flushing.cancel()
        await asyncio.wait([flushing])
    async with opened(times, tmp_path) as outbox:
        assert waiting(outbox, "a") == [2]


async def test_the_watch_heard_of_longest_ago_is_forgotten_first(
    times: Times, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_module, "MAX_LANES", 3)
    async with opened(times, tmp_path) as outbox:
        put(outbox, times, "has an event", 1)
        for skill_id in ("a", "b"):
            outbox.save(Record(skill_id, "x", Memory()))
        outbox.recall("a")
        outbox.save(Record("c", "x", Memory()))
    async with opened(times, tmp_path) as outbox:
        kept = [i for i in ("has an event", "a", "b", "c") if outbox.recall(i)]
        assert kept == ["has an event", "a", "c"]


async def test_without_push_states_are_kept_and_events_are_not(times: Times) -> None:
    async with opened(times, push=False) as outbox:
        put(outbox, times, "a", 1)
        assert outbox.view("a") == LaneView(Fate.OFF, None, 0, 0)
        known = outbox.recall("a")
        assert known is not None
        assert known.memory.seq == 1


# --- disks that fail ----------------------------------------------------------------------------


def _nonsense(path: Path) -> None:
    path.write_bytes(b"this is no database\n" * 500)


def _truncate(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2 - 100])


def _scramble(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xa5" * len(data[4096:])
    path.write_bytes(data)


def _from_the_future(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[60:64] = (99).to_bytes(4, "big")  # user_version, by the file format of SQLite
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [_nonsense, _truncate, _scramble, _from_the_future])
async def test_a_broken_file_is_moved_aside_and_a_new_one_begun(
    times: Times, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    async with opened(times, tmp_path) as outbox:
        for seq in range(1, 50):
            put(outbox, times, "a", seq)
    damage(tmp_path / FILE_NAME)
    async with opened(times, tmp_path) as outbox:
        assert outbox.problem is None
        assert (tmp_path / f"{FILE_NAME}.broken").exists()
        assert outbox.depth == 0
        put(outbox, times, "b", 1)
    async with opened(times, tmp_path) as outbox:
        assert waiting(outbox, "b") == [1]


async def _goes_on_in_memory(outbox: Outbox, times: Times) -> None:
    assert outbox.problem is not None
    assert "memory" in outbox.problem
    put(outbox, times, "a", 1)
    await outbox.flush()
    assert waiting(outbox, "a") == [1]


async def test_a_state_directory_that_cannot_be_made_is_reported(
    times: Times, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    async with opened(times, tmp_path / "file" / "state") as outbox:
        await _goes_on_in_memory(outbox, times)


async def test_two_services_do_not_share_one_file(
    times: Times, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_perception_buffer.events.journal._LOCK_TIMEOUT_S", 0.05)
    async with opened(times, tmp_path) as first:
        put(first, times, "a", 1)
        await first.flush()
        async with opened(times, tmp_path) as second:
            await _goes_on_in_memory(second, times)
    assert not (tmp_path / f"{FILE_NAME}.broken").exists()


async def test_a_disk_that_can_be_used_later_takes_what_there_is_and_gives_what_it_had(
    times: Times, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_perception_buffer.events.journal._LOCK_TIMEOUT_S", 0.05)
    monkeypatch.setattr(outbox_module, "RETRY_DISK_S", 0.01)
    async with contextlib.AsyncExitStack() as first_stack:
        first = await first_stack.enter_async_context(opened(times, tmp_path))
        put(first, times, "a", 1)
        put(first, times, "b", 1)
        async with opened(times, tmp_path) as second:
            running = asyncio.create_task(second.run())
            put(second, times, "a", 2)
            put(second, times, "c", 1)
            await second.flush()
            put(second, times, "a", 3)  # not flushed yet when the file is there
            await first_stack.aclose()
            await eventually(lambda: second.problem is None)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    async with opened(times, tmp_path) as third:
        assert [waiting(third, skill_id) for skill_id in "abc"] == [[1, 2, 3], [1], [1]]


@pytest.mark.parametrize("when", ["writing", "leaving"])
async def test_who_is_cancelled_while_the_disk_is_busy_leaves_the_file_free(
    times: Times, tmp_path: Path, when: str
) -> None:
    for seq in range(1, 21):
        entered = opened(times, tmp_path)
        outbox = await entered.__aenter__()
        leave = partial(entered.__aexit__, None, None, None)
        put(outbox, times, "a", seq)
        busy = asyncio.create_task(outbox.flush() if when == "writing" else leave())
        await asyncio.sleep(0)  # now it waits for the disk
        busy.cancel()
        await asyncio.wait([busy])
        if when == "writing":
            await leave()
        assert outbox.problem is None
    async with opened(times, tmp_path) as outbox:
        assert outbox.problem is None
        assert waiting(outbox, "a") == list(range(1, 21))
