"""A recorded bag as it lies on disk: what it defines, and its messages in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rosbags.interfaces import MessageDefinitionFormat
from rosbags.rosbag2 import Reader
from rosbags.typesys import Stores, get_types_from_idl, get_typestore

from mcp_perception_buffer.decoding.text import one_line
from mcp_perception_buffer.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from rosbags.interfaces import Connection
    from rosbags.interfaces.typing import Typesdict

MENDED_BY = (
    "`ros2 bag reindex` mends a folder, and `mcap recover` a file, whose recording was cut off"
)
_SEPARATOR = "=" * 80 + "\n"


class BagFile:
    """A bag that is open until it is closed."""

    def __init__(self, path: Path) -> None:
        """Open it.

        Args:
            path: the folder of a rosbag2, or one of its files: MCAP or sqlite3.

        Raises:
            UnavailableError: it is not there, it is cut off, or it is no such bag.
        """
        self._path = path
        if not path.exists():
            raise UnavailableError(f"the bag {path} cannot be read: there is no such folder")
        if path.is_file() and path.suffix == ".bag":
            raise UnavailableError(
                f"the bag {path} cannot be read: it is one of ROS 1; convert it by"
                f" rosbags-convert --src {path} --dst FOLDER"
            )
        try:
            self._reader = Reader(path)
            self._reader.open()
        except Exception as error:  # bytes may be anything, and so is what the reader raises then
            raise UnavailableError(f"the bag {path} cannot be read: {_why(error)}") from error
        # A type of which two connections tell two definitions goes by the first.
        self._definitions = {
            connection.msgtype: connection.msgdef
            for connection in reversed(self._reader.connections)
            if connection.msgdef.format != MessageDefinitionFormat.NONE
        }
        self.connections = list(self._reader.connections)

    @property
    def duration_s(self) -> float:
        """Seconds from the first to the last message."""
        return self._reader.duration / 1e9

    def definition(self, type_name: str) -> str | None:
        """Return the `.msg` text of a type, and of those in it, None if the bag has none.

        Raises:
            TypesysError: the definition cannot be used.
        """
        found = self._definitions.get(type_name)
        if found is None or found.format == MessageDefinitionFormat.MSG:
            return found and found.data
        store = get_typestore(Stores.EMPTY)
        store.register(_types_from_idl(found.data))
        return store.generate_msgdef(type_name, ros_version=2)[0]

    def messages(
        self, connections: Collection[Connection], start_s: float
    ) -> Iterator[tuple[Connection, float, bytes]]:
        """Yield connection, seconds since the bag's first message, and CDR bytes, by time.

        Args:
            connections: of which; none give nothing.
            start_s: from when on, in the same seconds.

        Raises:
            UnavailableError: what follows is damaged.
        """
        begin_ns, at_s = self._reader.start_time, start_s
        start_ns = begin_ns + int(start_s * 1e9) if start_s else None
        try:
            # To the reader, no connections would mean all of them.
            for connection, stamp_ns, cdr in (
                self._reader.messages(connections, start=start_ns) if connections else ()
            ):
                at_s = (stamp_ns - begin_ns) / 1e9
                yield connection, at_s, bytes(cdr)
        except Exception as error:  # as when it is opened
            raise UnavailableError(
                f"the bag {self._path} is damaged after {at_s:.1f} s: {_why(error)}"
            ) from error

    def close(self) -> None:
        """Let go of the files."""
        self._reader.close()


def _types_from_idl(text: str) -> Typesdict:
    """Parse one type in IDL, or several as a bag has them, each after a line with its name."""
    if not text.startswith(f"{_SEPARATOR}IDL: "):
        return get_types_from_idl(text)
    types: Typesdict = {}
    for part in text.split(_SEPARATOR)[1:]:
        types.update(get_types_from_idl(part.partition("\n")[2]))
    return types


def _why(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    said = one_line(str(error), 300).rstrip(".")
    return f"{said or type(error).__name__}; {MENDED_BY}"
