"""Recursive routing: items travel from node to node to the owner of their position.

Theory of operation
-------------------
Items for different positions that leave a node for the same next hop share one message, and part where their ways part:
this is how the look-ups of one event are batched. Each hop is acknowledged. A hop that is not taken in time is sent
again once, then its node is left out of the fingers and the items go another way.

Hops are counted at the owner: an item has taken as many hops as messages carried it, the last one, from the
owner's predecessor to the owner, included; an item that its own node owns has taken none.

The last hop is decided by the sender ("my first successor owns this"). The receiver may know better, having a
nearer predecessor by now, and passes it back to that one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from wherecast.overlay.messages import Effect, HopTimeout, Item, Route, Send, Start, Took
from wherecast.overlay.positions import Contact
from wherecast.overlay.ring import MAX_HOPS, Ring

#: Items that share a hop, at most: together they fit a frame.
MAX_ITEMS = 1_000


@dataclass(slots=True)
class _Hop:
    """Items that are on their way to a node which has not said that it has them."""

    to: Contact
    items: tuple[Item, ...]
    is_last: bool
    is_repeated: bool = False


class Router:
    """Routes items; `deliver` is called with those that this node owns."""

    def __init__(self, ring: Ring, deliver: Callable[[Item], None], out: list[Effect], *, is_batching: bool) -> None:
        self._ring = ring
        self._deliver = deliver
        self._out = out
        self._is_batching = is_batching
        self._hops: dict[int, _Hop] = {}
        self._next_hop = 1

    def route(self, items: Iterable[Item], avoid: Contact | None = None, *, is_last: bool = False) -> None:
        """Deliver what is mine, and send the rest on. A node that is not a member drops it, and the origin tries again."""
        ring = self._ring
        if not ring.is_member:
            return
        ways: dict[tuple[Contact, bool, int], list[Item]] = {}
        for number, item in enumerate(items):
            way = self._way(item.position, avoid, is_last=is_last)
            if way is None:
                self._deliver(item)
            elif item.hops < MAX_HOPS and way[0] != ring.me:
                ways.setdefault((*way, number // MAX_ITEMS if self._is_batching else number), []).append(item)
        for (to, last, _), group in ways.items():
            self._send(_Hop(to, tuple(i._replace(hops=i.hops + 1) for i in group), last))

    def _way(self, position: int, avoid: Contact | None, *, is_last: bool) -> tuple[Contact, bool] | None:
        """The next hop and whether it is the last one; None: this node owns the position."""
        ring = self._ring
        if ring.owns(position) or ring.first_successor == ring.me or position == ring.me.id:
            return None
        if is_last:
            return None if ring.predecessor is None else (ring.predecessor, True)
        if ring.precedes(position):
            head = ring.first_successor
            return (head if head != avoid or len(ring.successors) < 2 else ring.successors[1], True)
        return ring.nearest(position, () if avoid is None else (avoid,)), False

    def receive(self, route: Route) -> None:
        """Acknowledge a hop and send its items on."""
        if self._ring.is_member:
            self._out.append(Send(route.sender.address, Took(route.hop)))
            self.route(route.items, is_last=route.is_last)

    def took(self, took: Took) -> None:
        self._hops.pop(took.hop, None)

    def fire(self, timeout: HopTimeout) -> None:
        """A hop was not taken: once more, then another way."""
        hop = self._hops.pop(timeout.hop, None)
        if hop is None:
            return
        if not hop.is_repeated:
            hop.is_repeated = True
            self._send(hop)
        else:
            self._ring.drop_finger(hop.to)
            self.route(hop.items, avoid=hop.to)

    def _send(self, hop: _Hop) -> None:
        number, self._next_hop = self._next_hop, self._next_hop + 1
        self._hops[number] = hop
        self._out.append(Send(hop.to.address, Route(self._ring.me, number, hop.is_last, hop.items)))
        self._out.append(Start(self._ring.settings.hop_timeout_ms, HopTimeout(number)))
