"""The port: which tasks the vision node runs, and what is watched of them."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcp_perception_buffer.errors import PerceptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

# No state is standardised: one that is not known to be an end may well be running.
ENDED_STATES = frozenset(
    {
        *("stopped", "finished", "completed", "done", "succeeded", "success"),
        *("failed", "error", "cancelled", "canceled", "aborted"),
    }
)


class TaskSourceError(PerceptionError):
    """The tasks cannot be listed now; the text says why."""


@dataclass(frozen=True, slots=True)
class Task:
    """One running instance of a vision skill, as `VisionTask` describes it."""

    skill_id: str
    skill: str
    state: str = ""
    condition: str = ""
    watch: str = ""  # a JSON object, or empty when the task is not watched

    @property
    def watched(self) -> bool:
        """Whether it has a watch and its state is none of an ended task."""
        return bool(self.watch.strip()) and self.state.strip().lower() not in ENDED_STATES


class TaskSource(abc.ABC):
    """Knows which tasks there are now."""

    @abc.abstractmethod
    async def list_tasks(self) -> Sequence[Task]:
        """Return all tasks, the ones without a watch included, in a bounded time.

        Raises:
            TaskSourceError: nobody answers, or with nonsense; what was known stays valid.
        """
