"""The questions of a scene, and whether a reply is right; knows nothing of the service."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent
TOOLS = ("what_do_you_see", "what_changed")  # the order in which their answers are given


@dataclass(frozen=True)
class Evidence:
    """One fact from which an answer follows, as it stands in a text and in the data beside it."""

    text: str
    path: tuple[str | int, ...]  # into the data
    value: Any  # what stands there; of an object only what is named
    tool: str = TOOLS[0]


@dataclass(frozen=True)
class Question:
    """What a planner would ask; the answer is one of the choices where there are any."""

    ask: str
    answer: str
    evidence: tuple[Evidence, ...]
    choices: tuple[str, ...] = ()
    acts_on: tuple[str, str] | None = None  # skill and output, of "May I act on …?"


def scenes() -> list[str]:
    """Return the names of all scenes, which are those of their folders."""
    return sorted(path.parent.name for path in FOLDER.glob("*/questions.yaml"))


def questions(scene: str) -> list[Question]:
    """Return the questions of a scene, in the order of its file."""
    text = (FOLDER / scene / "questions.yaml").read_text(encoding="utf-8")
    return [_question(dict(one)) for one in yaml.safe_load(text)["questions"]]


def _question(given: dict[str, Any]) -> Question:
    evidence = tuple(Evidence(**{**one, "path": tuple(one["path"])}) for one in given["evidence"])
    choices = tuple(given.get("choices", ()))
    acts_on = tuple(given["acts_on"]) if "acts_on" in given else None
    return Question(given["ask"], given["answer"], evidence, choices, acts_on)


def told(scene: str, ending: str = "txt") -> dict[str, str]:
    """Return what the tools answer in a scene: texts, or with the ending `json` the data."""
    paths = ((tool, FOLDER / scene / f"{tool}.{ending}") for tool in TOOLS)
    return {tool: _answer(path) for tool, path in paths if path.is_file()}


def _answer(path: Path) -> str:
    return path.read_text(encoding="utf-8").removesuffix("\n")


def right(question: Question, reply: str) -> bool:
    """Whether a reply is the right answer: the same words, number or choice, and no other one."""
    said, answer = _plain(reply), _plain(question.answer)
    if said == answer:
        return True
    if question.choices:
        return _chosen(question.choices, said) == answer
    if _NUMBER.fullmatch(answer):
        numbers = _NUMBER.findall(said)
        return len(numbers) == 1 and float(numbers[0]) == float(answer)
    return False


_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?!\w|\.\d)")


def _chosen(choices: tuple[str, ...], said: str) -> str | None:
    """Return the only choice that stands in what is said, one within another left out."""
    found = [c for c in map(_plain, choices) if re.search(rf"(?<!\w){re.escape(c)}(?!\w)", said)]
    whole = [c for c in found if not any(c != other and c in other for other in found)]
    return whole[0] if len(whole) == 1 else None


def _plain(text: str) -> str:
    """Leave out case, spacing, marks around, and what a model thought aloud before."""
    spoken = text.rpartition("</think>")[2]
    return re.sub(r"\s+", " ", spoken).casefold().strip(" .*`\"'")
