import json

import pytest

from mcp_perception_buffer.decoding.text import MAX_LABEL_CHARS, label, one_line


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("a cup\nand\r\n\ta plate", "a cup and a plate"),
        ("red\x1b[31mtext\x00", "red [31mtext"),
        ("abc\u202edcba\u2066x\u2069", "abcdcbax"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("tag\U000e0041\U000e0042s", "tags"),
        ("lone \ud800 surrogate", "lone surrogate"),
        ("line\u2028separator\u0085next", "line separator next"),
        ("Tür offen ☕ 👩‍🚀", "Tür offen ☕ 👩‍🚀"),
        ("zero\u200d\u200c\u200dwidth\ufe0f\ufe0f", "zero\u200dwidth\ufe0f"),
        ("❤️\u200d🔥 می\u200cخواهم", "❤️\u200d🔥 می\u200cخواهم"),
        ("sel\ufe01ected \u3164\u2800", "selected"),
        ("   ", ""),
    ],
)
def test_text_becomes_one_clean_line(given: str, shown: str) -> None:
    assert one_line(given) == shown
    json.dumps(one_line(given), ensure_ascii=False).encode()


def test_long_text_is_cut_and_says_so() -> None:
    cut = one_line("x" * 10_000_000, 100)
    assert len(cut) == 100
    assert cut.endswith("…")


def test_text_that_is_hidden_characters_for_long_still_ends_cut() -> None:
    assert one_line("\u200b" * 1000 + "late", 10) == "…"


def test_labels_are_capped() -> None:
    assert len(label("y" * 1_000_000)) == MAX_LABEL_CHARS
