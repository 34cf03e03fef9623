from mcp_perception_buffer.health import BEAT_LIMIT_S, Health
from support import FakeClock, Scene, stamped_string


def watched(clock: FakeClock) -> Health:
    health = Health(clock)
    started = clock()
    health.watch("executor", lambda: started)
    return health


def test_it_is_alive_while_everything_beats() -> None:
    scene = Scene()
    scene.put("/vision/a/text", stamped_string("x"))
    health = watched(scene.clock)
    scene.clock.advance(BEAT_LIMIT_S)
    scene.put("/vision/a/text", stamped_string("x"))
    assert health.live(scene.snapshot()) == (200, {"status": "ok", "reasons": []})


def test_a_missing_heartbeat_is_a_failure_with_the_reason() -> None:
    scene = Scene()
    health = watched(scene.clock)
    health.ready = True
    scene.clock.advance(BEAT_LIMIT_S + 1)
    assert health.live(scene.snapshot()) == (
        503,
        {"status": "failing", "reasons": ["executor: no heartbeat for 6 s"]},
    )
    assert health.readiness()[0] == 503


def test_an_ended_part_is_a_failure_for_good() -> None:
    health = Health(FakeClock())
    health.fail("source", "RuntimeError: gone")
    assert health.live(Scene().snapshot())[0] == 503


def test_it_is_ready_only_once_it_reconciles() -> None:
    health = Health(FakeClock())
    assert health.readiness() == (503, {"status": "not ready", "reasons": ["not reconciled yet"]})
    health.ready = True
    assert health.readiness()[0] == 200


def test_what_is_missing_from_the_robot_degrades_and_stays_alive() -> None:
    scene = Scene()
    health = watched(scene.clock)
    assert health.live(scene.snapshot())[1]["reasons"] == ["nothing is being published"]
    scene.put("/vision/a/text", stamped_string("x"))
    scene.put("/camera/image_raw", stamped_string("header"))
    scene.clock.advance(BEAT_LIMIT_S + 0.1)
    health = watched(scene.clock)
    status, body = health.live(scene.snapshot())
    assert (status, body["status"]) == (200, "degraded")
    assert body["reasons"] == ["1 of 1 streams silent", "camera silent"]


def test_frozen_streams_degrade_by_that_name() -> None:
    scene = Scene(freshness_window_s=1.0)
    for _ in range(20):
        scene.clock.advance(0.1)
        scene.put("/vision/a/text", stamped_string("x"))
        scene.put("/camera/image_raw", stamped_string("header"))
    _, body = Health(scene.clock).live(scene.snapshot())
    assert body["reasons"] == ["1 of 1 streams frozen", "camera frozen"]


def test_one_part_can_be_asked_about() -> None:
    clock = FakeClock()
    health = watched(clock)
    assert health.silence("loop") is None
    assert health.silence("executor") is None
    clock.advance(BEAT_LIMIT_S + 1)
    assert health.silence("executor") == "executor: no heartbeat for 6 s"
