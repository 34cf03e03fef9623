"""Every reason for missing data is named, with what to do about it."""

import pytest

from mcp_perception_buffer.answers.diagnose import MAX_CHECKS, BrainStatus, Surroundings, explain
from mcp_perception_buffer.answers.results import DiagnosisResult
from mcp_perception_buffer.errors import UnknownSkillError
from mcp_perception_buffer.model import Link, Unsupported
from support import DETECTIONS, Scene, detections, stamped_string

TEXT = "/vision/a/text"
NOW = 1_800_000_000
NETWORK = {"domain id": "7", "middleware": "rmw_fastrtps_cpp", "discovery range": "SUBNET"}
WELL = Link(1, "reliable, volatile", None)


def diagnosed(
    scene: Scene, skill: str = "a", brain: BrainStatus | None = None, now_s: float = NOW
) -> DiagnosisResult:
    told = explain(scene.snapshot(), skill, Surroundings(NETWORK, brain), now_s)
    result: DiagnosisResult = told.data
    return result


def lines(result: DiagnosisResult) -> dict[str, str]:
    return {f"{c['subject']}: {c['status']}": c["finding"] for c in result["checks"]}


def talking(scene: Scene, topic: str = TEXT, times: int = 40, every_s: float = 0.1) -> None:
    for turn in range(times):
        scene.clock.advance(every_s)
        cdr = stamped_string("x", sec=NOW, nanosec=turn)
        scene.put(topic, detections(sec=NOW, nanosec=turn) if "detections" in topic else cdr)
    scene.buffer.set_link(topic, WELL)


def test_data_that_arrives_is_said_to_with_its_rate_and_quality_of_service() -> None:
    scene = Scene()
    talking(scene)
    result = diagnosed(scene)
    assert result["summary"] == "All is well: data arrives."
    assert lines(result) == {
        f"{TEXT}: ok": "10.0 Hz, usually 10.0 Hz, last 0.0 s ago, reliable, volatile",
        "network: ok": "domain id 7, middleware rmw_fastrtps_cpp, discovery range SUBNET",
    }


def test_a_skill_that_never_published_is_an_error_that_names_the_domain_and_the_known() -> None:
    scene = Scene()
    talking(scene)
    with pytest.raises(UnknownSkillError, match=r"Known skills: a\..*ever published.*domain id 7"):
        diagnosed(scene, "b")


def test_no_publisher_any_more() -> None:
    scene = Scene()
    talking(scene)
    scene.clock.advance(9)
    scene.buffer.set_publishers(TEXT, 0)
    assert diagnosed(scene)["summary"] == f"{TEXT}: no publisher, since 9 s"


@pytest.mark.parametrize(("matched", "status"), [(0, "problem"), (1, "warning")])
def test_an_incompatible_quality_of_service(matched: int, status: str) -> None:
    scene = Scene()
    talking(scene)
    scene.buffer.open(scene.snapshot().streams[0].info, publishers=2)
    scene.buffer.set_link(TEXT, Link(matched, "reliable, volatile", "reliability"))
    found = lines(diagnosed(scene))[f"{TEXT}: {status}"]
    assert found == (
        f"QoS mismatch: {2 - matched} of 2 publishers cannot be read, incompatible reliability"
    )


def test_a_publisher_that_is_found_but_not_connected() -> None:
    scene = Scene()
    scene.open(TEXT)
    scene.buffer.set_link(TEXT, Link(0, "reliable, volatile", None))
    result = diagnosed(scene)
    assert "found, but not connected" in result["summary"]
    assert "7400" in (result["checks"][0]["advice"] or "")


def test_silence_though_matched_comes_with_the_shared_memory_hint() -> None:
    scene = Scene()
    scene.open(TEXT)
    scene.buffer.set_link(TEXT, WELL)
    assert diagnosed(scene)["summary"] == f"{TEXT}: nothing received yet"
    scene.clock.advance(12)
    result = diagnosed(scene)
    assert result["summary"] == f"{TEXT}: publisher present, no messages for 12 s"
    assert "FASTDDS_BUILTIN_TRANSPORTS=UDPv4" in (result["checks"][0]["advice"] or "")


def test_silence_after_speech_asks_whether_the_node_hangs() -> None:
    scene = Scene()
    talking(scene)
    scene.clock.advance(12)
    result = diagnosed(scene)
    assert "no messages for 12 s" in result["summary"]
    assert "hangs" in (result["checks"][0]["advice"] or "")


def test_undecodable_messages_with_the_last_error() -> None:
    scene = Scene()
    scene.put(TEXT, b"garbage")
    scene.buffer.view(TEXT)
    result = diagnosed(scene)
    assert result["summary"].startswith(f"{TEXT}: received 1, none readable: ")
    scene.put(TEXT, stamped_string("good", sec=NOW))
    assert f"{TEXT}: warning" in lines(diagnosed(scene))


def test_a_type_that_cannot_be_read() -> None:
    scene = Scene()
    where = Unsupported("/vision/a/where", "x_msgs/msg/X", "not installed", "a")
    scene.buffer.unsupported = (where,)
    assert "x_msgs/msg/X is not read: not installed" in diagnosed(scene)["summary"]
    talking(scene, "/vision/a/where")  # another type of the same topic is read
    assert lines(diagnosed(scene))["/vision/a/where: warning"]


def test_a_frozen_stream() -> None:
    scene = Scene(freshness_window_s=1)
    for _ in range(20):
        scene.clock.advance(0.1)
        scene.put(TEXT, stamped_string("x", sec=NOW))
    assert "FROZEN" in diagnosed(scene)["summary"]


def test_losses_here_and_on_the_way() -> None:
    scene = Scene()
    talking(scene)
    scene.buffer.count_lost(TEXT, 50)
    assert diagnosed(scene)["summary"] == f"{TEXT}: 50 of 90 messages lost on the way"
    scene.buffer.count_dropped(TEXT)
    scene.buffer.count_lost(TEXT, -50)
    assert diagnosed(scene)["summary"] == f"{TEXT}: 1 of 41 messages dropped here under load"


def test_a_rate_far_below_the_usual_one() -> None:
    scene = Scene()
    talking(scene, times=320, every_s=0.05)
    talking(scene, times=31, every_s=1.0)
    assert diagnosed(scene)["summary"] == f"{TEXT}: slow: 1.0 Hz, usually 20.0 Hz"


@pytest.mark.parametrize(
    ("stamp", "said"),
    [
        (0, "header stamps are zero"),
        (NOW + 3600, "header stamps are 3600 s ahead of this machine's clock"),
        (123, f"header stamps are {NOW - 123} s behind this machine's clock"),
    ],
)
def test_stamps_of_another_clock(stamp: int, said: str) -> None:
    scene = Scene()
    scene.put(TEXT, stamped_string("x", sec=stamp, nanosec=0))
    assert lines(diagnosed(scene))[f"{TEXT}: warning"] == said


def test_a_silent_camera_is_a_warning_beside_a_skill_that_works() -> None:
    scene = Scene()
    talking(scene)
    scene.buffer.open(scene.topics.classify("/camera/image_raw", ""), publishers=0)  # type: ignore[arg-type]
    result = diagnosed(scene)
    assert lines(result)["/camera/image_raw: warning"] == "no publisher, and there never was one"
    assert lines(result)[f"{TEXT}: ok"]


def test_just_after_the_start_it_asks_for_patience() -> None:
    scene = Scene()
    talking(scene)
    scene.buffer.discovering = True
    assert lines(diagnosed(scene))["network: warning"] == "still discovering"


@pytest.mark.parametrize(
    ("brain", "said"),
    [
        (BrainStatus(None), "brain: ok"),
        (BrainStatus(True, clock_skew_s=1.0), "brain: ok"),
        (BrainStatus(False, "connection refused"), "brain: warning"),
        (BrainStatus(True, clock_skew_s=-400.0), "brain: warning"),
    ],
)
def test_the_brain_and_its_clock(brain: BrainStatus, said: str) -> None:
    scene = Scene()
    talking(scene)
    found = lines(diagnosed(scene, brain=brain))
    assert said in found
    if brain.clock_skew_s == -400.0:
        assert found[said] == "its clock is 400 s behind ours"


def test_it_stays_on_one_screen_with_the_worst_first() -> None:
    scene = Scene()
    for index in range(50):
        talking(scene, f"/vision/a/out_{index:02}", times=2)
    scene.put("/vision/a/broken", b"garbage")
    result = diagnosed(scene)
    assert len(result["checks"]) == MAX_CHECKS
    assert result["checks"][0]["subject"] == "/vision/a/broken"


def test_detections_are_told_like_all_else() -> None:
    scene = Scene()
    talking(scene, "/vision/a/detections")
    scene.put("/vision/a/detections", b"garbage", DETECTIONS)
    scene.snapshot()
    assert lines(diagnosed(scene))["/vision/a/detections: warning"].startswith("1 of 41 messages")
