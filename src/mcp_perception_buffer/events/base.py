"""The port: where events go, one attempt at a time."""

from __future__ import annotations

import abc
import contextlib
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcp_perception_buffer.watch import Memory
    from robot_mcp_kit import Outcome


class Fate(StrEnum):
    """What became of a watch's last event."""

    PENDING = "pending"  # waits for its turn
    RETRYING = "retrying"  # the brain did not answer, or with an error that may pass
    HELD = "held"  # the brain refuses our signature; tried again, seldom
    DISABLED = "disabled"  # the brain wants no more events
    DELIVERED = "delivered"
    DEAD = "dead"  # the brain will never take it
    EXPIRED = "expired"
    DROPPED = "dropped"  # the outbox was full
    OFF = "off"  # push is off


@dataclass(frozen=True, slots=True)
class Event:
    """One edge, ready to be sent. Nothing of it changes from one attempt to the next."""

    id: str  # the idempotency key
    skill_id: str
    seq: int
    body: bytes  # JSON, UTF-8
    born_ns: int  # monotonic; after a restart counted back from the wall clock


@dataclass(frozen=True, slots=True)
class Record:
    """What is kept of a watch. `definition` identifies what it watched when it was saved."""

    skill_id: str
    definition: str
    memory: Memory


class EventSink(contextlib.AbstractAsyncContextManager["EventSink"], abc.ABC):
    """Takes events; open within `async with`."""

    @abc.abstractmethod
    async def send(self, event: Event) -> Outcome:
        """Attempt one delivery in a bounded time; failures are outcomes, not exceptions.

        May be called for several events at once.
        """
