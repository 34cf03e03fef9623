"""`python -m benchmarks`: every row of the targets, side by side, as a table and as JSON."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import sys
import time
import traceback
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from benchmarks import rows_answers, rows_cpu, rows_decode, rows_http, rows_latency, soak
from benchmarks.measure import Plan, Row

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ROWS: dict[str, Callable[..., Awaitable[Row | list[Row]]]] = {
    "ingest": rows_cpu.ingest,
    "watched": rows_cpu.watched,
    "ingest_vision_msgs": rows_cpu.ingest_vision_msgs,
    "decode": rows_decode.decode,
    "decode_nested": rows_decode.nested,
    "detectors": rows_decode.detectors,
    "streams": rows_cpu.streams,
    "idle": rows_cpu.idle,
    "readable": rows_latency.readable,
    "see": rows_http.see,
    "rarely": rows_http.rarely,
    "server": rows_http.server,
    "after_idle": rows_latency.after_idle,
    "edge": rows_latency.edge,
    "appear": rows_latency.appear,
    "memory": soak.memory,
    "clients": rows_http.clients,
    "overload": rows_http.overload,
    "subscribers": rows_answers.subscribers,
    "budget": rows_answers.budget,
}


async def run(names: list[str], plan: Plan, console: Console) -> list[Row]:
    """Measure the named rows, one after another."""
    found: list[Row] = []
    for number, name in enumerate(names, 1):
        began = time.monotonic()
        with console.status(name) as status:

            def note(text: str, where: str = f"{number}/{len(names)} {name}") -> None:
                status.update(f"{where}: {text}")

            try:
                made = await ROWS[name](plan, note)
            except Exception as error:
                traceback.print_exc()
                made = Row(name, "-", "-", None, "-", False, {"error": repr(error)})
        took = time.monotonic() - began
        rows = made if isinstance(made, list) else [made]
        figures = ", ".join(f"{row.baseline} → {row.ours}" for row in rows)
        console.print(f"{name}: {figures} ({took:.0f} s)", style="dim")
        found += rows
    return found


def table(rows: list[Row]) -> Table:
    """Return the outcome for a person."""
    made = Table("what", title="against the baseline, measured in turn")
    for heading in ("baseline", "ours", "ratio", "target"):
        made.add_column(heading, justify="right")
    made.add_column("")
    for row in rows:
        verdict = {True: "[green]pass", False: "[red]short", None: ""}[row.ok]
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}×"
        made.add_row(row.name, row.baseline, row.ours, ratio, row.target, verdict)
    return made


def installed(*names: str) -> str:
    """Return name and version of the first of these that is installed."""
    for name in names:
        with contextlib.suppress(PackageNotFoundError):
            return f"{name} {version(name)}"
    return "a sourced installation"


def main() -> int:
    """Run the chosen rows; the exit code is 1 if one is short."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("rows", nargs="*", help=f"of {', '.join(ROWS)}; all by default")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--seconds", type=float, default=4.0, help="of a turn that has no length of its own"
    )
    parser.add_argument("--uvloop", action="store_true", help="run the service on uvloop")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results.json"))
    options = parser.parse_args()
    if unknown := set(options.rows) - ROWS.keys():
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    console = Console(width=None if sys.stdout.isatty() else 130)
    plan = Plan(options.rounds, options.seconds, options.uvloop)
    began = time.monotonic()
    rows = asyncio.run(run(options.rows or list(ROWS), plan, console))
    console.print(table(rows))
    machine = {
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "ros": installed("ros-rclpy", "ros-jazzy-rclpy"),
        "mcp": version("mcp"),
        "load_average_at_end": os.getloadavg(),
        "took_s": round(time.monotonic() - began, 1),
    }
    options.json.write_text(
        json.dumps({"machine": machine, "rows": [row.as_json() for row in rows]}, indent=1)
    )
    console.print(f"{machine['took_s']} s; all numbers are in {options.json}")
    return int(not all(row.ok is not False for row in rows))


if __name__ == "__main__":
    sys.exit(main())
