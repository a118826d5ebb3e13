"""sd_notify: telling systemd (or whoever set NOTIFY_SOCKET) that we are ready, reloading, stopping."""

from __future__ import annotations

import os
import socket
import time


def notify(state: str) -> None:
    """Send one state. Without NOTIFY_SOCKET, or when nobody listens there, nothing happens."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.setblocking(False)
            out.sendto(state.encode(), address)
    except OSError:
        pass


def ready() -> None:
    notify("READY=1")


def reloading() -> None:
    notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")


def stopping() -> None:
    notify("STOPPING=1")
