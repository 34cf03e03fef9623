"""The counting script, as a person runs it, against a model that is a real HTTP server."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from scenes.questions import questions, scenes, told
from support import REPOSITORY

# What a question is answered with: a reply, a status, a body, or nothing at all.
Mood = str | int | dict[str, Any] | None


def answer(content: str) -> str:
    """Know which scene it is by what is given of it, since some questions are asked of several."""
    (found,) = (
        one.answer
        for scene in scenes()
        for one in questions(scene)
        if f"Question: {one.ask}\n" in f"{content}\n"
        and any(
            f"{told(scene, ending)['what_do_you_see']}\n" in content for ending in ("txt", "json")
        )
    )
    return found


@dataclass
class Model:
    """Answers as it is told to, and keeps what it was asked."""

    mood: Callable[[str], Mood] = answer
    url: str = ""
    bodies: list[Any] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.keys.append(request.headers.get("Authorization"))
        mood = self.mood(body["messages"][-1]["content"])
        if mood is None:
            await asyncio.sleep(3600)
        if isinstance(mood, int):
            return web.Response(status=mood, text="[red]broken[/nope]\nsk-secret")
        if isinstance(mood, dict):
            return web.json_response(mood)
        return web.json_response({"choices": [{"message": {"content": mood}}]})


@pytest.fixture
async def model() -> AsyncIterator[Model]:
    made = Model()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", made.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        yield made
    finally:
        await runner.cleanup()


async def run(*arguments: str, **environment: str) -> tuple[int, str, str]:
    """Return exit code, output and errors."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.planner", *arguments,
        cwd=REPOSITORY, env={"PYTHONIOENCODING": "utf-8", **environment},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(60):
            out, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, out.decode(), errors.decode()


async def asked(model: Model, *arguments: str, **environment: str) -> tuple[int, str]:
    known = {"OPENAI_BASE_URL": model.url, "OPENAI_MODEL": "m-1", **environment}
    code, out, errors = await run(*arguments, **known)
    assert errors == ""
    return code, out


def row(out: str, name: str) -> list[str]:
    """Return a row of the table: right, wrong, no answer."""
    line = next(line for line in out.splitlines() if re.match(rf"│ {name} ", line))
    return [cell.strip() for cell in line.strip("│").split("│")][1:]


async def test_all_right_answers_of_all_scenes_are_counted(model: Model) -> None:
    code, out = await asked(model)
    assert code == 0
    assert row(out, "all") == ["50", "0", "0"]
    assert row(out, "one_cup") == ["5", "", ""]
    assert "50 of 50 right" in out


async def test_wrong_replies_and_failures_are_counted_apart_and_shown(model: Model) -> None:
    moods: list[Mood] = ["No!", 500, "[bold]two", {"choices": []}, None]
    turn = iter(moods)
    model.mood = lambda content: next(turn, answer(content))
    code, out = await asked(model, "one_cup", "two_stale", "--timeout", "5")
    assert code == 1
    assert row(out, "one_cup") == ["", "2", "3"]
    assert row(out, "two_stale") == ["5", "", ""]
    assert row(out, "all") == ["5", "2", "3"]
    assert len(model.bodies) == 10
    for said in (
        "one_cup 1: May I act on the position of the cup? Right is 'yes'; wrong: No!",
        "no answer: HTTP 500: [red]broken[/nope]",
        "wrong: [bold]two",
        'no answer: no message in the response: {"choices": []}',
        "no answer: nothing within 5 s",
    ):
        assert said in out


async def test_the_model_gets_the_text_or_the_data_but_never_the_answer(model: Model) -> None:
    await asked(model, "swapped_tracks", OPENAI_API_KEY="sk-secret")
    await asked(model, "swapped_tracks", "--data")
    assert model.keys == ["Bearer sk-secret"] * 5 + [None] * 5
    for body, ending in zip(model.bodies, ["txt"] * 5 + ["json"] * 5, strict=True):
        assert (body["model"], body["temperature"]) == ("m-1", 0)
        content = body["messages"][-1]["content"]
        for tool, given in told("swapped_tracks", ending).items():
            assert f"{tool} answered:\n{given}\n" in content
        assert "evidence" not in content
    listed = model.bodies[2]["messages"][-1]["content"]
    assert listed.endswith("Answer with one of these, word by word:\n- left\n- centre\n- right")


async def test_a_model_that_always_fails_is_left_alone_and_keeps_its_key(model: Model) -> None:
    model.mood = lambda content: 401
    code, out = await asked(model, OPENAI_API_KEY="sk-secret")
    assert code == 1
    assert len(model.bodies) == 5
    assert row(out, "all") == ["0", "0", "50"]
    assert "not asked after 5 failures in a row" in out
    assert "sk-secret" not in out


async def test_without_a_model_it_says_what_to_set() -> None:
    code, out, errors = await run()
    assert (code, out) == (2, "")
    assert "set OPENAI_BASE_URL (" in errors
    assert "OPENAI_MODEL (" in errors
    assert "OPENAI_API_KEY" in errors
    assert errors.count("\n") == 1
    code, _, errors = await run(OPENAI_MODEL="m-1", OPENAI_BASE_URL="localhost:8080")
    assert code == 2
    assert errors.startswith("OPENAI_BASE_URL is no address: localhost:8080.")


async def test_an_unknown_scene_is_answered_with_the_known_ones() -> None:
    code, _, errors = await run("nope")
    assert code == 2
    assert f"no such scene: nope; there are {', '.join(scenes())}" in errors


async def test_an_address_where_nobody_listens_is_no_answer() -> None:
    known = {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1", "OPENAI_MODEL": "m-1"}
    code, out, errors = await run("empty", **known)
    assert (code, errors) == (1, "")
    assert "no answer: ConnectError" in out
    assert row(out, "empty") == ["", "", "5"]
