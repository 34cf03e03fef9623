"""Adapter: the vision node's own service, called on the node that `RosSource` runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_perception_buffer.component import Timeout  # noqa: TC001  # evaluated at start-up
from mcp_perception_buffer.decoding.text import one_line
from mcp_perception_buffer.tasks.base import Task, TaskSource, TaskSourceError
from ros2_vision_interfaces.srv import ListVisionTasks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mcp_perception_buffer.sources.ros import RosSource

SERVICE = "/robot_mcp_perception/list_vision_tasks"
MAX_ERROR_CHARS = 200


class RosTaskSource(TaskSource):
    """Asks a `ros2_vision_interfaces/srv/ListVisionTasks` service."""

    def __init__(
        self, source: RosSource, *, service: str = SERVICE, timeout_s: Timeout = 2.0
    ) -> None:
        """Ask `service`, at most `timeout_s` a call, once `source` runs."""
        self._source = source
        self._service = service
        self._timeout_s = timeout_s

    async def list_tasks(self) -> Sequence[Task]:
        """See `TaskSource.list_tasks`."""
        try:
            response = await self._source.call_service(
                ListVisionTasks,
                self._service,
                ListVisionTasks.Request(),
                timeout_s=self._timeout_s,
            )
            return [
                Task(task.skill_id, task.skill, task.state, task.condition, task.watch)
                for task in response.tasks
            ]
        except TimeoutError as error:
            raise TaskSourceError(
                f"{self._service} did not answer within {self._timeout_s:g} s"
            ) from error
        except Exception as error:  # rcl's own types, and whatever a foreign server may cause
            raise TaskSourceError(one_line(str(error), MAX_ERROR_CHARS)) from error
