"""Tells systemd that the service is up and alive (`sd_notify(3)`); elsewhere it does nothing."""

from __future__ import annotations

import contextlib
import os
import socket


def ready() -> None:
    """Say that requests are answered now (`Type=notify`)."""
    _send("READY=1")


def alive() -> None:
    """Reset the watchdog (`WatchdogSec=`)."""
    _send("WATCHDOG=1")


def stopping() -> None:
    """Say that a stop has begun."""
    _send("STOPPING=1")


def _send(state: str) -> None:
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = f"\0{address[1:]}"  # an abstract socket
    # A supervisor that has gone must not take the service along.
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(address)
        sender.send(state.encode())
