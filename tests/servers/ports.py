"""Ports of the loopback interface.

A server is told its port before it listens there. A port that the system picks (port 0) may meanwhile go to any outgoing connection,
so tests take ports below those that systems pick from (32768 on Linux, 49152 elsewhere), and every process has a part of its own.
"""

from __future__ import annotations

import os
import re
import socket
from itertools import cycle

LOOPBACK = "127.0.0.1"
#: Where the ports of a process begin, by the number that pytest-xdist gives it.
_FIRST, _EACH, _PARTS = 12_000, 1_000, 20
_part = int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or _PARTS - 1) % _PARTS
_next = cycle(range(_FIRST + _part * _EACH, _FIRST + (_part + 1) * _EACH))


def free_ports(n: int) -> list[int]:
    """Ports that nobody listens on, one after the other."""
    ports: list[int] = []
    for _ in range(_EACH):
        port = next(_next)
        if ports and port != ports[-1] + 1:  # the part has begun again
            ports = []
        ports = [*ports, port] if _is_free(port) else []
        if len(ports) == n:
            return ports
    raise OSError(f"no {n} free ports from {_FIRST + _part * _EACH} on")


def _is_free(port: int) -> bool:
    try:
        socket.create_server((LOOPBACK, port)).close()
    except OSError:
        return False
    return True


def is_open(port: int) -> bool:
    """Whether somebody listens."""
    try:
        socket.create_connection((LOOPBACK, port), timeout=2.0).close()
    except OSError:
        return False
    return True
