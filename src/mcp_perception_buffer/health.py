"""Heartbeats -> liveness and readiness, for Kubernetes-style probes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp_perception_buffer.model import Snapshot

# A probe that finds a heartbeat older than this says so; they come once a second.
BEAT_LIMIT_S = 5.0


class Health:
    """Collects signs of life. Silence of what must beat is a failure; a dead brain is not."""

    def __init__(self, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock_ns = clock_ns
        self._beats: dict[str, Callable[[], int]] = {}
        self._failures: dict[str, str] = {}
        self._degrading: list[tuple[str, Callable[[], object]]] = []
        self.ready = False

    def watch(self, name: str, last_beat_ns: Callable[[], int]) -> None:
        """Require `last_beat_ns` to stay younger than `BEAT_LIMIT_S`."""
        self._beats[name] = last_beat_ns

    def degrades(self, reason: str, condition: Callable[[], object]) -> None:
        """Report `reason` while `condition()` is true; the service stays alive with it."""
        self._degrading.append((reason, condition))

    def fail(self, name: str, reason: str) -> None:
        """Note that a part ended for good."""
        self._failures[name] = reason

    def problems(self) -> list[str]:
        """Return why the service is not alive; empty while it is."""
        found = [f"{name}: {reason}" for name, reason in self._failures.items()]
        return found + [reason for name in self._beats if (reason := self.silence(name))]

    def silence(self, name: str) -> str | None:
        """Return for how long a part has missed its heartbeat, None while it beats; any thread."""
        if name not in self._beats:
            return None
        silent_s = (self._clock_ns() - self._beats[name]()) / 1e9
        return f"{name}: no heartbeat for {silent_s:.0f} s" if silent_s > BEAT_LIMIT_S else None

    def live(self, snapshot: Snapshot) -> tuple[int, dict[str, Any]]:
        """Return HTTP status and body of `/healthz`; the body names no topic and no address."""
        if problems := self.problems():
            return 503, {"status": "failing", "reasons": problems}
        degraded = _degraded(snapshot)
        degraded += [reason for reason, condition in self._degrading if condition()]
        return 200, {"status": "degraded" if degraded else "ok", "reasons": degraded}

    def readiness(self) -> tuple[int, dict[str, Any]]:
        """Return HTTP status and body of `/readyz`."""
        problems = self.problems()
        if self.ready and not problems:
            return 200, {"status": "ready", "reasons": []}
        return 503, {"status": "not ready", "reasons": problems or ["not reconciled yet"]}


def _degraded(snapshot: Snapshot) -> list[str]:
    found = []
    streams = [view for view in snapshot.streams if view.info.kind != "camera"]
    if not streams and not snapshot.discovering:
        found.append("nothing is being published")
    if frozen := sum(view.frozen for view in streams):
        found.append(f"{frozen} of {len(streams)} streams frozen")
    if silent := sum(view.state in ("stale", "gone") for view in streams) - frozen:
        found.append(f"{silent} of {len(streams)} streams silent")
    if snapshot.unsupported:
        found.append(f"{len(snapshot.unsupported)} topics unsupported")
    cameras = [view for view in snapshot.streams if view.info.kind == "camera"]
    if any(view.state != "fresh" for view in cameras):
        found.append("camera frozen" if any(view.frozen for view in cameras) else "camera silent")
    return found
