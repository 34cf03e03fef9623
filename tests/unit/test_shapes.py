"""The messages of public detectors are read by the shape of their definitions."""

import math
from typing import Any

import pytest
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from mcp_perception_buffer.decoding.decoder import MAX_DETECTIONS, Decoder
from mcp_perception_buffer.errors import DecodeError
from mcp_perception_buffer.model import (
    Box,
    Detection,
    Hypothesis,
    Observation,
    Point,
    Quaternion,
    Reading,
    Size,
    Stamp,
)
from support import STORE, definition, filled, serialise, stream

HEADER = {"stamp": {"sec": 7, "nanosec": 8}, "frame_id": "optical"}
ARRAY_2D = "vision_msgs/msg/Detection2DArray"
ARRAY_3D = "vision_msgs/msg/Detection3DArray"
YOLO = "yolo_msgs/msg/DetectionArray"
OAK = "depthai_ros_msgs/msg/SpatialDetectionArray"
ZED = "zed_msgs/msg/ObjectsStamped"
NESTED = "ultralytics_ros/msg/YoloResult"


def read(type_name: str, given: dict[str, Any], **reading: Any) -> Observation:
    info = stream("detections", type_name, reading=Reading(**reading))
    decoder = Decoder(definition)
    assert decoder.why_unreadable("detections", type_name, info.reading) is None
    return decoder.decode(info, serialise(filled(type_name, given)))


def only(type_name: str, element: dict[str, Any], where: str = "detections", **r: Any) -> Detection:
    [found] = read(type_name, {"header": HEADER, where: [element]}, **r).detections
    return found


def hypothesis(class_id: str, score: float, at: tuple[float, ...] = (0, 0, 0)) -> dict[str, Any]:
    position = dict(zip("xyz", at, strict=True))
    return {
        "hypothesis": {"class_id": class_id, "score": score},
        "pose": {"pose": {"position": position}},
    }


def box_2d(x: float, y: float, width: float, height: float, theta: float = 0) -> dict[str, Any]:
    center = {"position": {"x": x, "y": y}, "theta": theta}
    return {"center": center, "size_x": width, "size_y": height}


def box_3d(at: tuple[float, ...], size: tuple[float, ...], w: float = 1) -> dict[str, Any]:
    return {
        "center": {"position": dict(zip("xyz", at, strict=True)), "orientation": {"w": w}},
        "size": dict(zip("xyz", size, strict=True)),
    }


# --- vision_msgs --------------------------------------------------------------------------------


def test_a_detection_2d_array_with_inner_stamps_of_zero_and_digits_for_classes_is_read() -> None:
    element = {"results": [hypothesis("1", 0.9)], "bbox": box_2d(100, 50, 40, 20)}
    fields = {"header": {**HEADER, "frame_id": ""}, "detections": [element]}
    seen = read(ARRAY_2D, fields)
    assert (seen.stamp, seen.frame_id) == (Stamp(7, 8), "")
    [found] = seen.detections
    assert found == Detection("class 1", 0.9, Box(80, 40, 40, 20))
    [named] = read(ARRAY_2D, fields, labels={"1": "bicycle"}).detections
    assert named.label == "bicycle"


def test_the_best_hypothesis_leads_and_the_others_stay() -> None:
    results = [hypothesis("cat", 0.3), hypothesis("dog", 0.6), hypothesis("fox", math.nan)]
    found = only(ARRAY_2D, {"results": results, "bbox": box_2d(1, 1, 2, 2), "id": "t-4"})
    assert (found.label, found.score, found.track_id) == ("dog", 0.6, "t-4")
    assert found.others == (Hypothesis("cat", 0.3), Hypothesis("fox", None))


def test_a_detection_without_a_hypothesis_has_no_invented_name() -> None:
    found = only(ARRAY_2D, {"bbox": box_2d(1, 1, 2, 2)})
    assert (found.label, found.score) == ("(no label)", None)


def test_a_rotated_box_is_read_as_its_hull() -> None:
    found = only(ARRAY_2D, {"bbox": box_2d(100, 50, 40, 20, theta=math.pi / 2)})
    assert found.box == pytest.approx((90, 30, 20, 40))


@pytest.mark.parametrize("side", [0.0, -3.0, math.nan, math.inf])
def test_a_box_with_a_side_that_is_none_is_no_box(side: float) -> None:
    assert only(ARRAY_2D, {"bbox": box_2d(1, 1, side, 2)}).box is None
    assert only(ARRAY_2D, {"bbox": box_2d(1, 1, 2, side, theta=0.5)}).box is None


@pytest.mark.parametrize("score", [-0.1, 1.5, 87.0, math.nan, math.inf])
def test_a_score_outside_its_scale_is_none(score: float) -> None:
    found = only(ARRAY_2D, {"results": [hypothesis("cup", score)], "bbox": box_2d(1, 1, 2, 2)})
    assert (found.label, found.score) == ("cup", None)


def test_a_detection_in_space_has_point_size_and_orientation() -> None:
    element = {
        "header": {"frame_id": "map"},
        "results": [hypothesis("cup", 0.9)],
        "bbox": box_3d((1, 2, 3), (0.1, 0.2, 0.3)),
    }
    found = only(ARRAY_3D, element)
    assert found == Detection(
        "cup",
        0.9,
        point=Point(1, 2, 3),
        size=Size(0.1, 0.2, 0.3),
        orientation=Quaternion(0, 0, 0, 1),
        frame_id="map",
    )


def test_a_flat_box_in_space_is_in_pixels_and_its_point_in_the_hypothesis() -> None:
    flat = box_3d((320, 240, 0), (64, 48, 0.01))
    found = only(ARRAY_3D, {"results": [hypothesis("0", 0.8, (0.1, -0.2, 1.5))], "bbox": flat})
    assert found.box == Box(288, 216, 64, 48)
    assert (found.point, found.size) == (Point(0.1, -0.2, 1.5), None)
    without_depth = only(ARRAY_3D, {"results": [hypothesis("0", 0.8)], "bbox": flat})
    assert (without_depth.box, without_depth.point) == (found.box, None)


@pytest.mark.parametrize("name", ["Detection2D", "Detection3D", "Classification"])
def test_one_detection_or_classification_alone_is_a_list_of_one(name: str) -> None:
    results: list[dict[str, Any]] = [hypothesis("cup", 0.2), hypothesis("mug", 0.7)]
    if name == "Classification":
        results = [result["hypothesis"] for result in results]
    seen = read(f"vision_msgs/msg/{name}", {"header": HEADER, "results": results})
    [found] = seen.detections
    assert (seen.stamp, found.label, found.score) == (Stamp(7, 8), "mug", 0.7)
    assert found.others == (Hypothesis("cup", 0.2),)


# --- yolo, OAK, ZED, nested, home-made ----------------------------------------------------------


def test_a_yolo_detection_is_read_with_mask_keypoints_and_its_own_frame() -> None:
    point = {"point": {"x": 1, "y": 2}}
    found = only(
        YOLO,
        {
            "class_id": 39,
            "class_name": "bottle",
            "score": 0.75,
            "id": "7",
            "bbox": {"center": {"position": {"x": 50, "y": 40}}, "size": {"x": 20, "y": 10}},
            "bbox3d": {**box_3d((0.5, 0, 2), (0.1, 0.1, 0.3)), "frame_id": "base_link"},
            "mask": {"width": 640, "height": 480, "data": [{"x": 1, "y": 1}] * 3},
            "keypoints": {"data": [point] * 17},
        },
    )
    assert (found.label, found.score, found.track_id) == ("bottle", 0.75, "7")
    assert (found.box, found.point) == (Box(40, 35, 20, 10), Point(0.5, 0, 2))
    assert (found.frame_id, found.size) == ("base_link", Size(0.1, 0.1, 0.3))
    assert (found.has_mask, found.keypoints) == (True, 17)


def test_a_yolo_detection_without_tracking_depth_mask_or_name_has_none_of_them() -> None:
    bbox = {"center": {"position": {"x": 50, "y": 40}}, "size": {"x": 20, "y": 10}}
    found = only(YOLO, {"class_id": 3, "score": 0.5, "bbox": bbox})
    assert found == Detection("class 3", 0.5, Box(40, 35, 20, 10))


def test_a_spatial_detection_at_the_origin_has_no_depth() -> None:
    def spatial(x: float, y: float, z: float) -> dict[str, Any]:
        return {
            "results": [{"class_id": "15", "score": 0.9}],
            "bbox": box_2d(100, 50, 40, 20),
            "position": {"x": x, "y": y, "z": z},
            "tracking_id": "4",
        }

    listed = [spatial(0, 0, 0), {**spatial(-0.4, 0.1, 1.2), "is_tracking": True}]
    seen = read(OAK, {"header": HEADER, "detections": listed})
    first, second = seen.detections
    assert (first.point, first.track_id) == (None, None)
    assert (second.point, second.track_id) == (Point(-0.4, 0.1, 1.2), "4")
    assert seen.frame_id == "optical"


def test_a_zed_object_has_four_corners_and_a_score_from_1_to_99() -> None:
    corners = [{"kp": kp} for kp in ([10, 20], [50, 20], [50, 80], [10, 80])]
    element = {
        "label": "Person",
        "label_id": 3,
        "confidence": 87.0,
        "position": [1.0, 2.0, 3.0],
        "dimensions_3d": [0.5, 0.6, 1.8],
        "tracking_available": True,
        "bounding_box_2d": {"corners": corners},
        "skeleton_available": True,
        "skeleton_2d": {"keypoints": [{"kp": [1, 1]}] * 18 + [{}] * 52},
    }
    found = only(ZED, element, "objects")
    assert (found.label, found.score, found.track_id) == ("Person", 0.87, "3")
    assert (found.box, found.point) == (Box(10, 20, 40, 60), Point(1, 2, 3))
    assert found.size == pytest.approx((0.5, 0.6, 1.8))
    assert found.keypoints == 18
    bare = only(ZED, {**element, "confidence": 0.0, "tracking_available": False}, "objects")
    assert (bare.score, bare.track_id) == (None, None)
    assert only(ZED, {"label": "Person"}, "objects") == Detection("Person")


def test_a_list_one_level_deeper_is_read_with_the_masks_beside_it() -> None:
    listed = [
        {"results": [hypothesis(name, score)], "bbox": box_2d(5, 5, 2, 2)}
        for name, score in (("cup", 0.4), ("plate", 0.8), ("fork", 0.1))
    ]
    image = {"height": 4, "width": 4, "step": 4, "data": [1] * 16}
    fields = {"header": HEADER, "detections": {"detections": listed}, "masks": [image] * 2}
    seen = read(NESTED, fields)
    assert seen.stamp == Stamp(7, 8)
    assert [(d.label, d.has_mask) for d in seen.detections] == [
        ("plate", True), ("cup", True), ("fork", False),
    ]  # fmt: skip


def test_two_corners_of_a_home_made_type_are_read() -> None:
    box = {
        "class_name": "cup", "confidence": 0.5, "xmin": 10, "ymin": 20, "xmax": 30, "ymax": 60,
    }  # fmt: skip
    found = only("team_msgs/msg/Boxes", box, "boxes")
    assert found == Detection("cup", 0.5, Box(10, 20, 20, 40))
    turned = only("team_msgs/msg/Boxes", {**box, "xmax": 5}, "boxes")
    assert turned.box is None


def test_a_teams_own_detection_2d_is_read_and_what_is_unknown_ignored() -> None:
    element = {
        "center": {"x": 100, "y": 50, "theta": 0.5},
        "size_x": 40,
        "size_y": 20,
        "label": "cup",
        "score": 0.6,
        "color": {"r": 1},
        "pose": {"position": {"x": 0, "y": 0, "z": 2}},
    }
    found = only("team_msgs/msg/Detections", element)
    width = 40 * math.cos(0.5) + 20 * math.sin(0.5)
    height = 40 * math.sin(0.5) + 20 * math.cos(0.5)
    assert found.box == pytest.approx((100 - width / 2, 50 - height / 2, width, height))
    assert (found.label, found.score, found.point) == ("cup", 0.6, Point(0, 0, 2))


# --- what fits no shape, other versions, hostile ------------------------------------------------

ODD = "team_msgs/msg/Odds"
ODD_FIELDS = {
    "list": "found",
    "label": "what",
    "score": "sure",
    "left": "ltrb.0",
    "top": "ltrb.1",
    "right": "ltrb.2",
    "bottom": "ltrb.3",
}


def test_a_type_that_fits_no_shape_is_told_with_its_fields_and_what_would_map_it() -> None:
    reason = Decoder(definition).why_unreadable("detections", ODD) or ""
    assert "it has header, " in reason
    assert "found[].ltrb, found[].what, found[].sure" in reason
    assert (
        "fields: {list: found, label: what, score: sure,"
        " left: ltrb.0, top: ltrb.1, right: ltrb.2, bottom: ltrb.3}" in reason
    )


def test_a_type_that_fits_no_shape_is_read_by_fields_that_are_given() -> None:
    odd = {"ltrb": [10, 20, 30, 60], "what": "cup", "sure": 0.5}
    [found] = read(ODD, {"found": [odd]}, fields=ODD_FIELDS).detections
    assert found == Detection("cup", 0.5, Box(10, 20, 20, 40))


def test_a_path_may_lead_to_one_number_of_one_of_several_points() -> None:
    corners = [{"kp": kp} for kp in ([10, 20], [50, 20], [50, 80], [10, 80])]
    element = {"label": "Person", "bounding_box_2d": {"corners": corners}}
    ends = {"left": "0.kp.0", "top": "0.kp.1", "right": "2.kp.0", "bottom": "2.kp.1"}
    paths = {row: f"bounding_box_2d.corners.{end}" for row, end in ends.items()}
    assert only(ZED, element, "objects", fields=paths).box == Box(10, 20, 40, 60)
    assert only(ZED, element, "objects", fields={"box": "bounding_box_2d"}).box is not None


@pytest.mark.parametrize(
    ("element", "given", "found"),
    [
        (
            "int32 id\nstring Class\nfloat64 probability\nint64 xmin\nint64 ymin\nint64 xmax\n"
            "int64 ymax",
            {"id": 4, "Class": "cup", "probability": 0.5, "xmax": 30, "ymax": 60},
            Detection("cup", 0.5, Box(0, 0, 30, 60)),
        ),
        (
            "int32 class_id\nfloat32 score\nfloat32 x\nfloat32 y\nfloat32 width\nfloat32 height",
            {"class_id": 2, "score": 0.5, "x": 1, "y": 2, "width": 3, "height": 4},
            Detection("class 2", 0.5, Box(1, 2, 3, 4)),
        ),
        (
            "string label\nfloat32 conf\nfloat32 x_center\nfloat32 y_center\nfloat32 w\nfloat32 h",
            {"label": "cup", "conf": 0.5, "x_center": 5, "y_center": 6, "w": 2, "h": 4},
            Detection("cup", 0.5, Box(4, 4, 2, 4)),
        ),
        (
            "string name\nfloat32 score\nsensor_msgs/RegionOfInterest roi",
            {"name": "cup", "roi": {"x_offset": 1, "y_offset": 2, "width": 3, "height": 4}},
            Detection("cup", 0.0, Box(1, 2, 3, 4)),
        ),
        (
            "string label\nint32 track_id\ngeometry_msgs/PointStamped position",
            {"label": "cup", "track_id": 0,
             "position": {"header": {"frame_id": "map"}, "point": {"x": 1}}},
            Detection("cup", None, point=Point(1, 0, 0), track_id="0", frame_id="map"),
        ),
        (
            "string label\nint32 track_id\ngeometry_msgs/PoseWithCovarianceStamped pose",
            {"label": "cup", "track_id": -1, "pose": {"pose": {"pose": {"position": {"y": 2}}}}},
            Detection("cup", None, point=Point(0, 2, 0)),
        ),
        (
            "string label\nfloat32 score\ngeometry_msgs/Polygon polygon",
            {"label": "cup", "score": 1,
             "polygon": {"points": [{"x": 1, "y": 1}, {"x": 3, "y": 1}, {"x": 2, "y": 5}]}},
            Detection("cup", 1.0, Box(1, 1, 2, 4)),
        ),
        (
            "string label\nfloat32 score\ngeometry_msgs/Point32[4] corners",
            {"label": "cup", "corners": [{"x": 1}, {"x": 3}, {"x": 3, "y": 4}, {"x": 1, "y": 4}]},
            Detection("cup", 0.0, Box(1, 0, 2, 4)),
        ),
    ],
)  # fmt: skip
def test_kin_of_these_types_are_read_without_code(
    element: str, given: dict[str, Any], found: Detection
) -> None:
    texts = {"kin_msgs/msg/One": element, "kin_msgs/msg/Many": "std_msgs/Header header\nOne[] all"}
    decoder = Decoder(lambda name: texts.get(name) or definition(name))
    assert decoder.kind_of("kin_msgs/msg/Many") == "detections"
    store = get_typestore(Stores.LATEST)
    for name, text in texts.items():
        store.register(get_types_from_msg(text, name))
    many = filled("kin_msgs/msg/Many", {"all": [given]}, store)
    cdr = bytes(store.serialize_cdr(many, "kin_msgs/msg/Many"))
    assert decoder.decode(stream("detections", "kin_msgs/msg/Many"), cdr).detections == (found,)


@pytest.mark.parametrize(
    "type_name",
    [
        *("visualization_msgs/msg/MarkerArray", "diagnostic_msgs/msg/DiagnosticArray"),
        *("tf2_msgs/msg/TFMessage", "sensor_msgs/msg/JointState", "rcl_interfaces/msg/Log"),
        *("sensor_msgs/msg/PointCloud2", "nav_msgs/msg/Path", "geometry_msgs/msg/PoseArray"),
        *("trajectory_msgs/msg/JointTrajectory", "rcl_interfaces/msg/ParameterEvent"),
        *("sensor_msgs/msg/LaserScan", "nav_msgs/msg/OccupancyGrid", "shape_msgs/msg/Mesh"),
    ],
)
def test_what_detects_nothing_is_not_taken_for_detections(type_name: str) -> None:
    assert Decoder(definition).kind_of(type_name) != "detections"


def test_a_list_that_claims_too_many_is_refused_unread_wherever_it_lies() -> None:
    decoder = Decoder(definition)
    for type_name, where in ((ARRAY_2D, "detections"), (YOLO, "detections"), (ZED, "objects")):
        info = stream("detections", type_name)
        most = serialise(filled(type_name, {where: [{}] * MAX_DETECTIONS}))
        assert len(decoder.decode(info, most).detections) == MAX_DETECTIONS
        more = serialise(filled(type_name, {where: [{}] * (MAX_DETECTIONS + 1)}))
        with pytest.raises(DecodeError, match="1001 detections in one message"):
            decoder.decode(info, more)
    deep = {"detections": {"detections": [{}] * (MAX_DETECTIONS + 1)}}
    with pytest.raises(DecodeError, match="1001 detections in one message"):
        decoder.decode(stream("detections", NESTED), serialise(filled(NESTED, deep)))


def test_a_byte_that_is_no_utf8_costs_its_string_and_nothing_else() -> None:
    listed = [{"class_name": name, "id": f"t{name}"} for name in ("tXr", "cup", "tXr", "wX")]
    info = stream("detections", YOLO)
    cdr = serialise(filled(YOLO, {"header": HEADER, "detections": listed})).replace(b"X", b"\xfc")
    seen = Decoder(definition).decode(info, cdr)
    assert [d.label for d in seen.detections] == ["t\ufffdr", "cup", "t\ufffdr", "w\ufffd"]
    assert [d.track_id for d in seen.detections] == ["tt\ufffdr", "tcup", "tt\ufffdr", "tw\ufffd"]


def test_big_endian_detections_are_read_too() -> None:
    message = filled(YOLO, {"header": HEADER, "detections": [{"class_name": "tXr"}]})
    cdr = bytes(STORE.serialize_cdr(message, YOLO, little_endian=False)).replace(b"X", b"\xfc")
    seen = Decoder(definition).decode(stream("detections", YOLO), cdr)
    assert (seen.stamp, seen.detections[0].label) == (Stamp(7, 8), "t\ufffdr")


def test_of_a_camera_info_and_an_image_the_size_is_read() -> None:
    for name in ("CameraInfo", "Image"):
        type_name = f"sensor_msgs/msg/{name}"
        cdr = serialise(filled(type_name, {"header": HEADER, "width": 640, "height": 480}))
        seen = Decoder(definition).decode(stream("camera", type_name), cdr)
        assert (seen.stamp, seen.frame_id, seen.image) == (Stamp(7, 8), "optical", (640, 480))
