"""What stands in the scenes' files is what the service says, and enough to answer by."""

import json
import re
import time
from collections.abc import Container
from typing import Any

import pytest
from mcp.client import Client
from mcp.types import TextContent

from conftest import Golden
from mcp_perception_buffer.answers.budget import DATA_FACTOR, size
from mcp_perception_buffer.answers.resources import Updates
from mcp_perception_buffer.answers.tools import create_mcp
from mcp_perception_buffer.answers.wording import RenderLimits
from mcp_perception_buffer.events.outbox import Outbox
from mcp_perception_buffer.tasks.static import StaticTaskSource
from mcp_perception_buffer.watcher import Watcher
from scenes.building import SCENES, answers, built
from scenes.questions import FOLDER, Evidence, Question, questions, right, scenes, told
from scenes.readers import DataReader, TextReader, agree, numbers, words

ALL = [
    pytest.param(scene, question, id=f"{scene}-{number}")
    for scene in scenes()
    for number, question in enumerate(questions(scene), 1)
]
# What in the data goes with the moment and the process.
MOVING = ("stamp", "generated_at", "cursor", "at")
every_scene = pytest.mark.parametrize("scene", SCENES)
every_question = pytest.mark.parametrize(("scene", "question"), ALL)


def text_of(scene: str, one: Evidence) -> TextReader:
    return TextReader(told(scene)[one.tool])


def data_of(scene: str, one: Evidence) -> DataReader:
    return DataReader(json.loads(told(scene, "json")[one.tool]))


# --- the files ----------------------------------------------------------------------------------


def test_there_are_ten_scenes_of_five_questions_each() -> None:
    assert set(scenes()) == set(SCENES)
    assert {scene: len(questions(scene)) for scene in SCENES} == dict.fromkeys(SCENES, 5)


@every_scene
def test_the_files_are_what_is_answered(scene: str, golden: Golden) -> None:
    for tool, answer in answers(scene).items():
        golden.check_file(FOLDER / scene / f"{tool}.txt", answer.text)
        data = json.dumps(answer.data, ensure_ascii=False, allow_nan=False, indent=1)
        golden.check_file(FOLDER / scene / f"{tool}.json", data)
        assert len(answer.text) <= RenderLimits().max_chars
        assert size(answer.data) <= DATA_FACTOR * RenderLimits().max_chars


@every_scene
async def test_a_client_of_the_service_reads_the_same(scene: str) -> None:
    stage, limits = built(scene, time.time()), RenderLimits()
    buffer = stage.scene.buffer
    watcher = Watcher(buffer, StaticTaskSource([]), Outbox(push=False))
    server = create_mcp(buffer, limits, watcher, stage.changes, Updates(buffer, limits))
    async with Client(server) as client:
        results = {
            tool: await client.call_tool(tool, {"since": stage.cursor} if "changed" in tool else {})
            for tool in told(scene)
        }
    for tool, result in results.items():
        # Of changes the ages are by the machine's clock, whatever the buffer's is.
        moving = MOVING if tool == "what_do_you_see" else (*MOVING, "age_s")
        assert isinstance(result.content[0], TextContent)
        assert timeless(result.content[0].text, moving) == timeless(told(scene)[tool], moving)
        expected = json.loads(told(scene, "json")[tool])
        assert timeless(result.structured_content, moving) == timeless(expected, moving)


def timeless(told: Any, moving: Container[str]) -> Any:
    """Leave out what moves, in the data and in words."""
    if isinstance(told, dict):
        return {key: timeless(value, moving) for key, value in told.items() if key not in moving}
    if isinstance(told, list):
        return [timeless(value, moving) for value in told]
    if not isinstance(told, str):
        return told
    unmarked = re.sub(r"since=\w+\.", "since=", told)
    return re.sub(r"[\d.]+ \w+ ago", "ago", unmarked) if "age_s" in moving else unmarked


# --- the questions ------------------------------------------------------------------------------


@every_question
def test_only_the_answer_is_right(scene: str, question: Question) -> None:
    assert right(question, question.answer)
    assert not right(question, "")
    assert not right(question, "I do not know")
    accepted = [choice for choice in question.choices if right(question, choice)]
    assert accepted == [question.answer] * bool(question.choices)
    assert not right(question, " or ".join(question.choices or (question.answer, "7.77")))


@every_question
def test_a_reader_of_the_text_alone_finds_each_fact_and_finds_it_once(
    scene: str, question: Question
) -> None:
    assert question.evidence
    for one in question.evidence:
        assert text_of(scene, one).count(one.text) == 1, one.text


@every_question
def test_a_reader_of_the_data_alone_finds_each_fact(scene: str, question: Question) -> None:
    for one in question.evidence:
        assert data_of(scene, one).holds(one.path, one.value), one.path


@every_question
def test_text_and_data_say_the_same_of_each_fact(scene: str, question: Question) -> None:
    for one in question.evidence:
        assert agree(one.text, one.path[-1], one.value), (one.text, one.path, one.value)


@every_question
def test_the_answer_consists_of_what_either_reader_found(scene: str, question: Question) -> None:
    texts = " ".join(one.text for one in question.evidence)
    data = json.dumps([(one.path, one.value) for one in question.evidence], ensure_ascii=False)
    for number in numbers(question.answer):
        places = len(number.partition(".")[2])
        assert number in numbers(texts)
        assert number in [f"{float(other):.{places}f}" for other in numbers(data)]
    if not question.choices:
        named = words(question.answer) - set(numbers(question.answer))
        assert named <= words(texts)
        assert named <= words(data)


@every_question
def test_no_other_choice_stands_in_the_evidence(scene: str, question: Question) -> None:
    texts = " ".join(one.text for one in question.evidence).casefold()
    standing = [c for c in question.choices if re.search(rf"\b{re.escape(c)}\b", texts)]
    assert standing in ([], [question.answer])
    if "left" in question.choices:
        assert standing


@every_question
def test_what_asks_for_acting_names_the_value_in_question(scene: str, question: Question) -> None:
    assert question.ask.startswith("May I act on") == bool(question.acts_on)


@pytest.mark.parametrize(("scene", "question"), [one for one in ALL if one.values[1].acts_on])
def test_both_readers_decide_alike_whether_one_may_act(scene: str, question: Question) -> None:
    assert question.acts_on is not None
    of_text = TextReader(told(scene)["what_do_you_see"])
    of_data = DataReader(json.loads(told(scene, "json")["what_do_you_see"]))
    allowed = question.answer == "yes"
    assert of_text.may_act_on(*question.acts_on) == allowed
    assert of_data.may_act_on(*question.acts_on) == allowed


# --- what counts as right -----------------------------------------------------------------------

EITHER = Question("?", "no", (), ("yes", "no", "not known"))
COUNT = Question("?", "9.0", ())
NAME = Question("?", "bowl, bottle", ())


@pytest.mark.parametrize(
    ("question", "reply"),
    [
        (EITHER, "No."),
        (EITHER, "**no**"),
        (EITHER, "No, it is stale"),
        (EITHER, "<think>yes? yes.</think>\nno"),
        (COUNT, "9.0 s"),
        (COUNT, "9"),
        (NAME, "Bowl,\n bottle"),
        (NAME, '"bowl, bottle"'),
    ],
)
def test_a_reply_is_right_whatever_its_dress(question: Question, reply: str) -> None:
    assert right(question, reply)


@pytest.mark.parametrize(
    ("question", "reply"),
    [
        (EITHER, "yes"),
        (EITHER, "yes or no"),
        (EITHER, "it is not known"),
        (EITHER, "nothing"),
        (COUNT, "between 8.0 and 9.0"),
        (COUNT, "9.01"),
        (COUNT, "1.9.0"),
        (COUNT, "r9"),
        (NAME, "bottle, bowl"),
        (NAME, "bowl"),
    ],
)
def test_a_reply_that_says_something_else_or_two_things_is_wrong(
    question: Question, reply: str
) -> None:
    assert not right(question, reply)
