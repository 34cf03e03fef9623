"""What is no bag, or no whole one: one message says so."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from rosbags.rosbag2.enums import StoragePlugin

from bag_scenes import RECORDED, playing, write
from mcp_perception_buffer.errors import UnavailableError
from mcp_perception_buffer.server import running
from mcp_perception_buffer.settings import Settings
from processes import serve


@pytest.fixture(params=[StoragePlugin.SQLITE3, StoragePlugin.MCAP])
def bag(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write(tmp_path / "bag", *RECORDED, plugin=request.param)


def cut(file: Path, size: int) -> None:
    with file.open("r+b") as opened:
        opened.truncate(size)


def no_metadata(bag: Path) -> None:
    (bag / "metadata.yaml").unlink()


def odd_metadata(bag: Path) -> None:
    (bag / "metadata.yaml").write_text("rosbag2_bagfile_information: {version: 5}\n")


def cut_metadata(bag: Path) -> None:
    cut(bag / "metadata.yaml", 300)


def cut_file(bag: Path) -> None:
    [file] = (path for path in bag.iterdir() if path.suffix != ".yaml")
    cut(file, file.stat().st_size // 2)


def empty_file(bag: Path) -> None:
    [file] = (path for path in bag.iterdir() if path.suffix != ".yaml")
    cut(file, 0)


def no_file(bag: Path) -> None:
    [file] = (path for path in bag.iterdir() if path.suffix != ".yaml")
    file.unlink()


@pytest.mark.parametrize(
    "spoil", [no_metadata, odd_metadata, cut_metadata, cut_file, empty_file, no_file]
)
async def test_a_bag_that_is_cut_off_or_spoilt_is_told(
    bag: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(bag)
    with pytest.raises(UnavailableError, match="cannot be read") as caught:
        async with running(Settings(**playing(bag)), lambda: None):
            pass
    assert str(bag) in str(caught.value)
    assert "ros2 bag reindex" in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_bag_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="nothing_here cannot be read"):
        async with running(Settings(**playing(tmp_path / "nothing_here")), lambda: None):
            pass


async def test_a_bag_of_ros_1_is_told_how_it_is_converted(tmp_path: Path) -> None:
    (tmp_path / "old.bag").write_bytes(b"#ROSBAG V2.0\n")
    with pytest.raises(UnavailableError, match="rosbags-convert --src"):
        async with running(Settings(**playing(tmp_path / "old.bag")), lambda: None):
            pass


async def test_damage_in_the_midst_of_a_bag_ends_the_service_with_one_message(
    tmp_path: Path,
) -> None:
    bag = write(tmp_path / "bag", *RECORDED)
    [file] = bag.glob("*.mcap")
    whole = file.read_bytes()
    at = whole.index(b"a cup")
    file.write_bytes(whole[:at] + b"\xff" * 100 + whole[at + 100 :])
    async with serve("source=bag", f"source.path={bag}", "tasks=static") as process:
        _, err = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 1
    assert f"the bag {bag} is damaged after 0.0 s".encode() in err
    assert b"Traceback" not in err
    assert b"exception" not in err


async def test_a_bag_that_cannot_be_read_ends_the_command_with_one_line(bag: Path) -> None:
    shutil.rmtree(bag)
    async with serve("source=bag", f"source.path={bag}", "tasks=static") as process:
        _, err = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 1
    assert err.decode().splitlines()[-1] == (
        f"error: the bag {bag} cannot be read: there is no such folder"
    )
    assert b"Traceback" not in err
