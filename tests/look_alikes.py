"""Messages as public detectors publish them: nested plain values, and what is to be read of them.

`scripted_node.fill` makes messages of the one, `get_latest` has the other among its detections.
"""

import copy
import math
from typing import Any, NamedTuple

Fields = dict[str, Any]


class Look(NamedTuple):
    """One message of a type, and the detections in it by falling score."""

    type: str
    fields: Fields
    found: list[Fields]


def xyz(x: float, y: float, z: float) -> Fields:
    return {"x": x, "y": y, "z": z}


def hypothesis(class_id: str, score: float, at: Fields | None = None) -> Fields:
    """An ObjectHypothesisWithPose."""
    named = {"class_id": class_id, "score": score}
    return {"hypothesis": named, "pose": {"pose": {"position": at or xyz(0, 0, 0)}}}


def centered(x: float, y: float, width: float, height: float) -> Fields:
    """A BoundingBox2D of vision_msgs."""
    return {"center": {"position": {"x": x, "y": y}}, "size_x": width, "size_y": height}


def solid(at: Fields, size: Fields) -> Fields:
    """A BoundingBox3D of vision_msgs and yolo_msgs."""
    return {"center": {"position": at}, "size": size}


def seen(label: str, score: float | None, box: tuple[float, ...] | None = None, **more: Any) -> Any:
    """What is read of a detection; `box` is left, top, width, height."""
    named = dict(zip(("x", "y", "width", "height"), box, strict=True)) if box else None
    return {"label": label, "score": score, "box": named, "point": None, "track_id": None, **more}


def yolo(name: str, score: float, track_id: str = "", **more: Any) -> Fields:
    """A Detection of yolo_msgs."""
    bbox = {"center": {"position": {"x": 50, "y": 40}}, "size": {"x": 20, "y": 10}}
    return {"class_name": name, "score": score, "id": track_id, "bbox": bbox, **more}


def spatial(class_id: str, score: float, at: Fields, track_id: str = "") -> Fields:
    """A SpatialDetection of depthai_ros_msgs."""
    return {
        "results": [{"class_id": class_id, "score": score}],
        "bbox": centered(100, 50, 40, 20),
        "position": at,
        "is_tracking": bool(track_id),
        "tracking_id": track_id,
    }


FLAT = [
    {"results": [hypothesis("1", 0.75)], "bbox": centered(100, 50, 40, 20)},
    {"results": [hypothesis("dog", 0.25), hypothesis("cat", 0.5)], "bbox": centered(5, 5, 2, 2)},
]
IN_SPACE = {
    "results": [hypothesis("cup", 0.75)],
    "bbox": solid(xyz(1, 2, 3), xyz(0.1, 0.2, 0.3)),
    "id": "c-1",
}
ZED_OBJECT = {
    "label": "Person",
    "label_id": 3,
    "confidence": 75,
    "position": [1, 2, 3],
    "dimensions_3d": [0.5, 0.5, 1.75],
    "tracking_available": True,
    "bounding_box_2d": {"corners": [{"kp": kp} for kp in ([10, 20], [50, 20], [50, 80], [10, 80])]},
}
PIXELS = {"height": 4, "width": 4, "step": 4, "encoding": "mono8", "data": [255] * 16}
BOX = {"class_name": "cup", "confidence": 0.5, "xmin": 10, "ymin": 20, "xmax": 30, "ymax": 60}
TURNED = {
    "center": {"x": 100, "y": 50, "theta": 0.5},
    "size_x": 40,
    "size_y": 20,
    "label": "cup",
    "score": 0.5,
    "color": {"r": 1, "a": 1},
    "pose": {"position": xyz(0, 0, 2)},
}
_HULL = (
    40 * math.cos(0.5) + 20 * math.sin(0.5),
    40 * math.sin(0.5) + 20 * math.cos(0.5),
)

LOOKS = {
    "array_2d": Look(
        "vision_msgs/msg/Detection2DArray",
        {"detections": FLAT},
        [seen("class 1", 0.75, (80, 40, 40, 20)), seen("cat", 0.5, (4, 4, 2, 2))],
    ),
    "array_3d": Look(
        "vision_msgs/msg/Detection3DArray",
        {"detections": [IN_SPACE]},
        [seen("cup", 0.75, point=xyz(1, 2, 3), track_id="c-1")],
    ),
    "single_2d": Look(
        "vision_msgs/msg/Detection2D", FLAT[0], [seen("class 1", 0.75, (80, 40, 40, 20))]
    ),
    "single_3d": Look(
        "vision_msgs/msg/Detection3D",
        IN_SPACE,
        [seen("cup", 0.75, point=xyz(1, 2, 3), track_id="c-1")],
    ),
    "classification": Look(
        "vision_msgs/msg/Classification",
        {"results": [{"class_id": "mug", "score": 0.25}, {"class_id": "cup", "score": 0.75}]},
        [seen("cup", 0.75)],
    ),
    "yolo_msgs": Look(
        "yolo_msgs/msg/DetectionArray",
        {
            "detections": [
                yolo("bottle", 0.75, "7", bbox3d=solid(xyz(0.5, 0, 2), xyz(0.1, 0.1, 0.25))),
                yolo("", 0.5, class_id=3),
            ]
        },
        [
            seen("bottle", 0.75, (40, 35, 20, 10), point=xyz(0.5, 0, 2), track_id="7"),
            seen("class 3", 0.5, (40, 35, 20, 10)),
        ],
    ),
    "depthai": Look(
        "depthai_ros_msgs/msg/SpatialDetectionArray",
        {
            "header": {"frame_id": "oak_rgb_camera_optical_frame"},
            "detections": [
                spatial("15", 0.75, xyz(0, 0, 0)),
                spatial("0", 0.5, xyz(-0.4, 0.1, 1.2), "4"),
            ],
        },
        [
            seen("class 15", 0.75, (80, 40, 40, 20)),
            seen("class 0", 0.5, (80, 40, 40, 20), point=xyz(-0.4, 0.1, 1.2), track_id="4"),
        ],
    ),
    "zed": Look(
        "zed_msgs/msg/ObjectsStamped",
        {"objects": [ZED_OBJECT]},
        [seen("Person", 0.75, (10, 20, 40, 60), point=xyz(1, 2, 3), track_id="3")],
    ),
    "ultralytics": Look(
        "ultralytics_ros/msg/YoloResult",
        {"detections": {"detections": FLAT}, "masks": [PIXELS]},
        [seen("class 1", 0.75, (80, 40, 40, 20)), seen("cat", 0.5, (4, 4, 2, 2))],
    ),
    "team_boxes": Look(
        "team_msgs/msg/Boxes", {"boxes": [BOX]}, [seen("cup", 0.5, (10, 20, 20, 40))]
    ),
    "team_turned": Look(
        "team_msgs/msg/Detections",
        {"detections": [TURNED]},
        [seen("cup", 0.5, (100 - _HULL[0] / 2, 50 - _HULL[1] / 2, *_HULL), point=xyz(0, 0, 2))],
    ),
}
# Where a type has its list; the others are one detection each.
LISTS = {
    "array_2d": "detections",
    "array_3d": "detections",
    "classification": "results",
    "yolo_msgs": "detections",
    "depthai": "detections",
    "zed": "objects",
    "ultralytics": "detections",
    "team_boxes": "boxes",
    "team_turned": "detections",
}


def crowd(name: str, count: int) -> Fields:
    """Fields of a message that says so often what the look's first detection or hypothesis is."""
    fields = copy.deepcopy(LOOKS[name].fields)
    if name in LISTS:
        holder = fields["detections"] if name == "ultralytics" else fields
        holder[LISTS[name]] = holder[LISTS[name]][:1] * count
    return fields
