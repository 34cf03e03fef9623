"""Runs rclpy on the asyncio loop: a thread only waits, everything is taken on the loop.

First stop of every message: wait set -> `spin_once` -> subscription callback; while many messages
come, a sweep over all subscriptions instead. Nothing else of the service knows how this is done.
From rclpy 10 on, upstream's asyncio node replaces this file.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog
from rclpy.exceptions import InvalidHandle
from rclpy.executors import Executor
from rclpy.task import Task

from mcp_perception_buffer.sources.ros_waitset import GRAPH, SUBSCRIPTION, WAITABLE, WaitSet

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from rclpy.client import Client
    from rclpy.context import Context
    from rclpy.node import Node
    from rclpy.subscription import Subscription

log = structlog.get_logger(__name__)

# Callbacks run in one go before the loop gets its turn; at 5-10 µs each this stays below 1 ms.
MAX_TAKES_PER_TURN = 64
# One stream's burst, so that a fast publisher cannot hold back the others of the same wake.
MAX_TAKES_PER_SUBSCRIPTION = 16
# A wake through the thread costs as much as ten messages. So when the next one comes this soon
# after the last, messages are let gather and then swept up, without wait set and thread.
SWEEP_INTERVAL_S = 0.002
# A sweep asks each subscription, about a microsecond each: this much time between bounds the cost.
SWEEP_INTERVAL_PER_SUBSCRIPTION_S = 80e-6
MAX_SWEEP_INTERVAL_S = 0.04
# So many sweeps in a row that find nothing end it.
MAX_EMPTY_SWEEPS = 2
# So often a sweep looks at timers, clients, services and guard conditions, too: 100 µs each time.
LOOK_INTERVAL_S = 0.05


class ExecutorStoppedError(RuntimeError):
    """The executor stopped although nobody asked it to; the text says why."""


class AsyncioExecutor(Executor):
    """An rclpy executor whose callbacks all run on the asyncio loop that created it.

    A helper thread blocks in the rcl wait set (which releases the GIL) and wakes the loop;
    `spin_once` then takes all that is ready. All rclpy objects are touched on the loop only, so
    entities may be created and destroyed there at any moment while it runs. Plain callbacks run
    one after another; coroutine callbacks become asyncio tasks.
    """

    def __init__(self, *, context: Context) -> None:
        super().__init__(context=context)
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._thread: threading.Thread | None = None
        # Held while the thread may not wait: the loop releases it once the wait set is filled.
        self._armed = threading.Lock()
        self._armed.acquire()
        self._stopping = False
        self._entities_changed = True
        self._waiting = False
        self._armed_ns = 0
        self._next_sweep: asyncio.Handle | None = None
        self._sweep_interval_s = SWEEP_INTERVAL_S
        self._looked_ns = 0
        self._sweeps_left = 0
        self._ready: deque[tuple[Callable[[Any], Any], Any]] = deque()
        self._background: set[asyncio.Task[None]] = set()
        self._wait_set: WaitSet | None = None
        self._others: WaitSet | None = None  # all but the subscriptions
        # Rotated as they are asked, so that after a limit the others come first.
        self._takes: deque[tuple[Callable[[], Any], Subscription[Any]]] = deque()
        self._takers: dict[str, Callable[[Any], int]] = {
            SUBSCRIPTION: self._drain,
            GRAPH: self._note_graph_change,
            WAITABLE: self._take_via(self._take_waitable),
            "guard_condition": self._take_via(self._take_guard_condition),
            "timer": self._take_via(self._take_timer),
            "client": self._take_via(self._take_client),
            "service": self._take_via(self._take_service),
        }
        self.last_spin_ns = time.monotonic_ns()
        # Set whenever anything in the ROS graph changed; who waits for it clears it.
        self.graph_changed = asyncio.Event()

    async def run(self) -> None:
        """Spin until `shutdown`.

        Raises:
            ExecutorStoppedError: the rcl wait failed, or the context was shut down by others.
        """
        if self._stopping:
            return  # shut down before it began
        self._thread = threading.Thread(target=self._wait_forever, name="rcl-wait", daemon=True)
        self._thread.start()
        self._arm()
        try:
            await self._ended
        finally:
            self._stop_thread()

    def shutdown(self, timeout_sec: float | None = None) -> bool:
        """Stop taking, end the thread and release what it held; idempotent."""
        if not self._ended.done():
            self._ended.set_result(None)
        self._stop_thread()
        return super().shutdown(timeout_sec)

    def wake(self) -> None:
        """Note that entities changed and rebuild the wait set; any thread."""
        self._entities_changed = True
        super().wake()

    def ping(self) -> None:
        """Send one empty wake through thread and loop, which moves `last_spin_ns`."""
        super().wake()

    async def call(self, client: Client[Any, Any], request: Any, *, timeout_s: float) -> Any:
        """Call a service and return its response.

        Raises:
            TimeoutError: no response within `timeout_s`; a late one is dropped.
        """
        future = client.call_async(request)
        answered = asyncio.Event()
        future.add_done_callback(lambda _: answered.set())
        try:
            async with asyncio.timeout(timeout_s):
                await answered.wait()
        finally:
            client.remove_pending_request(future)
        return future.result()

    def create_task(self, callback: Callable[..., Any], *args: Any, **kwargs: Any) -> Task[Any]:
        """Run `callback` soon on the loop (rclpy futures report their completion this way)."""
        task = Task(callback, args, kwargs, executor=self)
        self._loop.call_soon_threadsafe(self._step, task)
        return task

    def spin_once(self, timeout_sec: float | None = None) -> None:
        """Take what is ready, at most `MAX_TAKES_PER_TURN` callbacks, never blocking.

        Runs on the loop, called by the thread's wake; `timeout_sec` is part of rclpy's interface
        and has no meaning here.
        """
        if self._waiting or self._next_sweep is not None:
            return  # the thread owns the wait set, or messages gather: both come back here
        if not self._alive():
            return
        takes = 0
        while self._ready:
            if takes >= MAX_TAKES_PER_TURN:
                self._loop.call_soon(self.spin_once)
                return
            take, entity = self._ready.popleft()
            takes += take(entity)
        if self._sweeps_left:
            self._next_sweep = self._loop.call_later(self._sweep_interval_s, self._sweep)
        else:
            self._arm()

    # --- the thread -----------------------------------------------------------------------

    def _wait_forever(self) -> None:
        error: Exception | None = None
        while error is None:
            self._armed.acquire()
            if self._stopping:
                return
            assert self._wait_set is not None  # filled before the lock was released
            try:
                self._wait_set.wait(-1)
            except Exception as exc:  # rcl's own error types differ between distributions
                error = exc
            if self._stopping:
                return
            try:
                self._loop.call_soon_threadsafe(self._woken, error)
            except RuntimeError:
                return  # the loop is closed

    def _stop_thread(self) -> None:
        if self._stopping:
            return
        self._stopping = True
        if self._thread is not None:
            # It is in the wait, or before the lock, or on its way: each of them ends.
            super().wake()
            if self._armed.locked():
                self._armed.release()
            self._thread.join()
        if self._next_sweep is not None:
            self._next_sweep.cancel()
        self._ready.clear()
        self._takes.clear()
        for task in self._background:
            task.cancel()
        self._release()

    # --- on the loop ------------------------------------------------------------------------

    def _woken(self, error: Exception | None) -> None:
        self._waiting = False
        wait_set = self._wait_set
        if self._stopping or self._ended.done() or wait_set is None:
            return
        if error is not None:
            self._fail(ExecutorStoppedError(f"waiting for ROS failed: {error}"))
            return
        soon = time.monotonic_ns() - self._armed_ns < self._sweep_interval_s * 1e9
        self._sweeps_left = MAX_EMPTY_SWEEPS if soon else 0
        self._collect_ready(wait_set)
        self.spin_once()

    def _sweep(self) -> None:
        """Take from all subscriptions without asking which of them are ready."""
        self._next_sweep = None
        if not self._alive():
            return
        looked_for_ns = self.last_spin_ns - self._looked_ns
        if (self._entities_changed or looked_for_ns > LOOK_INTERVAL_S * 1e9) and not self._look():
            return
        takes = 0
        again = False
        for asked, (take, subscription) in enumerate(self._takes, 1):
            try:
                taken = take()
            except Exception:
                log.exception("take_failed", topic=subscription.topic_name)
                continue
            if taken is None:
                continue
            count = self._drain(subscription, taken)
            takes += count
            again = again or count >= MAX_TAKES_PER_SUBSCRIPTION
            if takes >= MAX_TAKES_PER_TURN or self._entities_changed:
                again = True
                self._takes.rotate(-asked)
                break
        self._sweeps_left = MAX_EMPTY_SWEEPS if takes else self._sweeps_left - 1
        if again:
            self._next_sweep = self._loop.call_soon(self._sweep)
        else:
            self.spin_once()

    def _look(self) -> bool:
        """Ask what of all but the subscriptions is ready, without waiting; False if that failed."""
        self._looked_ns = self.last_spin_ns
        self._rebuild()
        assert self._others is not None  # just rebuilt
        try:
            self._others.fill()
            self._others.wait(0)
        except Exception as error:  # rcl's own error types differ between distributions
            self._fail(ExecutorStoppedError(f"waiting for ROS failed: {error}"))
            return False
        self._collect_ready(self._others)
        return True

    def _alive(self) -> bool:
        if self._stopping or self._ended.done():
            return False
        self.last_spin_ns = time.monotonic_ns()
        if not self._context.ok():
            self._fail(ExecutorStoppedError("the ROS context was shut down"))
            return False
        return True

    def _fail(self, error: ExecutorStoppedError) -> None:
        if not self._ended.done():
            self._ended.set_exception(error)

    def _arm(self) -> None:
        """Fill the wait set and let the thread wait on it."""
        self._rebuild()
        assert self._wait_set is not None  # just rebuilt
        self._wait_set.fill()
        self._waiting = True
        self._armed_ns = time.monotonic_ns()
        self._armed.release()

    def _rebuild(self) -> None:
        if not self._entities_changed:
            return
        self._entities_changed = False
        self._release()
        nodes = self.get_nodes()
        self._wait_set = WaitSet(self._context, nodes, self._guard)
        self._others = WaitSet(self._context, nodes, self._guard, subscriptions=False)
        self._takes = deque(
            (partial(s.handle.take_message, s.msg_type, s.raw), s)
            for s in self._wait_set.subscriptions.values()
        )
        interval_s = SWEEP_INTERVAL_PER_SUBSCRIPTION_S * len(self._takes)
        self._sweep_interval_s = min(max(SWEEP_INTERVAL_S, interval_s), MAX_SWEEP_INTERVAL_S)

    def _release(self) -> None:
        for wait_set in (self._wait_set, self._others):
            if wait_set is not None:
                wait_set.close()
        self._wait_set = self._others = None

    def _collect_ready(self, wait_set: WaitSet) -> None:
        self._ready.extend((self._takers[kind], entity) for kind, entity in wait_set.ready())

    def _drain(self, subscription: Subscription[Any], taken: Any = None) -> int:
        """Take a subscription's waiting messages; what exceeds the limit is ready again at once.

        `taken` is a first one that was taken already.
        """
        handle, msg_type, raw = subscription.handle, subscription.msg_type, subscription.raw
        callback: Callable[..., Any] = subscription.callback
        with_info = subscription._callback_type is subscription.CallbackType.WithMessageInfo
        takes = 0
        try:
            with handle:
                while takes < MAX_TAKES_PER_SUBSCRIPTION:
                    if taken is None:
                        taken = handle.take_message(msg_type, raw)
                        if taken is None:
                            break
                    takes += 1
                    result = callback(*taken) if with_info else callback(taken[0])
                    taken = None
                    if result is not None and asyncio.iscoroutine(result):
                        self._start(result)
        except InvalidHandle:
            pass  # destroyed by a callback of this very turn
        except Exception:
            log.exception("callback_failed", topic=subscription.topic_name)
        return takes

    def _note_graph_change(self, node: Node) -> int:
        self.graph_changed.set()
        return 0

    def _take_via(self, take: Callable[[Any], Any]) -> Callable[[Any], int]:
        """Wrap one of rclpy's own take functions, which return the work as a coroutine function."""

        def run(entity: Any) -> int:
            try:
                execute = take(entity)
                if execute is not None:
                    self._start(execute())
            except InvalidHandle:
                pass
            except Exception:
                log.exception("take_failed", entity=type(entity).__name__)
            return 1

        return run

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("callback_failed", exc_info=task.exception())

    def _step(self, task: Task[Any]) -> None:
        task()
        if not task.done() and not task.cancelled():
            self._loop.call_later(0.01, self._step, task)  # it awaits an rclpy future: look again
