"""Two readers of an answer: one sees nothing but its text, the other nothing but its data."""

from __future__ import annotations

import re
from typing import Any

# How a text says what in the data is true or false.
SIGNS = {
    ("alive", True): "alive", ("alive", False): "SILENT", ("ahead", True): "ahead",
    ("ahead", False): "behind", ("stale", True): "STALE", ("stale", False): "",
    ("discovering", True): "discovering", ("discovering", False): "Nothing is being published",
    ("value", True): "true", ("value", False): "false",
}  # fmt: skip
# The same of what is not there at all.
NOTHING = "no vision skill is running, so nothing is known"


class TextReader:
    """Reads lines and words."""

    def __init__(self, text: str) -> None:
        self._text = text

    def count(self, words: str) -> int:
        """Return how often these words stand in the text, on a line of it."""
        return sum(line.count(words) for line in self._text.splitlines())

    def may_act_on(self, skill: str, output: str) -> bool:
        """Whether its line and its heading are fresh and no warning names the skill."""
        head, *blocks = self._text.split("\n\n")
        warned = [line for line in head.splitlines() if line.startswith("WARNING: ")]
        if any(re.search(rf"(?<!\S){re.escape(skill)}\b(?!/)", line) for line in warned):
            return False
        for block in blocks:
            heading, *lines = block.splitlines()
            if heading.startswith(f"{skill}: fresh"):
                prefix = "- " if output == "detections" else f"- {output}: "
                line = next(line for line in lines if line.startswith(prefix))
                return not re.search(r"\(.*\b(STALE|GONE)\b.*\)$", line)
        return False


class DataReader:
    """Follows paths."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def holds(self, path: tuple[str | int, ...], value: Any) -> bool:
        """Whether this value stands there; of an object that is not empty, what is named."""
        found = self._data
        for step in path:
            found = found[step]
        if isinstance(value, dict) and value:
            return bool(value.items() <= found.items())
        return bool(found == value)

    def may_act_on(self, skill: str, output: str) -> bool:
        """Whether its value is not stale and no warning names the skill."""
        said = self._data["skills"].get(skill)
        if said is None:
            return False
        value = said["detections"] if output == "detections" else said["outputs"].get(output)
        warned = any(skill in re.findall(r"[\w/]+", one) for one in self._data["warnings"])
        return value is not None and not value["stale"] and not warned


def agree(text: str, key: str | int, value: Any) -> bool:
    """Whether words and a value say the same: numbers as rounded there, text letter by letter."""
    if isinstance(value, dict) and value:
        return all(agree(text, name, one) for name, one in value.items())
    if isinstance(value, bool):
        return SIGNS[str(key), value] in text
    if not value:
        return text in NOTHING
    if isinstance(value, str):
        return value.casefold() in text.casefold()
    return any(number == f"{value:.{len(number.partition('.')[2])}f}" for number in numbers(text))


def numbers(text: str) -> list[str]:
    """Return the numbers in a text, as they are written there."""
    return re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?![\w]|\.\d)", text)


def words(text: str) -> set[str]:
    """Return the words of a text, in lower case."""
    return set(re.findall(r"[\w.]*\w", text.casefold()))
