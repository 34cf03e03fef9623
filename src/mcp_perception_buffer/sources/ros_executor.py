"""Runs rclpy on the asyncio loop: everything is taken on the loop, nothing there ever waits.

First stop of every message: eventfd -> the loop's own epoll -> subscription callback. All else of
rcl (timers, services, the graph) a thread waits for. Nothing else of the service knows how this is
done. From rclpy 10 on, upstream's asyncio node replaces this file and its two neighbours.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import structlog
from rclpy.exceptions import InvalidHandle
from rclpy.executors import Executor
from rclpy.task import Task

from mcp_perception_buffer.sources.ros_arrivals import Arrivals
from mcp_perception_buffer.sources.ros_waitset import GRAPH, WAITABLE, WaitSet

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
# A wake of the loop costs as much as taking several messages. So when one comes this soon after
# the last, they gather for a while between two looks, for as long as each look finds a few.
SOON_S = 0.002
GATHER_S = 0.004
WORTH_GATHERING = 3


class ExecutorStoppedError(RuntimeError):
    """The executor stopped although nobody asked it to; the text says why."""


class AsyncioExecutor(Executor):
    """An rclpy executor whose callbacks all run on the asyncio loop that created it.

    Messages wake the loop by themselves (see `Arrivals`). For the rest a helper thread blocks in
    the rcl wait set (which releases the GIL) and wakes the loop; `spin_once` then takes all that is
    ready. All rclpy objects are touched on the loop only, so entities may be created and destroyed
    there at any moment while it runs. Plain callbacks run one after another; coroutine callbacks
    become asyncio tasks.
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
        self._arrivals = Arrivals()
        self._unread: deque[Subscription[Any]] = deque()  # left by the last turn, in its order
        self._took_ns = 0
        self._gathering = False
        self._next_take: asyncio.Handle | None = None
        self._ready: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._background: set[asyncio.Task[None]] = set()
        self._wait_set: WaitSet | None = None
        self._takers: dict[str, Callable[[Any], None]] = {
            GRAPH: self._note_graph_change,
            WAITABLE: self._take_via(self._take_waitable),
            "guard_condition": self._take_via(self._take_guard_condition),
            "timer": self._take_via(self._take_timer),
            "client": self._take_via(self._take_client),
            "service": self._take_via(self._take_service),
        }
        self.last_spin_ns = time.monotonic_ns()  # messages alone do not move it
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
        try:
            self.spin_once()
            self._loop.add_reader(self._arrivals, self._arrived)
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

    def nudge(self) -> None:
        """Look into every subscription for messages that the middleware told nobody of."""
        self._arrivals.nudge()

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
        """Run what the thread found ready, then let it wait again; never blocking.

        `timeout_sec` is part of rclpy's interface and has no meaning here.
        """
        if self._waiting or not self._alive():
            return
        self.last_spin_ns = time.monotonic_ns()
        while self._ready:
            take, entity = self._ready.popleft()
            take(entity)
        if self._entities_changed:
            self._entities_changed = False
            if self._wait_set is not None:
                self._wait_set.close()
            nodes = self.get_nodes()
            self._wait_set = WaitSet(self._context, nodes, self._guard)
            self._arrivals.follow(s for node in nodes for s in node.subscriptions)
        assert self._wait_set is not None  # made in the first turn
        self._wait_set.fill()
        self._waiting = True
        self._armed.release()

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
        if self._next_take is not None:
            self._next_take.cancel()
        self._loop.remove_reader(self._arrivals)
        self._arrivals.close()
        self._unread.clear()
        self._ready.clear()
        for task in self._background:
            task.cancel()
        if self._wait_set is not None:
            self._wait_set.close()
            self._wait_set = None

    # --- on the loop ------------------------------------------------------------------------

    def _woken(self, error: Exception | None) -> None:
        self._waiting = False
        wait_set = self._wait_set
        if self._stopping or self._ended.done() or wait_set is None:
            return
        if error is not None:
            self._fail(ExecutorStoppedError(f"waiting for ROS failed: {error}"))
            return
        try:
            self._ready.extend((self._takers[kind], entity) for kind, entity in wait_set.ready())
            self.spin_once()
        except Exception as exc:  # whatever it is, going on would be going on deaf
            self._fail(ExecutorStoppedError(f"cannot wait for ROS: {exc}"))

    def _arrived(self) -> None:
        soon = time.monotonic_ns() - self._took_ns < SOON_S * 1e9
        self._take_messages(1 if soon else MAX_TAKES_PER_TURN)

    def _take_messages(self, enough: int) -> None:
        """Take what has arrived; were it `enough`, more gathers now and does not wake the loop."""
        try:
            if self._alive():
                self._take_some(enough)
        except Exception as exc:  # as in `_woken`
            self._fail(ExecutorStoppedError(f"cannot take messages: {exc}"))

    def _take_some(self, enough: int) -> None:
        unread = deque(dict.fromkeys([*self._unread, *self._arrivals.ready()]))
        takes = 0
        while unread and takes < MAX_TAKES_PER_TURN:
            subscription = unread.popleft()
            count = self._drain(subscription)
            if count == MAX_TAKES_PER_SUBSCRIPTION:
                unread.append(subscription)  # it may hold more, after the others' turn
            takes += count
        self._unread = unread
        self._took_ns = time.monotonic_ns()
        gather = takes >= enough or bool(self._unread)
        if gather:
            delay_s = 0.0 if self._unread else GATHER_S
            self._next_take = self._loop.call_later(delay_s, self._take_messages, WORTH_GATHERING)
        if gather is not self._gathering:
            self._gathering = gather
            if gather:
                self._loop.remove_reader(self._arrivals)
            else:
                self._loop.add_reader(self._arrivals, self._arrived)

    def _alive(self) -> bool:
        if self._stopping or self._ended.done():
            return False
        if not self._context.ok():
            self._fail(ExecutorStoppedError("the ROS context was shut down"))
            return False
        return True

    def _fail(self, error: ExecutorStoppedError) -> None:
        if not self._ended.done():
            self._ended.set_exception(error)

    def _drain(self, subscription: Subscription[Any]) -> int:
        """Take a subscription's waiting messages up to the limit, and return how many."""
        handle, msg_type, raw = subscription.handle, subscription.msg_type, subscription.raw
        callback: Callable[..., Any] = subscription.callback
        with_info = subscription._callback_type is subscription.CallbackType.WithMessageInfo
        takes = 0
        try:
            with handle:
                while takes < MAX_TAKES_PER_SUBSCRIPTION:
                    taken = handle.take_message(msg_type, raw)
                    if taken is None:
                        break
                    takes += 1
                    try:
                        result = callback(*taken) if with_info else callback(taken[0])
                    except Exception:
                        log.exception("callback_failed", topic=subscription.topic_name)
                        continue
                    if result is not None and asyncio.iscoroutine(result):
                        self._start(result)
        except InvalidHandle:
            pass  # destroyed by a callback of this very turn
        except Exception:
            log.exception("take_failed", type=msg_type.__name__)
        return takes

    def _note_graph_change(self, _: Node) -> None:
        self.graph_changed.set()

    def _take_via(self, take: Callable[[Any], Any]) -> Callable[[Any], None]:
        """Wrap one of rclpy's own take functions, which return the work as a coroutine function."""

        def run(entity: Any) -> None:
            try:
                execute = take(entity)
                if execute is not None:
                    self._start(execute())
            except InvalidHandle:
                pass
            except Exception:
                log.exception("take_failed", entity=type(entity).__name__)

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
