"""Hostile messages, many of them: `python -m benchmarks.fuzz [mutations of each kind] [seed]`.

Each is put into a buffer that is asked as by a brain. Prints the slowest one of each kind and the
most memory so far; ends at the first that does more than being counted.
"""

from __future__ import annotations

import random
import resource
import sys
import time
from itertools import islice
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fuzzing import SEEDS, Victim, mutations

ASK_EVERY = 200


def peak_mib() -> float:
    """Return the most memory that this process ever had resident."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(count: int = 100_000, seed: int = 1) -> None:
    """Try `count` mutations of every kind of message."""
    console = Console()
    table = Table("kind", "type", "mutations", "slowest ms", "peak MiB", title=f"seed {seed}")
    for topic, type_name, cdr in SEEDS:
        victim, slowest_s = Victim(), 0.0
        tried = islice(mutations(cdr, random.Random(seed)), count)
        for index, broken in enumerate(track(tried, topic, total=count, console=console)):
            began = time.perf_counter()
            try:
                victim.take(topic, type_name, broken)
                if index % ASK_EVERY == 0:
                    victim.ask()
            except BaseException:
                console.print(f"[red]{topic} {type_name} mutation {index}:[/] {broken.hex()}")
                raise
            slowest_s = max(slowest_s, time.perf_counter() - began)
        name = type_name.rpartition("/")[2]
        row = (topic, name, f"{victim.put:,}", f"{slowest_s * 1e3:.1f}", f"{peak_mib():.0f}")
        table.add_row(*row)
    console.print(table)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
