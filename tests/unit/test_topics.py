import pytest

from mcp_perception_buffer.model import Kind, StreamInfo
from mcp_perception_buffer.sources.topics import Rule, TopicFilter, auto_name


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


def test_names_that_only_a_bag_allows_are_fit_to_be_shown_and_the_topic_stays_as_it_is() -> None:
    topic = "/vision/find\n\u202eme/te\x1bxt"
    info = TopicFilter().classify(topic, "t")
    assert info == StreamInfo(topic, "find me", "te xt", "semantic", "t")
    hidden = TopicFilter().classify("/vision/\u200b/text", "t")
    assert hidden is not None
    assert hidden.skill == "(no name)"


def test_the_camera_is_known_by_its_topic_alone() -> None:
    info = TopicFilter(camera_topic="/vision/cam/raw").classify("/vision/cam/raw", "t")
    assert info is not None
    assert info.kind == "camera"


def kind_of(type_name: str) -> Kind | None:
    return {"d": "detections", "i": "overlay", "c": "camera", "s": "semantic"}.get(type_name)  # type: ignore[return-value]


def classified(topic: str, type_name: str, *rules: Rule, auto: bool = False) -> StreamInfo | None:
    return TopicFilter(rules=rules, auto=auto, kind_of=kind_of).classify(topic, type_name)


@pytest.mark.parametrize(
    ("rule", "topic", "type_name", "found"),
    [
        (Rule("/yolo/detections", "yolo"), "/yolo/detections", "d", ("yolo", "detections", "")),
        (Rule("/*/yolo/x", "yolo"), "/r1/yolo/x", "d", ("r1/yolo", "detections", "r1")),
        (Rule("/*/yolo/detections"), "/r1/yolo/detections", "d", ("r1/yolo", "detections", "r1")),
        (Rule("/dbg", "yolo"), "/dbg", "i", ("yolo", "overlay", "")),
        (Rule("/count", "yolo"), "/count", "s", ("yolo", "count", "")),
        (Rule("/count", "yolo", "how_many"), "/count", "s", ("yolo", "how_many", "")),
        (Rule("/*/info", kind="camera"), "/r1/info", "c", ("", "", "r1")),
        (Rule("/a/b", "odd"), "/a/b", "unknown", ("odd", "detections", "")),
    ],
)
def test_a_rule_maps_a_topic_to_a_skill(
    rule: Rule, topic: str, type_name: str, found: tuple[str, str, str]
) -> None:
    info = classified(topic, type_name, rule)
    assert info is not None
    assert (info.skill, info.output, info.robot) == found
    assert classified("/other" + topic, type_name, rule) is None


def test_a_rule_comes_before_the_prefixes_and_keeps_how_it_is_read() -> None:
    rule = Rule("/vision/a/detections", "mine")
    info = classified("/vision/a/detections", "d", rule)
    assert info is not None
    assert (info.skill, info.reading) == ("mine", rule.reading)


def test_a_wildcard_matches_one_whole_segment_and_no_hidden_one() -> None:
    rule = Rule("/*/yolo", "yolo")
    for topic in ("/yolo", "/a/b/yolo", "/a/yolo/b", "/a/yolox", "/_hidden/yolo"):
        assert classified(topic, "d", rule) is None


def test_all_detectors_are_found_by_their_type_and_nothing_else() -> None:
    info = classified("/r1/yolo/detections", "d", auto=True)
    assert info is not None
    assert (info.skill, info.robot) == ("r1/yolo", "r1")
    tracking = classified("/yolo/tracking", "d", auto=True)
    assert tracking is not None
    assert (tracking.skill, tracking.robot) == ("yolo/tracking", "")
    assert classified("/yolo/image", "i", auto=True) is None
    assert classified("/yolo/_dbg/x", "d", auto=True) is None
    assert classified("/r1/yolo/detections", "d") is None


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("/yolo/detections", "yolo"),
        ("/yolo/tracking", "yolo/tracking"),
        ("/zed/zed_node/obj_det/objects", "zed/zed_node/obj_det"),
        ("/detections_output", "detections_output"),
    ],
)
def test_a_detector_is_called_after_its_namespace(topic: str, name: str) -> None:
    assert auto_name(topic) == name


def test_a_robot_may_be_named_by_the_prefix_and_the_cameras_topic() -> None:
    topics = TopicFilter(["/*/vision/"], camera_topic="/*/camera/image_raw")
    info = topics.classify("/r1/vision/find/detections", "t")
    camera = topics.classify("/r1/camera/image_raw", "t")
    assert info is not None
    assert camera is not None
    assert (info.skill, info.robot) == ("r1/find", "r1")
    assert (camera.kind, camera.robot) == ("camera", "r1")
