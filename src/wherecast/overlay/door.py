"""Who is connected to a peer, and how much of the peer they may hold.

Theory of operation
-------------------
Whoever reaches the port gets in: a peer that turned new connections away when it is full could be kept full by anybody.
Instead each new connection takes the place of another one when there are too many:

- Until it has ended its handshake a connection is a *stranger*. Strangers are few, in total and from one address. The oldest goes
  first: an honest handshake takes milliseconds.
- All connections together leave enough descriptors for links to other peers and for files. When they are too many, a stranger
  goes. Without strangers it is the one that has been quiet longest, among those of the address that has most: a single
  address cannot push the others out.
- What connections have sent of frames that are not complete is bounded in total. The frame that was begun first goes, with its
  connection.

An address is that of the machine; of IPv6 the first 64 bits, since one machine may have all that follow.
"""

from __future__ import annotations

import ipaddress
import resource
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

_MOST_DESCRIPTORS = 1 << 16


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What a peer grants to all connections together."""

    connections: int  # that were accepted
    links: int  # that it has opened itself
    backlog: int  # that the system accepts at once
    strangers: int
    strangers_per_address: int
    unfinished_bytes: int = 1 << 26

    @classmethod
    def of_process(cls) -> ConnectionLimits:
        """ConnectionLimits that fit the descriptors of this process: a half to accept, a quarter to open, the rest in reserve."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = _MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else min(soft, _MOST_DESCRIPTORS)
        connections = max(most // 2, 2)
        strangers = min(connections // 2, 256)
        return cls(connections, max(most // 4, 1), max(min(most // 16, 128), 1), strangers, max(strangers // 4, 1))


@dataclass(eq=False, slots=True)
class Visit:
    """A connection that was accepted. `used_s`: when something last came or went."""

    door: Door = field(repr=False)
    address: str
    cut: Callable[[], None]
    used_s: float
    held_bytes: int = 0
    begun_s: float = 0.0  # the frame whose bytes are held

    def proved(self) -> None:
        """The handshake is over."""
        self.door.prove(self)

    def holds(self, held_bytes: int, now_s: float) -> None:
        """So much of a frame that is not complete is in memory now."""
        self.door.hold(self, held_bytes, now_s)


class Door:
    """The visits of a peer. `refused` hears whom it had to cut off, and why."""

    def __init__(self, limits: ConnectionLimits, refused: Callable[[str, str], None]) -> None:
        self._limits = limits
        self._refused = refused
        self._strangers: dict[Visit, None] = {}  # in the order of their coming
        self._known: dict[Visit, None] = {}
        self._held_bytes = 0

    def enter(self, peername: Any, cut: Callable[[], None], now_s: float) -> Visit:
        """Let a connection in, at the cost of another one if need be."""
        visit = Visit(self, _address(peername), cut, now_s)
        neighbours = [stranger for stranger in self._strangers if stranger.address == visit.address]
        if len(neighbours) >= self._limits.strangers_per_address:
            self._drop(neighbours[0], "too many unfinished handshakes from this address")
        elif len(self._strangers) >= self._limits.strangers:
            self._drop(next(iter(self._strangers)), "too many unfinished handshakes")
        if len(self._strangers) + len(self._known) >= self._limits.connections:
            self._drop(self._most_dispensable(), "too many connections")
        self._strangers[visit] = None
        return visit

    def leave(self, visit: Visit) -> None:
        """The connection is over. One that was cut off has left already."""
        if visit in self._strangers or visit in self._known:
            self._strangers.pop(visit, None)
            self._known.pop(visit, None)
            self._held_bytes -= visit.held_bytes

    def prove(self, visit: Visit) -> None:
        """A stranger no more."""
        if visit in self._strangers:
            del self._strangers[visit]
            self._known[visit] = None

    def hold(self, visit: Visit, held_bytes: int, now_s: float) -> None:
        """Note what a connection holds; if all together hold too much, the one that has held it longest goes."""
        if visit not in self._strangers and visit not in self._known:
            return
        visit.used_s = now_s
        if not visit.held_bytes:
            visit.begun_s = now_s
        self._held_bytes += held_bytes - visit.held_bytes
        visit.held_bytes = held_bytes
        while self._held_bytes > self._limits.unfinished_bytes:
            holding = [each for each in (*self._strangers, *self._known) if each.held_bytes]
            self._drop(min(holding, key=lambda each: each.begun_s), "too much of unfinished frames")

    def _most_dispensable(self) -> Visit:
        if self._strangers:
            return next(iter(self._strangers))
        ((crowd, _),) = Counter(visit.address for visit in self._known).most_common(1)
        return min((visit for visit in self._known if visit.address == crowd), key=lambda visit: visit.used_s)

    def _drop(self, visit: Visit, reason: str) -> None:
        self.leave(visit)
        visit.cut()
        self._refused(visit.address, reason)


def _address(peername: Any) -> str:
    """The machine that a socket's other end is on; '' if the system does not say."""
    if not peername:
        return ""
    address = ipaddress.ip_address(peername[0].partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        return str(mapped or ipaddress.IPv6Network((address, 64), strict=False))
    return str(address)
