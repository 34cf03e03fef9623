"""Adapter: tasks that stand in the configuration, for a robot whose vision node lists none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mcp_perception_buffer.errors import ConfigError
from mcp_perception_buffer.tasks.base import Task, TaskSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_KEYS = frozenset(Task.__dataclass_fields__)


class StaticTaskSource(TaskSource):
    """Lists the same tasks every time."""

    def __init__(self, tasks: Iterable[Mapping[str, Any]]) -> None:
        """Read tasks as YAML has them: the fields of `Task`; `watch` may be a mapping.

        Raises:
            ConfigError: a task has no `skill_id` or `skill`, one twice, or a wrong key or type.
        """
        self._tasks = tuple(map(_task, tasks))
        ids = [task.skill_id for task in self._tasks]
        if twice := {skill_id for skill_id in ids if ids.count(skill_id) > 1}:
            raise ConfigError(f"tasks: skill_id {', '.join(sorted(twice))} stands there twice")

    async def list_tasks(self) -> Sequence[Task]:
        """See `TaskSource.list_tasks`."""
        return self._tasks


def _task(entry: Mapping[str, Any]) -> Task:
    if not isinstance(entry, dict):
        raise ConfigError("tasks: each is a mapping with skill_id, skill, condition and watch")
    fields = dict(entry)
    if isinstance(fields.get("watch"), dict):
        fields["watch"] = json.dumps(fields["watch"], default=str)
    wrong = [key for key, value in fields.items() if key not in _KEYS or type(value) is not str]
    if wrong:
        raise ConfigError(f"tasks: {wrong[0]} is unknown or no text")
    if not fields.get("skill_id") or not fields.get("skill"):
        raise ConfigError("tasks: each needs a skill_id and a skill")
    return Task(**fields)
