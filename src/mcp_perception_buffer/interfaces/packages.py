"""Finds the interface packages in folders and reads their definitions, before anything is built."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from rosbags.interfaces import Nodetype
from rosbags.typesys import get_types_from_msg
from rosbags.typesys.base import TypesysError

from mcp_perception_buffer.errors import InterfaceError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rosbags.interfaces.typing import FieldDesc

# The names that rosidl takes.
PACKAGE_NAME = re.compile(r"(?!.*__)(?!.*_$)[a-z][a-z0-9_]*")
MESSAGE_NAME = re.compile(r"[A-Z][A-Za-z0-9]*")
FIELD_NAME = PACKAGE_NAME

NOT_SEARCHED = ("build", "install", "log")  # colcon's copies of what is beside them
# What ROS 1 called types by, and rosbags still does; rosidl does not take it.
OLD_NAMES = {
    "Header": "std_msgs/Header",
    "time": "builtin_interfaces/Time",
    "duration": "builtin_interfaces/Duration",
}
_OLD_NAME = re.compile(rf"^([ \t]*)({'|'.join(OLD_NAMES)})(?=[\s\[])", re.MULTILINE)
_LONG_NAME = re.compile(r"^([ \t]*\w+)/msg/(?=\w)", re.MULTILINE)


@dataclass(frozen=True)
class Package:
    """One interface package and what its messages say.

    Attributes:
        name: as ROS knows it.
        folder: where it was found.
        definitions: the text of each `.msg` file, as rosidl takes it, by message name.
        references: the types of other packages that they use, such as `"std_msgs/msg/Header"`.
    """

    name: str
    folder: Path
    definitions: dict[str, str]
    references: frozenset[str]

    @property
    def needs(self) -> set[str]:
        """The packages that it refers to."""
        return {reference.partition("/")[0] for reference in self.references}


def find_packages(folders: Iterable[Path]) -> dict[str, Package]:
    """Read every package in the folders, each of which is one, holds some, or is a `msg` folder.

    Raises:
        UnavailableError: a folder is not there.
        InterfaceError: a folder without definitions, a wrong definition, or one package twice.
    """
    found: dict[str, Package] = {}
    for folder in folders:
        for place in _places(folder):
            package = read_package(place)
            other = found.setdefault(package.name, package)
            if other.folder != package.folder:
                raise InterfaceError(
                    f"{package.name} is there twice: {other.folder} and {package.folder}; "
                    "name the one that the robot uses"
                )
    return found


def read_package(folder: Path) -> Package:
    """Read the package whose `.msg` files are in `folder` or in its subfolder `msg`.

    It is called as package.xml says, or else as its folder.

    Raises:
        InterfaceError: its name or a definition is not what ROS takes; the text names the file.
    """
    nested = folder / "msg"
    paths = sorted(nested.glob("*.msg")) or sorted(folder.glob("*.msg"))
    root = folder.parent if folder.name == "msg" else folder
    name = _manifest_name(root) or root.name
    if not PACKAGE_NAME.fullmatch(name):
        raise InterfaceError(
            f"{root}: {name!r} is no name of a ROS package (small letters, digits and single "
            "underscores); rename the folder, or put a package.xml with <name> beside msg/"
        )
    definitions = {path.stem: _read(path) for path in paths}
    references: set[str] = set()
    for path in paths:
        references |= _check(path, definitions[path.stem], name, definitions)
    return Package(name, root, definitions, frozenset(references))


def _places(folder: Path) -> list[Path]:
    folder = folder.resolve()
    if not folder.is_dir():
        raise UnavailableError(f"{folder} is no folder")
    if any(folder.glob("*.msg")) or any(folder.glob("msg/*.msg")):
        return [folder]
    places = []
    for path, names, files in os.walk(folder):
        names[:] = [
            name
            for name in sorted(names)
            if not name.startswith(".")
            and name not in NOT_SEARCHED
            and not Path(path, name, "COLCON_IGNORE").exists()
        ]
        if Path(path).name == "msg" and any(name.endswith(".msg") for name in files):
            places.append(Path(path))
    if not places:
        raise InterfaceError(
            f"{folder} holds no .msg files; name a folder of them, a package with msg/ in it, or a "
            "checkout with such packages"
        )
    return places


def _manifest_name(root: Path) -> str | None:
    manifest = root / "package.xml"
    if not manifest.is_file():
        return None
    try:
        return (ElementTree.parse(manifest).getroot().findtext("name") or "").strip() or None  # noqa: S314  # of one's own
    except ElementTree.ParseError as error:
        raise InterfaceError(f"{manifest} is no XML: {error}") from error


def _read(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InterfaceError(f"{path} cannot be read: {error}") from error
    text = _OLD_NAME.sub(lambda match: match[1] + OLD_NAMES[match[2]], text)
    return _LONG_NAME.sub(r"\1/", text)


def _check(path: Path, text: str, package: str, siblings: Iterable[str]) -> set[str]:
    """Return the types of other packages that one definition uses."""
    if not MESSAGE_NAME.fullmatch(path.stem):
        raise InterfaceError(
            f"{path}: a message's name begins with a capital and has letters and digits only"
        )
    type_name = f"{package}/msg/{path.stem}"
    try:
        _, fields = get_types_from_msg(text, type_name)[type_name]
    except TypesysError as error:
        raise InterfaceError(f"{path}{_wrong_line(text)}") from error
    counts = Counter(name for name, _ in fields)
    for name, count in counts.items():
        if not FIELD_NAME.fullmatch(name) or count > 1:
            said = "is there twice" if count > 1 else "must be small letters, digits and single _"
            raise InterfaceError(f"{path}: the field {name} {said}")
    references = {reference for _, desc in fields for reference in _named(desc)}
    own = {reference for reference in references if reference.startswith(f"{package}/")}
    for reference in sorted(own):
        name = reference.rpartition("/")[2]
        if name not in siblings and name != "wstring":  # a basic type that rosbags does not know
            raise InterfaceError(f"{path}: {name} is neither a basic type nor beside it as .msg")
    return references - own


def _wrong_line(text: str) -> str:
    """Say which line cannot be read."""
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            get_types_from_msg(f"{line}\n", "a_package/msg/Line")
        except TypesysError:
            return f", line {number}: {line.strip()!r} is no field, constant or comment"
    return ": cannot be read as a message definition"


def _named(desc: FieldDesc) -> Iterator[str]:
    """Yield the message type that a field is made of, if it is not a basic one."""
    kind, what = desc
    if kind == Nodetype.NAME:
        yield str(what)
    elif kind in (Nodetype.ARRAY, Nodetype.SEQUENCE):
        yield from _named(what[0])  # type: ignore[arg-type]
