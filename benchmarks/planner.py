"""How many of the scenes' questions does a model answer? `python -m benchmarks.planner [scene …]`.

Asks a model behind an address of OpenAI's kind, which the environment names, each question with the
scene's text, or with `--data` its JSON. The exit code is 1 if one had no answer, 2 if nothing could
be asked.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import httpx2
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from mcp_perception_buffer.decoding.text import one_line
from mcp_perception_buffer.errors import ConfigError, UnavailableError

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from scenes.questions import Question, questions, right, scenes, told

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SYSTEM = (
    "You plan what a robot does. You are given what its perception answered, and one question."
    " Answer from that alone, and with the answer alone: no sentence around it, no reasons."
)
# A model that fails so often in a row is not there, and is not asked any more.
GIVE_UP_AFTER = 5
SHOWN_CHARS = 100  # of a reply or a failure
OUTCOMES = ("right", "wrong", "no answer")


class Model(NamedTuple):
    """Where a model is asked, and under which name."""

    url: str
    name: str
    key: str  # empty where it wants none

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Model:
        """Read it from the environment.

        Raises:
            ConfigError: something is not set, or is no address.
        """
        needed = {
            "OPENAI_BASE_URL": "the address up to /v1, such as http://127.0.0.1:8080/v1",
            "OPENAI_MODEL": "the model's name there",
        }
        missing = [f"{name} ({what})" for name, what in needed.items() if not environment.get(name)]
        if missing:
            raise ConfigError(
                f"No model to ask: set {' and '.join(missing)};"
                " and OPENAI_API_KEY, if it wants one."
            )
        base = environment["OPENAI_BASE_URL"]
        if not _is_address(base):
            raise ConfigError(
                f"OPENAI_BASE_URL is no address: {one_line(base, SHOWN_CHARS)}. It begins with"
                " http:// or https://, such as http://127.0.0.1:8080/v1."
            )
        url = f"{base.rstrip('/')}/chat/completions"
        return cls(url, environment["OPENAI_MODEL"], environment.get("OPENAI_API_KEY", "").strip())


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


class Asked(NamedTuple):
    """One question and what came of it: a reply, or why there is none."""

    scene: str
    number: int
    question: Question
    reply: str | None
    failure: str = ""

    @property
    def outcome(self) -> str:
        """Return the column of the table that it counts in."""
        if self.reply is None:
            return "no answer"
        return "right" if right(self.question, self.reply) else "wrong"


def prompt(given: Mapping[str, str], question: Question) -> str:
    """Return what the model reads.

    Args:
        given: texts or data by the tool that gave them.
        question: asked of them.
    """
    parts = [f"{tool} answered:\n{answer}" for tool, answer in given.items()]
    parts.append(f"Question: {question.ask}")
    if question.choices:
        listed = "\n".join(f"- {choice}" for choice in question.choices)
        parts.append(f"Answer with one of these, word by word:\n{listed}")
    return "\n\n".join(parts)


async def ask(http: httpx2.AsyncClient, model: Model, content: str, timeout_s: float) -> str:
    """Return the model's reply; asks once.

    Raises:
        UnavailableError: there is none; the text says why.
    """
    headers = {"Authorization": f"Bearer {model.key}"} if model.key else {}
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": content}]
    body = {"model": model.name, "temperature": 0, "messages": messages}
    try:
        async with asyncio.timeout(timeout_s):
            response = await http.post(model.url, json=body, headers=headers)
    except TimeoutError:
        raise UnavailableError(f"nothing within {timeout_s:g} s") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as error:
        said = _hidden(str(error), model)
        raise UnavailableError(f"{type(error).__name__}: {said}") from None
    if response.status_code != 200:
        raise UnavailableError(f"HTTP {response.status_code}: {_hidden(response.text, model)}")
    try:
        reply = response.json()["choices"][0]["message"]["content"]
    except (ValueError, LookupError, TypeError):
        reply = None
    if not isinstance(reply, str):
        raise UnavailableError(f"no message in the response: {response.text}")
    return reply


def _hidden(text: str, model: Model) -> str:
    """Return what is shown of an error, in which a server may repeat the key."""
    return text.replace(model.key, "…") if model.key else text


async def put(
    chosen: Iterable[str], model: Model, ending: str, timeout_s: float, console: Console
) -> list[Asked]:
    """Put the questions of the chosen scenes one after another, and show how far it is."""
    found: list[Asked] = []
    todo = [(s, n, one) for s in chosen for n, one in enumerate(questions(s), 1)]
    failures = 0  # in a row
    bar = Progress(console=console, transient=True, disable=not console.is_terminal)
    with bar as progress:
        task = progress.add_task("", total=len(todo))
        async with httpx2.AsyncClient(timeout=timeout_s) as http:
            for scene, number, question in todo:
                progress.update(task, description=f"{scene} {number}")
                try:
                    if failures >= GIVE_UP_AFTER:
                        raise UnavailableError(f"not asked after {failures} failures in a row")
                    content = prompt(told(scene, ending), question)
                    one = Asked(scene, number, question, await ask(http, model, content, timeout_s))
                    failures = 0
                except UnavailableError as error:
                    one = Asked(scene, number, question, None, str(error))
                    failures = min(failures + 1, GIVE_UP_AFTER)
                if one.outcome != "right":
                    console.print(tell(one), markup=False, highlight=False, soft_wrap=True)
                found.append(one)
                progress.advance(task)
    return found


def table(found: list[Asked], title: str) -> Table:
    """Return the counts by scene, and of all."""
    made = Table("scene", title=escape(title), show_footer=True)
    made.columns[0].footer = "all"
    for heading in OUTCOMES:
        total = sum(one.outcome == heading for one in found)
        made.add_column(heading, justify="right", footer=str(total))
    for scene in dict.fromkeys(one.scene for one in found):
        mine = [one.outcome for one in found if one.scene == scene]
        made.add_row(scene, *(str(mine.count(heading) or "") for heading in OUTCOMES))
    return made


def tell(one: Asked) -> str:
    """Return what went wrong with one question, on a line."""
    came = f"no answer: {one.failure}" if one.reply is None else f"wrong: {one.reply}"
    asked = f"{one.scene} {one.number}: {one.question.ask} Right is {one.question.answer!r}"
    return f"{asked}; {one_line(came, SHOWN_CHARS)}"


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line; ends with exit code 2 where it is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planner", description=__doc__)
    names = scenes()
    parser.add_argument("scenes", nargs="*", help=f"of {', '.join(names)}; all by default")
    parser.add_argument("--data", action="store_true", help="give the JSON instead of the text")
    parser.add_argument("--timeout", type=float, default=60.0, help="of one question, seconds")
    chosen = parser.parse_args(arguments)
    if unknown := sorted(set(chosen.scenes) - set(names)):
        parser.error(f"no such scene: {', '.join(unknown)}; there are {', '.join(names)}")
    if not 0 < chosen.timeout < 86_400:
        parser.error("--timeout must be above 0 and below 86400")
    chosen.scenes = chosen.scenes or names
    return chosen


def main() -> int:
    """Ask, count and show."""
    chosen: Any = options()
    console = Console(width=None if sys.stdout.isatty() else 130)
    try:
        model = Model.of(os.environ)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    what = "data" if chosen.data else "text"
    ending = "json" if chosen.data else "txt"
    try:
        found = asyncio.run(put(chosen.scenes, model, ending, chosen.timeout, console))
    except KeyboardInterrupt:
        return 130
    console.print(table(found, f"{model.name}, from the {what}"))
    console.print(f"{sum(one.outcome == 'right' for one in found)} of {len(found)} right")
    return int(any(one.reply is None for one in found))


if __name__ == "__main__":
    sys.exit(main())
