"""What all rows share: other processes, their numbers, and the outcome of a row."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import statistics
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

DETECTIONS_TYPE = "ros2_vision_interfaces/msg/VisionDetectionArray"
SECRET = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

# Domain ids above 101 would reach into the ports that Linux hands out to everybody.
_DOMAINS = itertools.cycle(range(10, 100))
for _ in range(os.getpid() % 90):
    next(_DOMAINS)


def fresh_domain() -> str:
    """Return a DDS domain that no other part of this run uses."""
    return str(next(_DOMAINS))


@dataclass(frozen=True)
class Plan:
    """How long and how often to measure."""

    rounds: int = 3
    seconds: float = 4.0
    uvloop: bool = False


@dataclass
class Row:
    """One line of the table. `ok` is None where nothing is promised."""

    name: str
    baseline: str
    ours: str
    ratio: float | None
    target: str
    ok: bool | None
    details: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the row as plain data."""
        return asdict(self)


# --- in the processes that are measured ---------------------------------------------------------


def usage() -> dict[str, Any]:
    """Return what this process has used so far and holds now."""
    with open("/proc/self/statm") as statm:
        pages = int(statm.read().split()[1])
    return {
        "cpu_s": time.process_time(),  # user and system, all threads
        "rss_mib": pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
        "fds": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
    }


def say(answer: dict[str, Any]) -> None:
    """Print one line of JSON for the process that started this one."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def answer_commands(handle: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answer each line on stdin from a thread; `usage` is added to every answer."""

    def run() -> None:
        for line in sys.stdin:
            say(handle(json.loads(line)) | usage())

    threading.Thread(target=run, daemon=True).start()


# --- in the process that measures ---------------------------------------------------------------


class Child:
    """A process that answers commands."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.hello: dict[str, Any] = {}

    async def ask(self, **command: Any) -> dict[str, Any]:
        """Send one command and return its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        return await self.read()

    async def read(self, timeout_s: float = 60.0) -> dict[str, Any]:
        """Return the next line that the process says."""
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), timeout_s)
        if not line:
            raise RuntimeError(f"a process ended with {await self.process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def cpu_s(self) -> float:
        """Return what the process has used so far, without waking it up to ask."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")

    async def until(self, enough: Callable[[dict[str, Any]], bool], **command: Any) -> None:
        """Ask again and again until `enough` holds.

        Raises:
            TimeoutError: it does not within a minute.
        """
        async with asyncio.timeout(60):
            while not enough(await self.ask(**command)):  # noqa: ASYNC110
                await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def child(module: str, domain: str, *args: object) -> AsyncIterator[Child]:
    """Run `benchmarks.<module>` in a process of its own until the block ends."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", f"benchmarks.{module}", *map(str, args)),
        cwd=Path.cwd(),
        env={**os.environ, "ROS_DOMAIN_ID": domain, "PYTHONUNBUFFERED": "1"},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**24,
    )
    started = Child(process)
    try:
        started.hello = await started.read()
        yield started
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), 10)
        except TimeoutError:
            process.kill()
        await process.communicate()


Side = Callable[[], Awaitable[Any]]


async def in_turn(rounds: int, *sides: Side, note: Callable[[str], None]) -> list[list[Any]]:
    """Run A B A B ... and return what each side gave, in rounds; the order flips each time."""
    results: list[list[Any]] = [[] for _ in sides]
    for turn in range(rounds):
        order = range(len(sides)) if turn % 2 == 0 else reversed(range(len(sides)))
        for index in order:
            note(f"round {turn + 1} of {rounds}, side {'AB'[index]}")
            results[index].append(await sides[index]())
    return results


def median(values: Sequence[float]) -> float:
    """Return the median, NaN of nothing."""
    return statistics.median(values) if values else float("nan")


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` (0 to 1) of all do not exceed, NaN of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def ms(seconds: float) -> str:
    """Write a time."""
    return f"{seconds * 1e3:.2f} ms"


def us(seconds: float) -> str:
    """Write a short time."""
    return f"{seconds * 1e6:.1f} µs"


def share(cpu: float) -> str:
    """Write processor time over time."""
    return f"{cpu * 100:.2f} % CPU"
