"""Bytes come from anyone on the network; `benchmarks/fuzz.py` tries many more of them."""

import random
import struct
import warnings
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


@pytest.mark.parametrize(("topic", "type_name", "cdr"), SEEDS, ids=[seed[0] for seed in SEEDS])
def test_a_nan_that_signals_warns_of_nothing_wherever_it_stands(
    topic: str, type_name: str, cdr: bytes
) -> None:
    victim = Victim()
    with warnings.catch_warnings(record=True) as caught:  # raised, it would count as undecodable
        warnings.simplefilter("always")
        _put_everywhere(victim, topic, type_name, cdr)
    assert caught == []


def _put_everywhere(victim: Victim, topic: str, type_name: str, cdr: bytes) -> None:
    for nan in (struct.pack("<I", 0x7FA0_0000), struct.pack("<Q", 0x7FF4_0000_0000_0000)):
        for at in range(4, len(cdr) - len(nan), 4):
            victim.take(topic, type_name, cdr[:at] + nan + cdr[at + len(nan) :])
        victim.ask()
