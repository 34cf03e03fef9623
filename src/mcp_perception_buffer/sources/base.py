"""The port: where observations come from."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Source(abc.ABC):
    """Delivers raw messages into a buffer for as long as it runs."""

    @abc.abstractmethod
    def find_definition(self, type_name: str) -> str:
        """Return the `.msg` text of a type that this source may deliver, once it runs.

        Raises:
            UnknownTypeError: it is not installed.
        """

    @abc.abstractmethod
    async def run(self, on_ready: Callable[[], None]) -> None:
        """Deliver until cancelled, then release everything; call once.

        Args:
            on_ready: called when delivery has begun.

        Raises:
            UnavailableError: it cannot be opened; the text says what to do.
            Exception: anything else ends the service as well, which must never go on deaf.
        """

    @property
    @abc.abstractmethod
    def last_beat_ns(self) -> int:
        """When the source last showed a sign of life, on `time.monotonic_ns`."""

    def network(self) -> dict[str, str]:
        """Say where it listens, by names that a person knows; empty where there is no network."""
        return {}
