"""The rcl wait set of all but messages: built anew when entities change, refilled for each wait."""

from __future__ import annotations

import contextlib
import ctypes
from typing import TYPE_CHECKING, Any, cast

from rclpy.exceptions import InvalidHandle
from rclpy.impl.implementation_singleton import rclpy_implementation as _rclpy
from rclpy.waitable import NumberOfEntities

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rclpy.context import Context
    from rclpy.node import Node

WAITABLE = "waitable"
GRAPH = "graph"

# rclpy has no entity for a node's graph guard condition, which wakes a wait when anything in the
# graph changes; rcl's own two functions for it are found through rclpy's extension module.
_rcl = ctypes.CDLL(str(_rclpy.__file__))
_graph_guard = _rcl.rcl_node_get_graph_guard_condition
_graph_guard.argtypes = [ctypes.c_void_p]
_graph_guard.restype = ctypes.c_void_p
_add_guard = _rcl.rcl_wait_set_add_guard_condition
_add_guard.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]


class WaitSet:
    """All that some nodes want to wait for, except their subscriptions (see `Arrivals`).

    While it exists it keeps the handles alive: what is destroyed meanwhile is released by `close`,
    and not under the feet of a thread that waits.
    """

    def __init__(self, context: Context, nodes: Sequence[Node], guard: Any) -> None:
        """Hold the nodes' entities, and one more guard condition to wake the wait."""
        self._held = contextlib.ExitStack()
        self._guard = guard
        self._graph_guards: dict[int, Node] = {}
        for node in nodes:
            self._held.enter_context(node.handle)
            self._graph_guards[_graph_guard(node.handle.pointer)] = node
        self._entities: dict[str, dict[int, Any]] = {
            "guard_condition": self._hold([guard, *(g for n in nodes for g in n.guards)]),
            "timer": self._hold(t for n in nodes for t in n.timers),
            "client": self._hold(c for n in nodes for c in n.clients),
            "service": self._hold(s for n in nodes for s in n.services),
        }
        self._waitables: list[Any] = []
        count = NumberOfEntities(
            0,
            len(self._entities["guard_condition"]) + len(self._graph_guards),
            len(self._entities["timer"]),
            len(self._entities["client"]),
            len(self._entities["service"]),
        )
        for waitable in (w for n in nodes for w in n.waitables):
            with contextlib.suppress(InvalidHandle):
                self._held.enter_context(waitable)
                self._waitables.append(waitable)
                count += waitable.get_num_entities()
        handle = context.handle
        assert handle is not None  # initialised, or no executor could have been made
        self._held.enter_context(handle)
        self._wait_set = _rclpy.WaitSet(
            count.num_subscriptions,
            count.num_guard_conditions,
            count.num_timers,
            count.num_clients,
            count.num_services,
            count.num_events,
            handle,
        )

    def fill(self) -> None:
        """Enter everything, as is needed before each wait."""
        wait_set = self._wait_set
        wait_set.clear_entities()
        for kind, entities in self._entities.items():
            add = getattr(wait_set, f"add_{kind}")
            for entity in entities.values():
                add(entity.handle)
        for graph_guard in self._graph_guards:
            _add_guard(wait_set.pointer, graph_guard, None)
        for waitable in self._waitables:
            waitable.add_to_wait_set(wait_set)

    def wait(self, timeout_ns: int) -> None:
        """Block until something is ready, -1 for ever; the GIL is released meanwhile.

        Raises:
            Exception: rcl's own types, which differ between distributions.
        """
        self._wait_set.wait(timeout_ns)

    def ready(self) -> Iterator[tuple[str, Any]]:
        """Yield kind and entity of all that the last wait found."""
        for waitable in self._waitables:
            if waitable.is_ready(self._wait_set):
                yield WAITABLE, waitable
        for kind, entities in self._entities.items():
            if entities:
                for pointer in self._wait_set.get_ready_entities(cast("Any", kind)):
                    if pointer in self._graph_guards:
                        yield GRAPH, self._graph_guards[pointer]
                    elif entities[pointer] is not self._guard:
                        yield kind, entities[pointer]

    def close(self) -> None:
        """Let go of the handles; nothing may wait any more."""
        self._held.close()

    def _hold(self, entities: Iterable[Any]) -> dict[int, Any]:
        held = {}
        for entity in entities:
            with contextlib.suppress(InvalidHandle):  # destroyed already
                self._held.enter_context(entity.handle)
                held[entity.handle.pointer] = entity
        return held
