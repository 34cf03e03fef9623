"""A brain that fails, a service that is killed, a full disk: no event is lost or changed."""

import asyncio
import functools
import json
import logging
import random
import signal
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import pytest
import structlog

from brain import SECRET, Brain, Mood
from mcp_perception_buffer.events.outbox import FILE_NAME
from support import eventually
from watching import TRIGGERED, running


@pytest.fixture
async def brain() -> AsyncIterator[Brain]:
    async with Brain() as brain:
        yield brain


# --- a brain that fails -------------------------------------------------------------------------


async def test_each_attempt_is_signed_anew_while_id_and_time_of_the_edge_stay() -> None:
    start_s = now_s = 1_785_196_800.0

    def down_for_six_minutes(body: Any) -> Mood:
        nonlocal now_s
        if len(brain.received) == 1:
            now_s += 360
        return 503 if len(brain.received) < 3 else 204

    async with Brain(clock=lambda: now_s) as brain, running(brain) as it:
        brain.mood = down_for_six_minutes
        it.say("true")
        await it.settled()
        assert not brain.refused
        signed_at = [one.verified.timestamp_s - start_s for one in brain.received]
        assert signed_at == [0, 0, 360, 360]
        assert len({one.verified.msg_id for one in brain.received}) == 1
        assert len({one.raw for one in brain.received}) == 1


async def test_kept_alive_connections_that_the_brain_closes_lose_nothing() -> None:
    async with Brain(keepalive_timeout_s=0.05) as brain, running(brain) as it:
        for _ in range(8):
            it.say("true")
            it.say("false")
            await it.settled()
            # The next event comes at the very moment at which the brain has hung up.
            await eventually(lambda: all(c.is_closing() for c in brain.connections))
        assert [one.payload["seq"] for one in brain.accepted] == list(range(1, 9))
        ids = {(one.payload["seq"], one.verified.msg_id) for one in brain.received}
        assert len(ids) == 8


async def test_the_urls_query_and_the_secret_are_shown_nowhere(
    brain: Brain, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    shown = []
    moods: list[Mood] = [500, 302, 401, "hang", "close", 204]
    brain.headers = {"Location": "/?token=SEKRET"}
    with structlog.testing.capture_logs() as logs:
        url = f"{brain.url}?token=SEKRET"
        async with running(brain, url=url) as it:
            for mood in moods:
                brain.mood = functools.partial(lambda mood, body: mood, mood)
                seen = len(brain.received)
                it.say("true")
                it.say("false")
                await brain.hears(seen + 1)
                shown += [repr(it.watcher.views()), repr(vars(it.delivery)), it.delivery.problem]
            await it.settled()
    shown += [repr(logs), caplog.text, *capsys.readouterr()]
    assert "watch_fired" in repr(logs)
    assert len(brain.accepted) == len(moods)
    for text in shown:
        assert "SEKRET" not in (text or "")
        assert SECRET.removeprefix("whsec_") not in (text or "")


# --- killed -------------------------------------------------------------------------------------


class Killable:
    """`scripted_service` as a process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.log = b""

    @classmethod
    async def start(cls, brain: Brain, state_dir: Path, skills: list[str], **more: Any) -> Self:
        watch = json.loads(TRIGGERED)
        options = {
            "url": brain.url,
            "state_dir": str(state_dir),
            "tasks": [{"skill_id": s, "skill": s, "watch": watch} for s in skills],
            **more,
        }
        script = Path(__file__).parents[1] / "scripted_service.py"
        process = await asyncio.create_subprocess_exec(
            sys.executable, script, json.dumps(options),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        service = cls(process)
        await service.answer(b"ready")
        return service

    def say(self, skill: str, value: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"/vision/{skill}/triggered={value}\n".encode())

    async def answer(self, beginning: bytes = b"{") -> Any:
        """Read on to the next answer; what comes between are logs."""
        assert self.process.stdout is not None
        async with asyncio.timeout(30):
            while line := await self.process.stdout.readline():
                if line.startswith(beginning):
                    return json.loads(line) if beginning == b"{" else line
                self.log += line
        raise AssertionError("it ended")

    async def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        self.process.send_signal(number)
        await self.ended()

    async def ended(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        await asyncio.wait_for(self.process.communicate(), 30)
        assert self.process.returncode is not None
        return self.process.returncode


async def test_a_flapping_brain_and_a_killed_service_lose_nothing_and_confuse_nothing(
    brain: Brain, tmp_path: Path
) -> None:
    chance = random.Random(4)
    skills = ["a", "b", "c"]
    rounds, kills = 80, 6
    moods: list[Mood] = [500, 429, 302, 404, "close"]
    brain.headers = {"Retry-After": "0", "Location": "/elsewhere"}

    def flap(body: Any) -> Mood:
        return chance.choice([*moods, 204, 204, 204, 204, "hang" if chance.random() < 0.1 else 204])

    brain.mood = flap
    committed: dict[str, int] = {}
    service = await Killable.start(brain, tmp_path, skills)
    kill_at = set(chance.sample(range(rounds * len(skills)), kills))
    edges = ((index, skill) for index, skill in enumerate(skills * rounds))
    for index, skill in edges:
        if index % 40 == 20:
            await brain.stop()
        if index % 40 == 30:
            await brain.start()
        service.say(skill, "false")
        service.say(skill, "true")
        if index in kill_at:
            # Somewhere between the two lines, their commits and their deliveries.
            for _ in range(chance.randrange(3)):
                committed |= await service.answer()
            await service.kill()
            service = await Killable.start(brain, tmp_path, skills)
            continue
        for _ in range(2):
            committed |= await service.answer()
    await brain.stop()
    brain.mood = lambda body: 204
    await brain.start()
    wanted = {(skill, seq) for skill, last in committed.items() for seq in range(1, last + 1)}
    assert len(wanted) > rounds * len(skills) - kills - 1
    await eventually(lambda: wanted <= {one.edge for one in brain.accepted})
    service.say("a", "false")
    committed |= await service.answer()
    assert await service.ended() == 0

    assert not brain.refused
    identities = defaultdict(set)
    order: dict[str, list[int]] = defaultdict(list)
    for one in brain.received:
        identities[one.edge].add((one.verified.msg_id, one.raw))
    for one in brain.accepted:
        skill, seq = one.edge
        if seq not in order[skill]:
            order[skill].append(seq)
    assert all(len(same) == 1 for same in identities.values())
    ids = [msg_id for [(msg_id, _)] in identities.values()]
    assert len(set(ids)) == len(ids)
    for skill in skills:
        assert order[skill] == list(range(1, len(order[skill]) + 1))
        assert len(order[skill]) >= committed[skill]


async def test_a_full_disk_is_reported_and_events_go_on(brain: Brain, tmp_path: Path) -> None:
    service = await Killable.start(brain, tmp_path, ["a"], max_file_bytes=64 * 1024)
    for seq in range(1, 60):
        service.say("a", "false")
        service.say("a", "true")
        await service.answer()
        assert (await service.answer())["a"] == seq
    await eventually(lambda: len(brain.accepted) == 59)
    assert [one.payload["seq"] for one in brain.accepted] == list(range(1, 60))
    assert (tmp_path / f"{FILE_NAME}-wal").stat().st_size <= 64 * 1024
    assert b"journal_failed" in service.log
    assert await service.ended() == 0
