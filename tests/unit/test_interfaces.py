"""Packages of `.msg` files: how they are found, what is wrong with them, when they are changed."""

from pathlib import Path

import pytest

from interfaces_env import DEFINITIONS
from mcp_perception_buffer.errors import InterfaceError, UnavailableError
from mcp_perception_buffer.interfaces.packages import find_packages
from mcp_perception_buffer.interfaces.recipe import Recipe


def package(folder: Path, name: str, /, **definitions: str) -> Path:
    (folder / name / "msg").mkdir(parents=True)
    for message, text in definitions.items():
        (folder / name / "msg" / f"{message}.msg").write_text(text)
    return folder / name


def manifest(folder: Path, name: str) -> None:
    (folder / "package.xml").write_text(f"<package><name>{name}</name></package>")


def test_a_package_is_called_as_its_manifest_or_else_its_folder_says(tmp_path: Path) -> None:
    folder = package(tmp_path, "checkout_of_it", Box="int32 x\n")
    assert list(find_packages([folder])) == ["checkout_of_it"]
    assert list(find_packages([folder / "msg"])) == ["checkout_of_it"]
    manifest(folder, "real_msgs")
    assert list(find_packages([folder])) == ["real_msgs"]
    assert list(find_packages([folder / "msg"])) == ["real_msgs"]


def test_definitions_may_lie_in_the_folder_itself(tmp_path: Path) -> None:
    folder = tmp_path / "flat_msgs"
    folder.mkdir()
    (folder / "Box.msg").write_text("int32 x\n")
    [found] = find_packages([folder]).values()
    assert (found.name, found.definitions) == ("flat_msgs", {"Box": "int32 x\n"})


def test_in_a_checkout_all_packages_are_found_but_not_what_was_built_from_them(
    tmp_path: Path,
) -> None:
    package(tmp_path / "src" / "deep", "some_msgs", Box="int32 x\n")
    package(tmp_path / "src", "other_msgs", Box="int32 x\n")
    for copy in ("install/some_msgs/share", "build", ".git", "src/old"):
        package(tmp_path / copy, "some_msgs", Box="int32 older\n")
    (tmp_path / "src" / "old" / "COLCON_IGNORE").touch()
    found = find_packages([tmp_path])
    assert found.keys() == {"some_msgs", "other_msgs"}
    assert found["some_msgs"].definitions == {"Box": "int32 x\n"}


def test_what_a_package_needs_is_read_from_its_definitions() -> None:
    found = find_packages([DEFINITIONS])
    assert {name: sorted(package.needs) for name, package in found.items()} == {
        "depthai_ros_msgs": ["geometry_msgs", "std_msgs", "vision_msgs"],
        "team_msgs": ["geometry_msgs", "std_msgs"],
        "ultralytics_ros": ["sensor_msgs", "std_msgs", "vision_msgs"],
        "vision_msgs": ["geometry_msgs", "std_msgs"],
        "yolo_msgs": ["geometry_msgs", "std_msgs"],
        "zed_msgs": ["std_msgs"],
    }


def test_older_and_longer_names_of_types_become_those_that_rosidl_takes(tmp_path: Path) -> None:
    text = "Header header\ntime[] t\nother_msgs/msg/Box[2] box  # a other_msgs/msg/Box\nint8 time\n"
    [found] = find_packages([package(tmp_path, "old_msgs", Old=text)]).values()
    assert found.definitions["Old"] == (
        "std_msgs/Header header\nbuiltin_interfaces/Time[] t\n"
        "other_msgs/Box[2] box  # a other_msgs/msg/Box\nint8 time\n"
    )
    assert found.needs == {"std_msgs", "builtin_interfaces", "other_msgs"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("int32 x\nfloat64 a,b\n", "line 2: 'float64 a,b' is no field"),
        ("int32\n", "line 1: 'int32' is no field"),
        ("int32 x\n---\nint32 y\n", "line 2: '---' is no field"),
        ("flaot32 x\n", "flaot32 is neither a basic type nor beside it"),
        ("int32 camelCase\n", "the field camelCase must be small letters"),
        ("int32 a__b\n", "the field a__b must be small letters"),
        ("int32 x\nint64 x\n", "the field x is there twice"),
    ],
)
def test_a_wrong_definition_is_told_with_its_file(tmp_path: Path, text: str, said: str) -> None:
    folder = package(tmp_path, "bad_msgs", Good="wstring w\nGood[] more\n", Bad=text)
    with pytest.raises(InterfaceError) as error:
        find_packages([folder])
    assert str(folder / "msg" / "Bad.msg") in str(error.value)
    assert said in str(error.value)


def test_a_definition_that_is_no_text_is_told(tmp_path: Path) -> None:
    folder = package(tmp_path, "bad_msgs")
    (folder / "msg" / "Bad.msg").write_bytes(b"\xff\xfe")
    with pytest.raises(InterfaceError, match=r"Bad\.msg cannot be read"):
        find_packages([folder])


def test_names_that_ros_does_not_take_are_told(tmp_path: Path) -> None:
    with pytest.raises(InterfaceError, match="'My-Msgs' is no name of a ROS package"):
        find_packages([package(tmp_path, "My-Msgs", Box="int32 x\n")])
    with pytest.raises(InterfaceError, match=r"box\.msg: a message's name begins with a capital"):
        find_packages([package(tmp_path, "my_msgs", box="int32 x\n")])


def test_a_manifest_that_is_no_xml_is_told(tmp_path: Path) -> None:
    folder = package(tmp_path, "my_msgs", Box="int32 x\n")
    (folder / "package.xml").write_text("<package><name>")
    with pytest.raises(InterfaceError, match=r"package\.xml is no XML"):
        find_packages([folder])


def test_a_folder_without_definitions_or_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InterfaceError, match=r"holds no \.msg files"):
        find_packages([tmp_path])
    with pytest.raises(UnavailableError, match="nowhere is no folder"):
        find_packages([tmp_path / "nowhere"])


def test_one_package_in_two_places_is_told_and_named_twice_is_one(tmp_path: Path) -> None:
    first = package(tmp_path / "a", "my_msgs", Box="int32 x\n")
    second = package(tmp_path / "b", "my_msgs", Box="int32 x\n")
    assert list(find_packages([first, first / "msg", tmp_path / "a"])) == ["my_msgs"]
    with pytest.raises(InterfaceError, match="my_msgs is there twice"):
        find_packages([first, second])


def test_a_version_stands_for_the_definitions_and_for_those_that_they_use(tmp_path: Path) -> None:
    recipe = Recipe("5.5")
    folder = package(tmp_path, "my_msgs", Box="int32 x\nother_msgs/Box other\n")

    def version(others: dict[str, str], recipe: Recipe = recipe) -> str:
        return recipe.version(find_packages([folder])["my_msgs"], others)

    first = version({"other_msgs": "1", "unused_msgs": "1"})
    assert version({"other_msgs": "1", "unused_msgs": "2"}) == first
    assert version({"other_msgs": "2"}) != first
    assert version({"other_msgs": "1"}, Recipe("5.3")) != first
    (folder / "msg" / "Box.msg").write_text("int64 x\nother_msgs/Box other\n")
    assert version({"other_msgs": "1"}) != first


def test_a_release_that_nothing_is_known_of_is_told() -> None:
    with pytest.raises(UnavailableError, match=r"std_msgs 6\.0"):
        Recipe("6.0")
