"""Answers probes while the loop cannot: a blocked loop would leave them without any answer.

The only thread of the HTTP side. It sleeps for as long as the loop beats.
"""

from __future__ import annotations

import contextlib
import json
import select
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

LOOK_INTERVAL_S = 0.5
CLIENT_TIMEOUT_S = 0.5
MAX_REQUEST_BYTES = 65_536


class Watchdog:
    """While `problem()` gives a reason, takes new connections itself and says 503 with it."""

    def __init__(self, listening: socket.socket, problem: Callable[[], str | None]) -> None:
        """Prepare; nothing runs before it is entered.

        Args:
            listening: the loop's own listening socket.
            problem: why the loop does not answer, None while it does; called on a thread.
        """
        self._listening = listening
        self._problem = problem
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def __enter__(self) -> Self:
        """Begin to watch."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End within a moment."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(LOOK_INTERVAL_S):
            while (reason := self._problem()) and not self._stop.is_set():
                ready, _, _ = select.select([self._listening], [], [], LOOK_INTERVAL_S)
                # A client that leaves, or a loop that was quicker after all.
                with contextlib.suppress(OSError):
                    if ready:
                        self._refuse(reason)

    def _refuse(self, reason: str) -> None:
        connection, _ = self._listening.accept()
        with connection:
            connection.settimeout(CLIENT_TIMEOUT_S)
            connection.recv(MAX_REQUEST_BYTES)  # unread, it would turn the answer into a reset
            body = json.dumps({"status": "failing", "reasons": [reason]}).encode()
            head = (
                "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\nretry-after: 1\r\nconnection: close\r\n\r\n"
            )
            connection.sendall(head.encode() + body)
