"""Bytes come from anyone on the network; `benchmarks/fuzz.py` tries many more of them."""

import random
from itertools import islice

import pytest

from fuzzing import SEEDS, Victim, mutations


@pytest.mark.parametrize(("topic", "type_name", "cdr"), SEEDS, ids=[seed[0] for seed in SEEDS])
def test_no_mutation_of_a_message_does_more_than_being_counted(
    topic: str, type_name: str, cdr: bytes
) -> None:
    victim = Victim()
    for index, broken in enumerate(islice(mutations(cdr, random.Random(7)), 500)):
        victim.take(topic, type_name, broken)
        if index % 50 == 0:
            victim.ask()
    victim.take(topic, type_name, cdr)
    victim.ask()
