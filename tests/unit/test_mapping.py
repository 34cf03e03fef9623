"""The setting `streams`, its presets and the names of classes."""

from pathlib import Path

import pytest

from mcp_perception_buffer.decoding.decoder import Decoder
from mcp_perception_buffer.decoding.labels import load_labels
from mcp_perception_buffer.errors import ConfigError
from mcp_perception_buffer.model import StreamInfo
from mcp_perception_buffer.settings import load_settings, packaged_config
from mcp_perception_buffer.sources.mapping import suggest
from support import definition

LABELS = packaged_config() / "names"
ARRAY_2D = "vision_msgs/msg/Detection2DArray"
YOLO = "yolo_msgs/msg/DetectionArray"


def classified(topic: str, type_name: str, *words: str, folder: Path | None = None) -> StreamInfo:
    settings, _ = load_settings(words, folder)
    info = settings.topics(Decoder(definition).kind_of).classify(topic, type_name)
    assert info is not None
    return info


@pytest.mark.parametrize(
    ("preset", "topic", "type_name", "skill"),
    [
        ("yolo_ros", "/yolo/detections", YOLO, "yolo"),
        ("yolo_ros", "/r1/yolo/tracking", YOLO, "r1/yolo/tracking"),
        (
            *("depthai", "/oak/nn/spatial_detections"),
            *("depthai_ros_msgs/msg/SpatialDetectionArray", "oak/nn"),
        ),
        (
            *("zed", "/zed/zed_node/obj_det/objects", "zed_msgs/msg/ObjectsStamped"),
            *("zed/objects",),
        ),
        ("isaac_ros", "/detections_output", ARRAY_2D, "isaac"),
        ("detectnet", "/detectnet/detections", ARRAY_2D, "detectnet"),
        ("auto", "/anywhere/detections", ARRAY_2D, "anywhere"),
    ],
)
def test_a_preset_maps_its_detectors_topics(
    preset: str, topic: str, type_name: str, skill: str
) -> None:
    info = classified(topic, type_name, f"streams={preset}")
    assert (info.skill, info.kind) == (skill, "detections")


def test_a_presets_camera_stands_above_the_usual_one_and_below_what_is_said() -> None:
    settings, origins = load_settings(["streams=depthai"])
    assert settings.camera_topic == "/*/rgb/camera_info"
    assert origins.of("camera_topic").endswith("streams/depthai.yaml")
    said, _ = load_settings(["streams=depthai", "camera_topic=/front/image"])
    assert said.camera_topic == "/front/image"


def test_rules_of_ones_own_stand_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "buffer.yaml").write_text(
        "streams:\n"
        "  - {topic: /a/found, skill: a, labels: [cup, plate]}\n"
        "  - {topic: /odd, skill: odd, fields: {list: found, label: what}}\n"
        "  - auto\n"
        "labels: coco80\n"
    )
    own = classified("/a/found", ARRAY_2D, folder=tmp_path)
    assert (own.skill, dict(own.reading.labels)) == ("a", {"0": "cup", "1": "plate"})
    odd = classified("/odd", "x", folder=tmp_path)
    assert (odd.reading.fields, odd.reading.labels["0"]) == (
        {"list": "found", "label": "what"},
        "person",
    )
    found = classified("/elsewhere/detections", ARRAY_2D, folder=tmp_path)
    assert (found.skill, found.reading.labels["79"]) == ("elsewhere", "toothbrush")


def test_rules_of_ones_own_stand_on_the_command_line() -> None:
    info = classified("/r1/x", ARRAY_2D, "streams=[{topic:/*/x,skill:a}, auto]")
    assert (info.skill, info.robot) == ("r1/a", "r1")
    assert classified("/y/detections", ARRAY_2D, "streams=[{topic:/x}, auto]").skill == "y"
    with pytest.raises(ConfigError, match="a topic begins with"):
        load_settings(["streams=[{topic:x}]"])
    with pytest.raises(ConfigError, match="cannot be composed"):
        load_settings(["streams=[{topic:"])


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("{topic: yolo, skill: a}", "a topic begins with '/'"),
        ("{skill: a}", "Field required"),
        ("{topic: /a, skill: a, fields: {labl: x}}", "labl is unknown"),
        ("{topic: /a, skill: 'a b'}", "skill"),
        ("{topic: /a, skills: a}", "skills"),
        ("{topic: /a, kind: boxes}", "kind"),
    ],
)
def test_a_wrong_rule_is_told(tmp_path: Path, rule: str, said: str) -> None:
    (tmp_path / "buffer.yaml").write_text(f"streams: [{rule}]\n")
    with pytest.raises(ConfigError, match="streams") as caught:
        load_settings((), tmp_path)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("names.txt", "cup\n\nplate\n"),
        ("names.yaml", "[cup, plate]"),
        ("names.yml", "{0: cup, 1: plate}"),
        ("data.yaml", "nc: 2\nnames:\n  0: cup\n  1: plate\n"),
    ],
)
def test_labels_come_from_a_file_in_any_usual_form(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert load_labels(str(path), LABELS) == {"0": "cup", "1": "plate"}


def test_the_packaged_labels_are_the_eighty_of_coco() -> None:
    names = load_labels("coco80", LABELS)
    assert (len(names), names["0"], names["39"], names["79"]) == (
        80, "person", "bottle", "toothbrush",
    )  # fmt: skip


def test_labels_that_cannot_be_read_end_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="one name a line"):
        load_labels(str(tmp_path / "none.txt"), LABELS)
    (tmp_path / "empty.txt").touch()
    with pytest.raises(ConfigError, match="0 names"):
        load_labels(str(tmp_path / "empty.txt"), LABELS)


def test_a_detector_that_is_not_mapped_is_told_with_the_line_to_paste() -> None:
    decoder = Decoder(definition)

    def suggested(topic: str, type_name: str) -> str:
        found = suggest(topic, type_name, decoder.why_unreadable("detections", type_name))
        return found.advice if found else ""

    line = "add to streams: - {topic: /yolo/detections, skill: yolo}"
    assert suggested("/yolo/detections", YOLO) == f"{line}; or serve streams=auto"
    assert suggested("/yolo/detections", "later_msgs/msg/DetectionArray").endswith(f"then {line}")
    assert "map it with fields" in suggested("/x", "yolo_msgs/msg/BoundingBox2D")
    assert suggested("/image", "sensor_msgs/msg/Image") == ""
