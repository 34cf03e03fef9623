"""The pure part of the vision node, on the photographs that scikit-image ships."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

cv2 = pytest.importorskip("cv2")
pytest.importorskip("skimage")
np = pytest.importorskip("numpy")
boxes = pytest.importorskip("mcp_perception_buffer.vision_node.boxes")
detect = pytest.importorskip("mcp_perception_buffer.vision_node.detect")
frames = pytest.importorskip("mcp_perception_buffer.vision_node.frames")
masks = pytest.importorskip("mcp_perception_buffer.vision_node.masks")
scene = pytest.importorskip("mcp_perception_buffer.vision_node.scene")

SIZE = (640, 480)
# Where the faces are, by eye, in the photographs as they are shipped.
ASTRONAUT_FACE = boxes.Box(173, 66, 100, 105)
CAT_FACE = boxes.Box(85, 20, 280, 270)


def photograph(name: str) -> Any:
    spec = find_spec("skimage")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return cv2.imread(str(Path(spec.submodule_search_locations[0], "data", name)))


def no_report(text: str) -> None:
    pytest.fail(f"unexpected report: {text}")


def looks_until_found(detector: Any, frame: Any, label: str, looks: int = 3) -> list[Any]:
    for _ in range(looks):
        found = [one for one in detector.detect(frame) if one.label == label]
        if found:
            return found
    return []


def write_video(path: Path, greys: list[int], fps: float) -> None:
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), fps, (64, 48))
    for grey in greys:
        writer.write(np.full((48, 64, 3), grey, np.uint8))
    writer.release()


@pytest.fixture
def detector() -> Any:
    return detect.Detector()


def test_face_of_the_astronaut_is_found_at_its_place(detector: Any) -> None:
    (face,) = [one for one in detector.detect(photograph("astronaut.png")) if one.label == "face"]

    assert face.box.overlap(ASTRONAUT_FACE) > 0.6
    assert 0.5 < face.score < 1


def test_both_eyes_are_found_inside_the_face(detector: Any) -> None:
    found = detector.detect(photograph("astronaut.png"))

    (face,) = [one.box for one in found if one.label == "face"]
    eyes = [one.box for one in found if one.label == "eye"]
    assert len(eyes) == 2
    for eye in eyes:
        assert face.x <= eye.x
        assert eye.x + eye.width <= face.x + face.width
        assert face.y <= eye.y
        assert eye.y + eye.height / 2 < face.y + face.height / 2


def test_face_of_the_cat_is_found_by_the_third_look(detector: Any) -> None:
    frame = frames.pan_and_zoom(photograph("chelsea.png"), 0.5, SIZE)
    # At half time the view is the largest centred one: 400 of the 451 columns, every row.
    place = boxes.Box(*(round(v * 1.6) for v in (CAT_FACE.x - 25, *CAT_FACE[1:])))

    (cat,) = looks_until_found(detector, frame, "cat face")

    assert cat.box.overlap(place) > 0.5
    assert not [one for one in detector.detect(frame) if one.label == "face"]


@pytest.mark.parametrize("grey", [0, 128, 255])
def test_an_empty_picture_gives_no_detections(detector: Any, grey: int) -> None:
    frame = np.full((480, 640, 3), grey, np.uint8)

    assert [detector.detect(frame) for _ in range(3)] == [[], [], []]


@pytest.mark.parametrize("name", ["coffee.png", "rocket.jpg"])
def test_a_photograph_without_faces_gives_no_detections(detector: Any, name: str) -> None:
    photo = photograph(name)

    for t in (0.0, 0.3, 0.5, 0.7, 1.0):
        assert detector.detect(frames.pan_and_zoom(photo, t, SIZE)) == []


def test_every_mask_has_the_size_of_its_box_and_both_values(detector: Any) -> None:
    found = detector.detect(photograph("astronaut.png"))

    assert len(found) == 3
    for one in found:
        assert one.mask.shape == (one.box.height, one.box.width)
        assert one.mask.dtype == np.uint8
        assert set(np.unique(one.mask)) == {0, 255}


def test_mask_sits_on_the_face_and_leaves_the_corners_out(detector: Any) -> None:
    photo = photograph("astronaut.png")
    (face,) = [one for one in detector.detect(photo) if one.label == "face"]
    inside = face.mask > 0
    height, width = inside.shape

    assert inside[height // 3 : height * 2 // 3, width // 3 : width * 2 // 3].mean() > 0.95
    corners = (inside[:8, :8], inside[:8, -8:], inside[-8:, :8], inside[-8:, -8:])
    assert [corner.any() for corner in corners] == [False] * 4
    pixels = photo[face.box.y : face.box.y + height, face.box.x : face.box.x + width]
    skin = pixels[inside].mean(axis=0)
    assert skin[2] > skin[1] > skin[0]


def test_the_same_frame_gives_the_same_mask() -> None:
    photo = photograph("astronaut.png")

    first, second = (masks.cut_mask(photo, ASTRONAUT_FACE) for _ in range(2))

    assert np.array_equal(first, second)


@pytest.mark.parametrize("box", [(0, 0, 1, 1), (630, 470, 10, 10), (0, 0, 640, 480)])
def test_mask_of_a_featureless_or_extreme_box_still_has_its_size(
    box: tuple[int, int, int, int],
) -> None:
    frame = np.full((480, 640, 3), 90, np.uint8)

    assert masks.cut_mask(frame, boxes.Box(*box)).shape == (box[3], box[2])


def test_a_moving_face_keeps_its_track_id_and_a_returning_one_gets_a_new_one() -> None:
    tracks = detect.Tracks()
    names = []
    for x in (0, 10, 20, None, 30, None, None, None, None, 40):
        tracks.next_frame()
        if x is not None:
            names.append(tracks.name("face", boxes.Box(x, 0, 100, 100)))

    assert names == ["face-1"] * 4 + ["face-2"]


def test_two_overlapping_things_of_one_frame_get_two_track_ids() -> None:
    tracks = detect.Tracks()
    tracks.next_frame()

    names = {tracks.name("face", boxes.Box(x, 0, 100, 100)) for x in (0, 10)}

    assert len(names) == 2


def test_scene_sentence_counts_and_places_what_was_detected(detector: Any) -> None:
    photo = photograph("astronaut.png")

    sentence = scene.describe_scene(photo, detector.detect(photo))

    assert sentence.startswith("1 face (upper centre), 2 eyes (upper ")
    assert sentence.endswith("; medium bright, partly orange")


@pytest.mark.parametrize(
    ("bgr", "words"),
    [
        ((0, 0, 0), "dark, little colour"),
        ((255, 255, 255), "bright, little colour"),
        ((255, 0, 0), "dark, mostly blue"),
        ((0, 0, 255), "dim, mostly red"),
        ((0, 255, 0), "medium bright, mostly green"),
        ((20, 60, 110), "dim, mostly brown"),
    ],
)
def test_scene_sentence_of_a_plain_picture_names_brightness_and_colour(
    bgr: tuple[int, int, int], words: str
) -> None:
    frame = np.full((480, 640, 3), bgr, np.uint8)

    assert scene.describe_scene(frame, []) == f"no face and no cat face; {words}"


def test_overlay_changes_the_box_and_nothing_far_from_it(detector: Any) -> None:
    photo = photograph("astronaut.png")

    overlay = scene.draw_overlay(photo, detector.detect(photo))

    assert overlay.shape == photo.shape
    assert (overlay[118, 223] != photo[118, 223]).any()
    assert np.array_equal(overlay[250:], photo[250:])


def test_the_show_is_the_same_every_time() -> None:
    one, other = (frames.open_default(SIZE, no_report) for _ in range(2))

    for _ in range(frames.SHOT_FRAMES + 3):
        frame = one.read()
        assert frame.shape == (480, 640, 3)
        assert np.array_equal(frame, other.read())


def test_the_show_starts_over_after_the_last_photograph() -> None:
    show = frames.open_default(SIZE, no_report)
    shots = len(frames.PHOTOGRAPHS)
    first = show.read()
    for _ in range(shots * frames.SHOT_FRAMES - 1):
        last = show.read()

    assert not np.array_equal(first, last)
    assert np.array_equal(first, show.read())


def test_things_come_and_go_in_the_show_and_nothing_else_is_seen(detector: Any) -> None:
    show = frames.open_default(SIZE, no_report)
    seen: dict[str, list[set[str]]] = {}
    for name in frames.PHOTOGRAPHS:
        seen[name] = [
            {one.label for one in detector.detect(show.read())} for _ in range(frames.SHOT_FRAMES)
        ]

    assert not any(seen["coffee.png"] + seen["rocket.jpg"])
    assert sum("face" in labels for labels in seen["astronaut.png"]) >= 15
    assert sum("cat face" in labels for labels in seen["chelsea.png"]) >= 10
    assert not seen["astronaut.png"][0]
    assert not seen["chelsea.png"][0]
    assert set.union(*seen["astronaut.png"]) == {"face", "eye"}
    assert set.union(*seen["chelsea.png"]) == {"cat face"}


def test_a_file_that_is_no_image_is_skipped_and_reported_once(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_text("not an image")
    cv2.imwrite(str(tmp_path / "b.png"), np.full((100, 300, 3), 77, np.uint8))
    reports: list[str] = []

    show = frames.open_images(tmp_path, SIZE, reports.append)
    shown = [show.read() for _ in range(2 * frames.SHOT_FRAMES + 1)]

    assert all((frame == 77).all() for frame in shown)
    assert reports == ["skipped, not readable as an image: a.jpg"]


def test_a_large_photograph_is_reduced_but_fills_the_frame(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "large.png"), np.full((3000, 2000, 3), 200, np.uint8))

    frame = frames.open_images(tmp_path, SIZE, no_report).read()

    assert frame.shape == (480, 640, 3)
    assert (frame == 200).all()


def test_a_folder_without_images_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(frames.StartError, match="no readable image there; give a folder"):
        frames.open_images(tmp_path, SIZE, no_report)


def test_a_missing_folder_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(frames.StartError, match="No such file or directory; give a folder"):
        frames.open_images(tmp_path / "nowhere", SIZE, no_report)


def test_a_video_plays_over_and_over(tmp_path: Path) -> None:
    write_video(tmp_path / "video.avi", [40, 120, 200], fps=5)
    video = frames.Capture(str(tmp_path / "video.avi"), SIZE, rate_hz=5)

    shown = [video.read() for _ in range(7)]
    video.close()

    assert {frame.shape for frame in shown} == {(480, 640, 3)}
    levels = [round(frame.mean() / 40) for frame in shown]
    assert levels == [1, 3, 5, 1, 3, 5, 1]


def test_a_video_faster_than_the_rate_skips_frames_to_keep_its_own_speed(tmp_path: Path) -> None:
    write_video(tmp_path / "video.avi", list(range(0, 240, 20)), fps=20)
    video = frames.Capture(str(tmp_path / "video.avi"), SIZE, rate_hz=5)

    levels = [round(video.read().mean() / 20) for _ in range(4)]
    video.close()

    assert levels == [0, 4, 8, 0]


def test_a_video_that_vanishes_gives_nothing_until_it_is_back(tmp_path: Path) -> None:
    path, away = tmp_path / "video.avi", tmp_path / "away.avi"
    write_video(path, [40], fps=5)
    video = frames.Capture(str(path), SIZE, rate_hz=5)
    assert video.read() is not None
    path.rename(away)

    assert [video.read(), video.read()] == [None, None]

    away.rename(path)
    assert video.read() is not None
    video.close()


def test_a_missing_or_undecodable_video_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(frames.StartError, match="no such file; give the path of a video file"):
        frames.Capture(str(tmp_path / "none.mp4"), SIZE, rate_hz=5)
    (tmp_path / "text.mp4").write_text("not a video")
    with pytest.raises(frames.StartError, match="cannot be opened; give one that OpenCV can"):
        frames.Capture(str(tmp_path / "text.mp4"), SIZE, rate_hz=5)
