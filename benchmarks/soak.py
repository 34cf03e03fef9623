"""2,000 messages a second for an hour: what grows? `python -m benchmarks.soak --minutes 60`.

Writes a line a second (CSV) and a verdict (JSON). A picture of it is drawn afterwards, for which
matplotlib is fetched on demand:
`uv run --no-project --with matplotlib python -m benchmarks.soak --draw benchmarks/soak.csv`.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.mcp_http import Caller
from benchmarks.measure import Plan, Row, child, fresh_domain
from benchmarks.rows_cpu import RATE_HZ, TOPICS, service_args

if TYPE_CHECKING:
    from collections.abc import Callable

COLUMNS = (
    *("t_s", "rss_mib", "fds", "threads", "kept", "received", "dropped", "sent"),
    *("rate_hz", "cpu_percent", "answer_ms"),
)


async def run(
    seconds: float,
    note: Callable[[str], None],
    *args: object,
    keep: Callable[[dict[str, Any]], object] = lambda _: None,
) -> list[dict[str, Any]]:
    """Return one line a second, kept at once; every stream is watched, the scene is asked for."""
    domain = fresh_domain()
    load = ("--topics", TOPICS, "--rate", RATE_HZ)
    lines: list[dict[str, Any]] = []
    async with (
        child("publisher", domain, *load) as publisher,
        child("service", domain, "--watch", TOPICS, *args) as service,
    ):
        await service.until(lambda a: a["streams"] >= TOPICS)
        caller = Caller(service.hello["port"])
        began, last = time.monotonic(), await service.ask()
        at = began
        while at - began < seconds:
            await asyncio.sleep(max(0.0, began + len(lines) + 1 - time.monotonic()))
            _, took = await asyncio.to_thread(caller.call, "what_do_you_see")
            now, counts = time.monotonic(), await service.ask()
            sent = (await publisher.ask())["sent"]
            lines.append(
                {
                    "t_s": round(now - began, 1),
                    **{key: counts[key] for key in ("rss_mib", "fds", "threads", "kept")},
                    "received": counts["received"],
                    "dropped": counts["dropped"],
                    "sent": sent,
                    "rate_hz": round((counts["received"] - last["received"]) / (now - at)),
                    "cpu_percent": round((counts["cpu_s"] - last["cpu_s"]) / (now - at) * 100, 2),
                    "answer_ms": round(took * 1e3, 2),
                }
            )
            at, last = now, counts
            keep(lines[-1])
            note(f"{lines[-1]['t_s']:.0f} s of {seconds:.0f}, {counts['rss_mib']:.1f} MiB")
    return lines


def verdict(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Compare the first part after warming up with the last: what is flat did not grow."""
    part = max(1, len(lines) // 5)
    settled, end = lines[part : 2 * part], lines[-part:]

    def grew(key: str) -> tuple[float, float]:
        before, after = (statistics.median(line[key] for line in half) for half in (settled, end))
        return before, after

    rss, fds, kept = grew("rss_mib"), grew("fds"), grew("kept")
    return {
        "seconds": lines[-1]["t_s"],
        "messages": lines[-1]["received"],
        "dropped": lines[-1]["dropped"] - lines[0]["dropped"],
        "rss_mib": rss,
        "rss_growth": rss[1] / rss[0] - 1,
        "fds": fds,
        "kept": kept,
        "flat": rss[1] <= rss[0] * 1.02 and fds[1] <= fds[0] and kept[1] <= kept[0] * 1.01,
    }


async def memory(plan: Plan, note: Callable[[str], None]) -> Row:
    """The short form; the hour is `python -m benchmarks.soak`."""
    found = verdict(await run(8 * plan.seconds, note, *service_args(plan)))
    before, after = found["rss_mib"]
    name = f"memory at full rate, every stream watched, {found['seconds']:.0f} s"
    texts = (f"{before:.1f} MiB", f"{after:.1f} MiB")
    return Row(name, *texts, after / before, "flat (≤ 2 %)", found["flat"], found)


def plot(lines: list[dict[str, Any]], path: Path) -> None:
    """Draw memory, processor time, rate and answer time over time."""
    import matplotlib as mpl  # type: ignore[import-not-found]

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # type: ignore[import-not-found]

    shown = (
        ("rss_mib", "memory, MiB"),
        ("cpu_percent", "CPU, % of a core"),
        ("rate_hz", "messages a second"),
        ("answer_ms", "what_do_you_see, ms"),
    )
    figure, axes = plt.subplots(2, 2, figsize=(10, 5), sharex=True, layout="constrained")
    minutes = [line["t_s"] / 60 for line in lines]
    for axis, (key, title) in zip(axes.flat, shown, strict=True):
        axis.plot(minutes, [line[key] for line in lines], linewidth=1)
        axis.set_title(title, fontsize=10, loc="left")
        axis.set_ylim(0, 1.1 * max(line[key] for line in lines))
        axis.grid(alpha=0.3)
    for axis in axes[1]:
        axis.set_xlabel("minutes")
    dropped = lines[-1]["dropped"] - lines[0]["dropped"]
    title = f"{TOPICS} topics × {RATE_HZ} Hz × 8 detections, all watched"
    figure.suptitle(
        f"{title}: {lines[-1]['received']:,.0f} messages, {dropped:.0f} dropped", fontsize=11
    )
    figure.savefig(path, dpi=110)


def main() -> int:
    """Run the soak; the exit code is 1 if something grew."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/soak"), help="no suffix")
    parser.add_argument("--draw", type=Path, metavar="CSV", help="only draw what was measured")
    parser.add_argument("--uvloop", action="store_true")
    options = parser.parse_args()
    if options.draw is not None:
        with options.draw.open(newline="") as file:
            measured = [{k: float(v) for k, v in line.items()} for line in csv.DictReader(file)]
        plot(measured, options.draw.with_suffix(".png"))
        return 0

    def note(text: str) -> None:
        print(f"\r{text}  ", end="", file=sys.stderr, flush=True)

    args = ("--uvloop",) if options.uvloop else ()
    with options.out.with_suffix(".csv").open("w", newline="", buffering=1) as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        lines = asyncio.run(run(options.minutes * 60, note, *args, keep=writer.writerow))
    found = verdict(lines)
    options.out.with_suffix(".json").write_text(json.dumps(found, indent=1))
    print("\n" + json.dumps(found, indent=1))
    return int(not found["flat"])


if __name__ == "__main__":
    sys.exit(main())
