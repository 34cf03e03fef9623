"""Watches on a scene that a test feeds, with a brain that they post to."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

from brain import SECRET, Brain
from mcp_perception_buffer.events.delivery import Delivery
from mcp_perception_buffer.events.outbox import Outbox
from mcp_perception_buffer.events.webhook import WebhookSink
from mcp_perception_buffer.tasks.base import Task, TaskSource, TaskSourceError
from mcp_perception_buffer.watcher import Watcher
from support import Scene, eventually, stamped_string

TOPIC = "/vision/find_object/triggered"
TRIGGERED = '{"output": "triggered", "equals": true}'


def task(watch: str = TRIGGERED, **fields: str) -> Task:
    given = {"skill_id": "task-1", "skill": "find_object", "condition": "a cup is there"}
    return Task(**{**given, "state": "active", **fields}, watch=watch)


class FakeTaskSource(TaskSource):
    """Lists what a test says; an error is raised instead."""

    def __init__(self, *tasks: Task) -> None:
        self.tasks: Sequence[Task] | TaskSourceError = tasks
        self.asked = 0

    async def list_tasks(self) -> Sequence[Task]:
        self.asked += 1
        if isinstance(self.tasks, TaskSourceError):
            raise self.tasks
        return self.tasks


class Service:
    """A scene, its watches, and a brain that they post to."""

    def __init__(self, brain: Brain, *tasks: Task, **options: Any) -> None:
        self.brain = brain
        self.scene = Scene()
        self.tasks = FakeTaskSource(*tasks)
        self.outbox = Outbox(
            options.get("state_dir"), clock_ns=self.scene.clock, wall_clock_s=brain.clock
        )
        self.watcher = Watcher(
            self.scene.buffer,
            self.tasks,
            self.outbox,
            reconcile_interval_s=0.01,
            clock_ns=self.scene.clock,
            wall_clock_s=brain.clock,
        )
        sink = WebhookSink(
            options.get("url", brain.url),
            secrets=[SECRET],
            timeout_s=0.5,
            wall_clock_s=brain.clock,
        )
        self.delivery = Delivery(self.outbox, sink, backoff_first_s=0.002, backoff_max_s=0.02)

    def say(self, value: str, topic: str = TOPIC) -> None:
        self.scene.put(topic, stamped_string(value, sec=self.scene.clock() // 10_000_000))
        self.scene.clock.advance(0.01)

    async def listed(self, *tasks: Task) -> None:
        """Let the task source list these from now on, and wait until they are watched."""
        self.tasks.tasks = tasks
        await self.asked_again()

    async def asked_again(self) -> None:
        asked = self.tasks.asked
        await eventually(lambda: self.tasks.asked >= asked + 2)

    async def settled(self) -> list[Any]:
        """Wait until nothing is left to deliver, and return the accepted payloads."""
        await eventually(lambda: not self.outbox.depth)
        return [one.payload for one in self.brain.accepted]

    @property
    def view(self) -> Any:
        [view] = self.watcher.views().watches
        return view


@contextlib.asynccontextmanager
async def running(brain: Brain, *tasks: Task, **options: Any) -> AsyncIterator[Service]:
    made = Service(brain, *(tasks or [task()]), **options)
    async with made.outbox:
        parts = [
            asyncio.create_task(part.run()) for part in (made.outbox, made.delivery, made.watcher)
        ]
        try:
            await made.asked_again()
            yield made
            assert not any(part.done() for part in parts)
        finally:
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)
