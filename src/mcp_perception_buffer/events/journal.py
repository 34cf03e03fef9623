"""The outbox on disk: a SQLite file that holds events and the state of their watches.

An event and the state that follows from it are committed together or not at all. What is
committed survives `kill -9`; of a power cut, SQLite promises an intact file that may lack the last
moments (`synchronous=NORMAL`).
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from typing import TYPE_CHECKING, NamedTuple, Self

import aiosqlite
import structlog

from mcp_perception_buffer.errors import PerceptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

log = structlog.get_logger(__name__)

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
    """One open file; no other process can open it meanwhile."""

    def __init__(self, db: aiosqlite.Connection) -> None:
        self._db = db

    @classmethod
    async def open(cls, path: Path) -> tuple[Self, list[WatchRow], list[EventRow]]:
        """Open or create the file, and read it: all watches, and all events, oldest first.

        A file that cannot be read is moved to `<name>.broken`, and a new one begun.

        Raises:
            JournalError: the file cannot be created or written, or another process has it.
        """
        try:
            return await cls._open(path)
        except JournalError as error:
            if not error.broken:
                raise
            log.error("journal_set_aside", reason=str(error))
            with _translated():
                await asyncio.to_thread(_set_aside, path)
        return await cls._open(path)

    @classmethod
    async def _open(cls, path: Path) -> tuple[Self, list[WatchRow], list[EventRow]]:
        with _translated():
            await asyncio.to_thread(path.parent.mkdir, parents=True, exist_ok=True)
            db = await aiosqlite.connect(path, timeout=_LOCK_TIMEOUT_S)
        try:
            with _translated():
                # Exclusive: two services that deliver the same events would be worse than one
                # that keeps its own in memory.
                await db.execute("PRAGMA locking_mode = EXCLUSIVE")
                await db.execute("PRAGMA journal_mode = WAL")
                await db.execute("PRAGMA synchronous = NORMAL")
                [[version]] = await db.execute_fetchall("PRAGMA user_version")
                [[verdict]] = await db.execute_fetchall("PRAGMA quick_check(1)")
                if version not in (0, _VERSION) or verdict != "ok":
                    raise JournalError(f"version {version}, check: {verdict}", broken=True)
                await db.executescript(_SCHEMA)
                watches = await db.execute_fetchall("SELECT * FROM watch ORDER BY rowid")
                events = await db.execute_fetchall(
                    "SELECT event.* FROM event JOIN watch USING (skill_id) ORDER BY event.rowid"
                )
        except BaseException:
            await db.close()
            raise
        return cls(db), [WatchRow(*row) for row in watches], [EventRow(*row) for row in events]

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
        try:
            with _translated():
                for sql, rows in (
                    ("INSERT OR REPLACE INTO watch VALUES (?, ?, ?, ?, ?, ?, ?, ?)", [*watches]),
                    ("DELETE FROM watch WHERE skill_id = ?", [(name,) for name in forgotten]),
                    ("INSERT OR IGNORE INTO event VALUES (?, ?, ?, ?, ?)", [*events]),
                    ("DELETE FROM event WHERE id = ?", [(name,) for name in gone]),
                ):
                    if rows:
                        await self._db.executemany(sql, rows)
                await self._db.commit()
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                await self._db.rollback()
            raise

    async def close(self) -> None:
        """Let go of the file."""
        with contextlib.suppress(sqlite3.Error):
            await self._db.close()


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
