"""`interfaces` as a person runs it, and a message of an added type over real DDS."""

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from interfaces_env import DEFINITIONS, add, run
from processes import fresh_domain, node
from support import REPOSITORY, eventually

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy", reason="run with --extra ros")

import rclpy  # noqa: E402
from rclpy.context import Context  # noqa: E402
from rclpy.executors import SingleThreadedExecutor  # noqa: E402
from rclpy.node import Node  # noqa: E402
from rclpy.serialization import deserialize_message  # noqa: E402
from rclpy.signals import SignalHandlerOptions  # noqa: E402

# Packages that only the tests here add, and take away again.
BASE, TOP = "test_base_msgs", "test_top_msgs"


def define(folder: Path, package: str, **definitions: str) -> Path:
    (folder / package / "msg").mkdir(parents=True, exist_ok=True)
    for name, text in definitions.items():
        (folder / package / "msg" / f"{name}.msg").write_text(text)
    return folder / package


def told(done: subprocess.CompletedProcess[str]) -> str:
    """The one message of a command that refuses."""
    assert done.returncode in (1, 2)
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.fixture
def spare(robot_interfaces: None) -> Iterator[None]:
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip("uv takes the packages away again")
    yield
    names = [f"added-interfaces-{name.replace('_', '-')}" for name in (BASE, TOP)]
    subprocess.run(
        [uv, "pip", "uninstall", "--quiet", "--python", sys.executable, *names],
        check=True, timeout=60,
    )  # fmt: skip


def fields(type_name: str) -> str:
    """What a new process finds a message to be made of, its compiled part included."""
    package, name = type_name.split("/")
    code = (
        f"from {package}.msg import {name}\n"
        "from rclpy.type_support import check_for_type_support\n"
        f"check_for_type_support({name})\n"
        f"print({name}())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()


def test_packages_are_added_in_the_order_of_their_needs_and_anew_with_what_they_use(
    spare: None, tmp_path: Path
) -> None:
    base = define(tmp_path, BASE, Spot="int32 x\n")
    top = define(tmp_path, TOP, Spots=f"{BASE}/Spot first\nvision_msgs/Point2D second\n")

    done = add(top, base)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("added")] == [
        f"added {BASE}: Spot",
        f"added {TOP}: Spots",
    ]
    assert fields(f"{TOP}/Spots") == (
        f"{TOP}.msg.Spots(first={BASE}.msg.Spot(x=0), second=vision_msgs.msg.Point2D(x=0.0, y=0.0))"
    )

    # One of them alone: what it uses was added before.
    again = add(top)
    assert again.stdout.splitlines() == [f"{TOP} is already there"]

    # A changed message is part of those that use it.
    define(tmp_path, BASE, Spot="int64 x\nint64 y\n")
    changed = add(base)
    assert changed.returncode == 0, changed.stderr
    assert f"replaced {BASE}: Spot" in changed.stdout
    assert f"replaced {TOP}: Spots" in changed.stdout
    assert f"first={BASE}.msg.Spot(x=0, y=0)" in fields(f"{TOP}/Spots")

    # What the build finds out is told as well, and leaves what was there.
    define(tmp_path, BASE, Spot="uint8 x 300\n")
    assert f"{BASE} could not be built" in told(add(base))
    assert f"first={BASE}.msg.Spot(x=0, y=0)" in fields(f"{TOP}/Spots")


def test_what_is_there_is_said_and_nothing_is_built(robot_interfaces: None) -> None:
    # No compiler, no index: neither is needed.
    done = add(DEFINITIONS, PATH="/nowhere", UV_OFFLINE="1")
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        f"{name} is already there" for name in sorted(path.name for path in DEFINITIONS.iterdir())
    ]


def test_a_package_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = add(define(tmp_path, TOP, Spots="far_msgs/Spot first\n"))
    assert done.returncode == 1
    assert f"{TOP} uses far_msgs, which is neither installed nor among the folders" in told(done)
    assert "`interfaces add` its folder first" in done.stderr


def test_a_message_that_a_package_lacks_is_named(tmp_path: Path) -> None:
    done = add(define(tmp_path, TOP, Spots="std_msgs/Spot first\n"))
    assert done.returncode == 2
    assert "the std_msgs that is installed here has no such message" in told(done)


def test_packages_that_use_each_other_are_refused(tmp_path: Path) -> None:
    define(tmp_path, BASE, Spot=f"{TOP}/Spots s\n")
    define(tmp_path, TOP, Spots=f"{BASE}/Spot s\n")
    assert f"{BASE} and {TOP} use each other" in told(add(tmp_path))


def test_a_folder_that_is_no_package_is_told(tmp_path: Path) -> None:
    done = add(tmp_path)
    assert done.returncode == 2
    assert f"{tmp_path} holds no .msg files" in told(done)


def test_a_wrong_definition_is_told_before_anything_is_built(tmp_path: Path) -> None:
    folder = define(tmp_path, BASE, Spot="int32 x\nfloat64 a,b\n")
    done = add(folder)
    assert done.returncode == 2
    assert f"{folder / 'msg' / 'Spot.msg'}, line 2: 'float64 a,b' is no field" in told(done)
    assert done.stdout == ""


@pytest.mark.parametrize("name", ["std_msgs", "ros2_vision_interfaces"])
def test_what_belongs_to_ros_is_not_replaced(tmp_path: Path, name: str) -> None:
    done = add(define(tmp_path, name, String="string other\n"))
    assert done.returncode == 2
    assert f"{name} ({tmp_path / name}) belongs to the ROS" in told(done)


def test_under_a_sourced_ros_colcon_is_named(tmp_path: Path) -> None:
    done = add(define(tmp_path, BASE, Spot="int32 x\n"), AMENT_PREFIX_PATH="/opt/ros/some")
    assert done.returncode == 1
    assert "ROS is sourced here (/opt/ros/some)" in told(done)
    assert "colcon build" in done.stderr


def test_without_a_compiler_what_to_install_is_told(tmp_path: Path) -> None:
    done = add(define(tmp_path, BASE, Spot="int32 x\n"), PATH=str(tmp_path))
    assert done.returncode == 1
    assert "apt install gcc g++" in told(done)


def test_without_a_package_index_that_is_told(tmp_path: Path) -> None:
    if shutil.which("uv") is None:
        pytest.skip("uv can be told to stay offline")
    folder = define(tmp_path, BASE, Spot="int32 x\n")
    done = add(folder, UV_OFFLINE="1", UV_CACHE_DIR=str(tmp_path / "cache"))
    assert done.returncode == 1
    assert "when the package index can be reached" in told(done)


def test_the_list_shows_what_is_read_and_leaves_out_the_messages_of_ros(
    robot_interfaces: None,
) -> None:
    done = run(["list"], COLUMNS="120")
    assert done.returncode == 0
    rows = [line for line in done.stdout.splitlines() if "VisionDetectionArray" in line]
    assert ["detections" in row for row in rows] == [True]
    assert "zed_msgs" in done.stdout
    assert "sensor_msgs" not in done.stdout


def test_the_wheel_builds_in_the_same_way(
    robot_interfaces: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip("uv builds the wheel")
    subprocess.run(
        [uv, "build", "--quiet", "--wheel", "--out-dir", str(tmp_path), str(REPOSITORY)],
        check=True, timeout=120,
    )  # fmt: skip
    [wheel] = tmp_path.glob("*.whl")
    shutil.unpack_archive(wheel, tmp_path / "site", "zip")
    for name in [name for name in os.environ if name.startswith("COVERAGE_")]:
        monkeypatch.delenv(name)  # the copy is not what coverage is about
    # What it would build in another way would not be there already.
    done = add(DEFINITIONS, PYTHONPATH=str(tmp_path / "site"), PATH="/nowhere")
    assert done.returncode == 0, done.stderr


async def test_a_message_of_an_added_type_arrives_whole(robot_interfaces: None) -> None:
    domain, topic = fresh_domain(), "/vision/find_object/spatial"
    spec = {
        "topic": topic,
        "type": "depthai_ros_msgs/msg/SpatialDetection",
        "rate": 20,
        "fields": {
            "bbox": {"center": {"position": {"x": 12.0, "y": 34.0}}, "size_x": 56.0},
            "position": {"z": 1.5},
            "tracking_id": "7",
        },
    }
    kind = importlib.import_module("depthai_ros_msgs.msg").SpatialDetection
    context = Context()
    rclpy.init(
        context=context, domain_id=int(domain), signal_handler_options=SignalHandlerOptions.NO
    )
    receiver = Node("receiver", context=context)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(receiver)
    arrived: list[bytes] = []
    receiver.create_subscription(kind, topic, arrived.append, 10, raw=True)

    def one() -> bool:
        executor.spin_once(timeout_sec=0)
        return bool(arrived)

    try:
        async with node(domain, spec):
            await eventually(one)
    finally:
        executor.shutdown()
        receiver.destroy_node()
        context.try_shutdown()
    message = deserialize_message(arrived[0], kind)
    assert message.bbox.center.position.y == 34.0
    assert message.bbox.size_x == 56.0
    assert message.position.z == 1.5
    assert message.tracking_id == "7"
