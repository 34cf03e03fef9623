"""Which field names mean what in the messages of detectors: the one table of it.

`shapes` looks a type's fields up here, in the order given; the first that is there and has a
fitting type is read. A stream's `fields` setting replaces rows. Names are those that public
detectors use (vision_msgs, yolo_msgs, depthai_ros_msgs, zed_msgs, darknet's successors) and their
obvious kin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# Paths are dotted; `name.0` is an element of an array. A holder is a field that is looked into.
TABLE: Mapping[str, tuple[str, ...]] = {
    # Where the detections are; empty: any list whose elements look like detections.
    "list": (),
    # What it is: a text names it, a number or a text of digits is the id of its class.
    "label": (
        *("class_name", "label", "class_label", "label_name", "object_name", "object_class"),
        *("Class", "classname", "category", "category_name", "name", "class_id", "class"),
    ),
    "class_id": (
        *("class_id", "classid", "class_index", "category_id", "label", "label_id", "class", "cls"),
    ),
    "hypotheses": ("results", "hypotheses", "classifications", "classes"),
    "score": ("score", "confidence", "probability", "conf", "prob", "likelihood"),
    # An integer `id` is a class to some and a track to others, so it is neither.
    "track_id": ("track_id", "tracking_id", "tracker_id", "object_id", "instance_id", "id"),
    "is_tracked": ("is_tracking", "tracking_available", "is_tracked"),
    # A box in the image: holders of it, the detection itself being the last one.
    "box": (
        *("bbox", "box", "bounding_box", "bounding_box_2d", "bbox2d", "bbox_2d", "box_2d"),
        *("boundingbox", "roi", "rect", "region", "corners", "polygon"),
    ),
    "center_x": ("center.position.x", "center.x", "center_x", "x_center", "cx"),
    "center_y": ("center.position.y", "center.y", "center_y", "y_center", "cy"),
    "theta": ("center.theta", "theta", "angle"),
    "width": ("size_x", "size.x", "width", "w"),
    "height": ("size_y", "size.y", "height", "h"),
    "left": ("xmin", "x_min", "x1", "left", "min_x", "top_left.x", "min.x", "x_offset", "x"),
    "top": ("ymin", "y_min", "y1", "top", "min_y", "top_left.y", "min.y", "y_offset", "y"),
    "right": ("xmax", "x_max", "x2", "right", "max_x", "bottom_right.x", "max.x"),
    "bottom": ("ymax", "y_max", "y2", "bottom", "max_y", "bottom_right.y", "max.y"),
    "corners": ("corners", "points", "vertices"),
    # In space, in metres: anything with x, y and z, or three numbers.
    "point": (
        *("point", "position", "bbox3d.center", "bbox_3d.center", "bounding_box_3d.center"),
        *("box3d.center", "bbox.center", "location", "position_3d", "centroid", "pose", "pose3d"),
    ),
    "has_point": ("has_point", "has_position"),
    "size": (
        *("dimensions_3d", "dimensions", "bbox3d.size", "bbox_3d.size", "bounding_box_3d.size"),
        *("box3d.size", "bbox.size", "size", "extents"),
    ),
    "frame_id": ("frame_id", "header.frame_id"),
    # Of these only whether they are there, or how many.
    "mask": ("mask", "masks", "segmentation", "segmentation_mask", "contour"),
    "has_mask": ("has_mask",),
    "keypoints": ("keypoints", "keypoints3d", "key_points", "landmarks", "skeleton_2d"),
    "has_keypoints": ("skeleton_available",),
}

# Of messages in a list of hypotheses alone.
HYPOTHESIS_ID = "id"

# Packages whose scores go from 1 to 99; all others' go from 0 to 1.
PERCENT = ("zed_msgs", "zed_interfaces")
# Packages whose `label_id` is the number of the track, as their drivers fill it.
TRACK_IN_LABEL_ID = PERCENT

# A box in space this thin, in the plane z = 0, is a box in the image: OAK drivers fill
# `vision_msgs/Detection3D` in this way, and put the point into the hypothesis.
FLAT_M = 0.01
