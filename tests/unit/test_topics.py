import pytest

from mcp_perception_buffer.model import Kind
from mcp_perception_buffer.topics import TopicFilter


@pytest.mark.parametrize(
    ("topic", "skill", "output", "kind"),
    [
        ("/vision/find_object/detections", "find_object", "detections", "detections"),
        ("/vision/find_object/overlay", "find_object", "overlay", "overlay"),
        ("/vision/describe/scene", "describe", "scene", "semantic"),
        ("/vision/a/b/c", "a", "b/c", "semantic"),
        ("/vision/a/b/detections", "a", "b/detections", "semantic"),
    ],
)
def test_a_topic_names_skill_output_and_kind(
    topic: str, skill: str, output: str, kind: Kind
) -> None:
    info = TopicFilter().classify(topic, "t")
    assert info is not None
    assert (info.topic, info.skill, info.output, info.kind) == (topic, skill, output, kind)


@pytest.mark.parametrize(
    "topic",
    ["/visionary/a/b", "/vision", "/vision/", "/vision/a", "/vision/a/", "/other/vision/a/b"],
)
def test_a_prefix_matches_whole_segments_only(topic: str) -> None:
    assert TopicFilter().classify(topic, "t") is None


@pytest.mark.parametrize("topic", ["/vision/_dbg/x", "/vision/det/_action/feedback"])
def test_hidden_names_are_skipped_unless_asked_for(topic: str) -> None:
    assert TopicFilter().classify(topic, "t") is None
    assert TopicFilter(include_hidden=True).classify(topic, "t") is not None


def test_the_forms_in_which_image_transport_repeats_an_overlay_are_left_alone() -> None:
    assert TopicFilter().classify("/vision/a/overlay/compressed", "t") is None


@pytest.mark.parametrize("prefix", ["/vision/", "/vision", "/vision/**", "vision"])
def test_a_prefix_may_be_written_in_any_usual_way(prefix: str) -> None:
    assert TopicFilter([prefix]).classify("/vision/a/b", "t") is not None


@pytest.mark.parametrize(("prefix", "name"), [("/arm/vision/", "arm/vision/find"), ("/", "/find")])
def test_equal_skills_under_two_prefixes_stay_two(prefix: str, name: str) -> None:
    topics = TopicFilter(["/vision/", prefix])
    first = topics.classify("/vision/find/detections", "t")
    second = topics.classify(f"{prefix}find/detections", "t")
    assert first is not None
    assert second is not None
    assert (first.skill, second.skill) == ("find", name)
    for info in (first, second):
        assert topics.topic_of(info.skill, "detections") == info.topic


def test_the_camera_is_known_by_its_topic_alone() -> None:
    info = TopicFilter(camera_topic="/vision/cam/raw").classify("/vision/cam/raw", "t")
    assert info is not None
    assert info.kind == "camera"
