"""Hostile messages, many of them: `python -m benchmarks.fuzz [mutations of each kind] [seed]`.

Each is put into a buffer that is asked as by a brain. Prints the CPU time of the slowest one of
each kind, which is mostly the first, whose type's shape is found out, and the most memory so far;
ends at the first that does more than being counted, a warning included.
"""

from __future__ import annotations

import random
import resource
import sys
import time
import warnings
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
            # Of this process alone: what others do meanwhile says nothing about a message.
            began = time.process_time()
            try:
                take(victim, topic, type_name, broken, ask=index % ASK_EVERY == 0)
            except BaseException:
                console.print(f"[red]{topic} {type_name} mutation {index}:[/] {broken.hex()}")
                raise
            slowest_s = max(slowest_s, time.process_time() - began)
        name = type_name.rpartition("/")[2]
        row = (topic, name, f"{victim.put:,}", f"{slowest_s * 1e3:.1f}", f"{peak_mib():.0f}")
        table.add_row(*row)
    console.print(table)


def take(victim: Victim, topic: str, type_name: str, cdr: bytes, *, ask: bool) -> None:
    """Put one message, and ask; fails if anything warns, which the decoder would take for bytes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        victim.take(topic, type_name, cdr)
        if ask:
            victim.ask()
    assert not caught, caught[0]


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
