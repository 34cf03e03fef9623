"""Which subscriptions have unread messages, without asking each of them.

rcl calls back whenever a message has arrived, in a thread of the middleware. Python there would
wait for the GIL at every message, so the callback is the C library's own `eventfd_write`: each
subscription has an eventfd, and one epoll tells which of them were written to.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
from typing import TYPE_CHECKING, Any

from rclpy.exceptions import InvalidHandle
from rclpy.impl.implementation_singleton import rclpy_implementation as _rclpy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rclpy.subscription import Subscription

# Found through rclpy's extension module, which is linked with rcl.
_set_callback = ctypes.CDLL(str(_rclpy.__file__)).rcl_subscription_set_on_new_message_callback
_set_callback.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
# eventfd_write(int fd, uint64_t count) is called as callback(const void *user_data, size_t count):
# on 64-bit Linux both come in the same registers.
_eventfd_write = ctypes.cast(ctypes.CDLL(None).eventfd_write, ctypes.c_void_p)


# Each takes a file descriptor. Subscriptions beyond this number share them and are asked together.
MAX_EVENTFDS = 512


class Arrivals:
    """Follows subscriptions. While it does it keeps their handles alive."""

    def __init__(self) -> None:
        # Edge-triggered: what was told once is not told again before the next message, and no
        # eventfd has to be read.
        self._epoll = select.epoll()
        self._followed: dict[int, list[Subscription[Any]]] = {}  # by eventfd
        self._held: dict[Subscription[Any], contextlib.ExitStack] = {}

    def fileno(self) -> int:
        """Return the descriptor that is readable while `ready` has something to tell."""
        return self._epoll.fileno()

    def follow(self, subscriptions: Iterable[Subscription[Any]]) -> None:
        """Follow these and no others; what waits in a new one already is told as well.

        Raises:
            OSError: no more file descriptors.
            NotImplementedError: the middleware does not call back.
        """
        wanted = set(subscriptions)
        for subscription in self._held.keys() - wanted:
            self._held.pop(subscription).close()
        for subscription in wanted - self._held.keys():
            with contextlib.ExitStack() as held, contextlib.suppress(InvalidHandle):
                self._begin(subscription, held)
                self._held[subscription] = held.pop_all()

    def ready(self) -> list[Subscription[Any]]:
        """Return those that may have messages since the last call."""
        return [found for fd, _ in self._epoll.poll(0) for found in self._followed[fd]]

    def nudge(self) -> None:
        """Let `ready` tell all of them, so that no call which a middleware leaves out is missed."""
        for fd in self._followed:
            os.eventfd_write(fd, 1)

    def close(self) -> None:
        """Follow none any more, and let go of their handles; idempotent."""
        self.follow(())
        self._epoll.close()

    def _begin(self, subscription: Subscription[Any], held: contextlib.ExitStack) -> None:
        held.enter_context(subscription.handle)
        fd = self._descriptor()
        self._followed[fd].append(subscription)
        held.callback(self._end, subscription, fd)
        pointer = subscription.handle.pointer
        if _set_callback(pointer, _eventfd_write, fd):
            raise NotImplementedError(
                "this RMW_IMPLEMENTATION does not tell when a message comes; take another, such as"
                " rmw_fastrtps_cpp"
            )
        # Once this has returned, no call is under way any more.
        held.callback(_set_callback, pointer, None, None)
        os.eventfd_write(fd, 1)  # for what came while the callback was being set

    def _descriptor(self) -> int:
        """Return an eventfd: a new one, or where that would be one too many, the least shared."""
        if len(self._followed) < MAX_EVENTFDS:
            with contextlib.ExitStack() as made, contextlib.suppress(OSError):
                fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
                made.callback(os.close, fd)
                self._epoll.register(fd, select.EPOLLIN | select.EPOLLET)
                made.pop_all()
                self._followed[fd] = []
                return fd
        if not self._followed:
            raise OSError("no file descriptor is left to follow a subscription with")
        return min(self._followed, key=lambda fd: len(self._followed[fd]))

    def _end(self, subscription: Subscription[Any], fd: int) -> None:
        self._followed[fd].remove(subscription)
        if not self._followed[fd]:
            del self._followed[fd]
            self._epoll.unregister(fd)
            os.close(fd)
