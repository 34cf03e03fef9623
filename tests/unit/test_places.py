"""Left or right, near or far, and in metres only where that is known."""

import pytest

from mcp_perception_buffer.answers.places import Place, place, where
from mcp_perception_buffer.answers.scene import scene as scene_answer
from mcp_perception_buffer.answers.wording import RenderLimits
from mcp_perception_buffer.model import Box, Detection, ImageSize, Point
from support import Scene, detection, detections, image, serialise

VGA = ImageSize(640, 480)


def words(found: Detection, size: ImageSize | None = None, frame: str = "") -> str:
    return ", ".join(where(found, place(found, size, frame), frame))


@pytest.mark.parametrize(
    ("x", "side"), [(0, "left"), (250, "centre"), (600, "right"), (900, None), (-90, None)]
)
def test_a_box_is_left_or_right_by_the_size_of_its_image(x: float, side: str | None) -> None:
    found = Detection("cup", box=Box(x, 0, 40, 40))
    assert place(found, VGA, None).side == side
    assert place(found, None, None) == Place()


@pytest.mark.parametrize(
    ("frame", "point", "said"),
    [
        ("cam_optical_frame", (-0.5, 0, 2), "2.1 m ahead, left"),
        ("cam_optical_frame", (0.5, 0, 0.5), "0.7 m ahead (near), right"),
        ("cam_optical_frame", (0.1, 0, 5), "5.0 m ahead (far), centre"),
        ("base_link", (2, 0.7, 0), "2.1 m ahead, left"),
        ("base_link", (-2, -0.7, 0), "2.1 m behind, right"),
        ("r1/zed_left_camera_frame", (2, 0, 0), "2.0 m ahead, centre"),
        ("map", (2, 1, 0), "at (2.00, 1.00, 0.00) m in map"),
        ("", (2, 1, 0), "at (2.00, 1.00, 0.00) m in an unnamed frame"),
    ],
)
def test_a_point_is_ahead_or_aside_only_in_a_frame_of_known_axes(
    frame: str, point: tuple[float, float, float], said: str
) -> None:
    assert words(Detection("cup", point=Point(*point)), frame=frame) == said


def test_a_point_keeps_the_frame_it_was_given_in() -> None:
    found = Detection("cup", point=Point(1, 0, 0), frame_id="base_link")
    assert words(found, frame="cam_optical_frame") == "1.0 m ahead (near), centre"


def read(scene: Scene) -> str:
    return scene_answer(scene.snapshot(), RenderLimits(), "now", 1.5).text


@pytest.mark.parametrize(
    ("frame", "stamp", "known"),
    [("camera", 1, True), ("other", 1, True), ("camera", 9, True), ("other", 9, False)],
)
def test_the_size_is_that_of_the_image_with_the_same_stamp_or_frame(
    frame: str, stamp: int, known: bool
) -> None:
    scene = Scene()
    scene.put("/vision/find/detections", detections(detection(box=(600, 0, 40, 40))))
    scene.put("/camera/image_raw", serialise(image(640, 480, sec=stamp, frame_id=frame)))
    assert ("[600,0 40x40], right" in read(scene)) == known


def test_of_two_images_of_one_frame_and_different_size_none_is_believed() -> None:
    scene = Scene()
    scene.put("/vision/find/detections", detections(detection(box=(600, 0, 40, 40)), sec=5))
    scene.put("/camera/image_raw", serialise(image(640, 480)))
    scene.put("/vision/find/overlay", serialise(image(1280, 960)))
    assert "right" not in read(scene)
    scene.put("/vision/find/overlay", serialise(image(1280, 960, sec=5)))
    assert "[600,0 40x40], centre" in read(scene)
