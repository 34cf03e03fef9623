"""The outbox on disk: a SQLite file that holds events and the state of their watches.

An event and the state that follows from it are committed together or not at all. What is
committed survives `kill -9`; of a power cut, SQLite promises an intact file that may lack the last
moments (`synchronous=NORMAL`).
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

import structlog

from mcp_perception_buffer.errors import PerceptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

log = structlog.get_logger(__name__)
_T = TypeVar("_T")

_VERSION = 1
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS watch (
    skill_id TEXT PRIMARY KEY, definition TEXT NOT NULL, seq INTEGER NOT NULL, armed INTEGER,
    cleared INTEGER NOT NULL, fired_s REAL, lost INTEGER NOT NULL, fate TEXT
) STRICT;
CREATE TABLE IF NOT EXISTS event (
    id TEXT PRIMARY KEY, skill_id TEXT NOT NULL, seq INTEGER NOT NULL, body BLOB NOT NULL,
    born_s REAL NOT NULL
) STRICT;
PRAGMA user_version = {_VERSION};
"""
_BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
# How long a predecessor may take to let go of the file.
_LOCK_TIMEOUT_S = 2.0


class JournalError(PerceptionError):
    """The disk does not do what it should. `broken`: the file itself cannot be used any more."""

    def __init__(self, text: str, *, broken: bool = False) -> None:
        super().__init__(text)
        self.broken = broken


class WatchRow(NamedTuple):
    """The state of one watch; times are Unix seconds."""

    skill_id: str
    definition: str
    seq: int
    armed: int | None
    cleared: int
    fired_s: float | None
    lost: int
    fate: str | None


class EventRow(NamedTuple):
    """One event that was not yet delivered; `born_s` in Unix seconds."""

    id: str
    skill_id: str
    seq: int
    body: bytes
    born_s: float


class Journal:
    """One open file; no other process can open it meanwhile.

    One thread does all of its work, one whole call after the other: what is begun is done even if
    nobody waits for it any more, and `close` comes after it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._db: sqlite3.Connection | None = None

    @classmethod
    async def open(cls, path: Path) -> tuple[Self, list[WatchRow], list[EventRow]]:
        """Open or create the file, and read it: all watches, and all events, oldest first.

        A file that cannot be read is moved to `<name>.broken`, and a new one begun.

        Raises:
            JournalError: the file cannot be created or written, or another process has it.
        """
        journal = cls(path)
        try:
            watches, events = await journal._call(journal._open)
        except BaseException:
            await journal.close()
            raise
        return journal, watches, events

    async def write(
        self,
        *,
        watches: Iterable[WatchRow],
        forgotten: Iterable[str],
        events: Iterable[EventRow],
        gone: Iterable[str],
    ) -> None:
        """Commit all of it in one transaction; the same once more changes nothing.

        Args:
            watches: replace the rows of the same skill_id.
            forgotten: skill_ids whose rows go.
            events: new ones, in order.
            gone: ids of events that need no further delivery.

        Raises:
            JournalError: nothing of it was committed.
        """
        statements: list[tuple[str, list[tuple[object, ...]]]] = [
            ("INSERT OR REPLACE INTO watch VALUES (?, ?, ?, ?, ?, ?, ?, ?)", [*watches]),
            ("DELETE FROM watch WHERE skill_id = ?", [(name,) for name in forgotten]),
            ("INSERT OR IGNORE INTO event VALUES (?, ?, ?, ?, ?)", [*events]),
            ("DELETE FROM event WHERE id = ?", [(name,) for name in gone]),
        ]
        await self._call(partial(self._write, statements))

    async def close(self) -> None:
        """Let go of the file."""
        try:
            await self._call(self._close)
        finally:
            self._thread.shutdown(wait=False)

    async def _call(self, work: Callable[[], _T]) -> _T:
        begun = asyncio.get_running_loop().run_in_executor(self._thread, work)
        with _translated():
            return await asyncio.shield(begun)

    # --- on the thread ----------------------------------------------------------------------

    def _open(self) -> tuple[list[WatchRow], list[EventRow]]:
        try:
            with _translated():
                return self._read()
        except JournalError as error:
            if not error.broken:
                raise
            log.error("journal_set_aside", reason=str(error))
        self._close()
        _set_aside(self._path)
        return self._read()

    def _read(self) -> tuple[list[WatchRow], list[EventRow]]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._db = db = sqlite3.connect(self._path, timeout=_LOCK_TIMEOUT_S)
        # Exclusive: two services that deliver the same events would be worse than one that keeps
        # its own in memory.
        for pragma in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = NORMAL"):
            db.execute(f"PRAGMA {pragma}").fetchall()
        [[version]] = db.execute("PRAGMA user_version").fetchall()
        [[verdict]] = db.execute("PRAGMA quick_check(1)").fetchall()
        if version not in (0, _VERSION) or verdict != "ok":
            raise JournalError(f"version {version}, check: {verdict}", broken=True)
        db.executescript(_SCHEMA)
        watches = db.execute("SELECT * FROM watch ORDER BY rowid").fetchall()
        events = db.execute(
            "SELECT event.* FROM event JOIN watch USING (skill_id) ORDER BY event.rowid"
        ).fetchall()
        return [WatchRow(*row) for row in watches], [EventRow(*row) for row in events]

    def _write(self, statements: list[tuple[str, list[tuple[object, ...]]]]) -> None:
        assert self._db is not None
        with self._db:
            for sql, rows in statements:
                if rows:
                    self._db.executemany(sql, rows)

    def _close(self) -> None:
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):
                self._db.close()
            self._db = None


def _set_aside(path: Path) -> None:
    # One name, so that a bad disk cannot fill up with broken files.
    path.replace(path.with_name(f"{path.name}.broken"))
    path.with_name(f"{path.name}-wal").unlink(missing_ok=True)


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        # Extended codes carry the primary one in their low byte.
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        raise JournalError(str(error), broken=code in _BROKEN) from error
    except OSError as error:
        raise JournalError(error.strerror or type(error).__name__) from error
