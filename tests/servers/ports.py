"""Ports of the loopback interface."""

from __future__ import annotations

import socket

LOOPBACK = "127.0.0.1"


def free_ports(n: int) -> list[int]:
    """Ports that nobody listens on, all different."""
    sockets = [socket.create_server((LOOPBACK, 0)) for _ in range(n)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def is_open(port: int) -> bool:
    """Whether somebody listens."""
    try:
        socket.create_connection((LOOPBACK, port), timeout=2.0).close()
    except OSError:
        return False
    return True
