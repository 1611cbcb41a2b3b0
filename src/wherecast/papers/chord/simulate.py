"""A network in one process, message by message, deterministic from a seed.

Theory of operation
-------------------
A heap of what happens next: a message arrives, or a timer fires. Every random number (delay, loss) comes from one seeded
generator, drawn in the order of events, and ties are broken by the order of scheduling; so a run is a function of its
seed and of the calls made on it, and two runs can be compared by one number, the trace.

Nodes are the very objects that run over a real network. Addresses are integers; an address is never used again, so
a node that comes back comes back as a new one. Subscribers are not nodes: they collect what they are told, and answer.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from wherecast.overlay.messages import Deliver, Message, Outcome, Send, Start, Timer
from wherecast.overlay.placement import RingPlacement
from wherecast.overlay.positions import Address, Contact, sha1_id
from wherecast.overlay.pubsub import RingNode, deliver_once


@dataclass(frozen=True, slots=True)
class LinkModel:
    """How messages travel: uniformly distributed delays, independent losses."""

    least_ms: float = 20.0
    most_ms: float = 80.0
    loss: float = 0.0


class Subscriber:
    """The far end: what it has been told, as (publisher, operation, subscription)."""

    def __init__(self) -> None:
        self.told: set[tuple[Address, int, int | str]] = set()

    def receive(self, message: Deliver) -> Send:
        """Take an event in and answer its publisher."""
        _, answer = deliver_once(self.told, message)
        return answer


_TRACE_PRIME = 1099511628211
_TRACE_MASK = (1 << 64) - 1


class SimulatedNetwork:
    """Nodes, subscribers and the messages between them. Time is in milliseconds."""

    def __init__(
        self,
        placement: RingPlacement,
        seed: int,
        links: LinkModel = LinkModel(),  # noqa: B008 - frozen
        *,
        is_batching: bool = True,
    ) -> None:
        self.placement = placement
        self.links = links
        self.rng = random.Random(seed)  # noqa: S311 - reproducible, not secret
        self.now = 0.0
        self.trace = 0
        self.nodes: dict[Address, RingNode] = {}
        self.subscribers: dict[Address, Subscriber] = {}
        self.outcomes: dict[tuple[Address, int], Outcome] = {}
        self.sent: Counter[type] = Counter()
        self.lost = 0
        self._is_batching = is_batching
        self._events: list[tuple[float, int, Address, Message | None, Timer | None]] = []
        self._sequence = 0
        self._addresses = 0
        self._sides: dict[Address, int] | None = None

    # -- who is there -----------------------------------------------------------------------------------------------

    def found(self, count: int) -> list[RingNode]:
        """Start a ring of this many nodes."""
        nodes = [self._new_node() for _ in range(count)]
        contacts = [node.ring.me for node in nodes]
        _found_together(nodes, contacts)
        for node in nodes:
            self.settle(node)
        return nodes

    def join(self, bootstraps: Iterable[Address]) -> RingNode:
        """A new node joins through some that are there."""
        node = self._new_node()
        node.join(bootstraps)
        self.settle(node)
        return node

    def leave(self, address: Address) -> None:
        """A node says goodbye and goes."""
        node = self.nodes[address]
        node.leave()
        self.settle(node)
        del self.nodes[address]

    def crash(self, address: Address) -> None:
        """A node is gone, without a word; what was on its way to it is lost."""
        del self.nodes[address]

    def subscriber(self) -> Address:
        """A new subscriber."""
        address = self._new_address()
        self.subscribers[address] = Subscriber()
        return address

    def split(self, sides: Iterable[Iterable[Address]]) -> None:
        """Cut the network: messages between different sides are lost. Who is on no side reaches everybody."""
        self._sides = {address: side for side, group in enumerate(sides) for address in group}

    def heal(self) -> None:
        """Undo `split`."""
        self._sides = None

    def _new_address(self) -> int:
        self._addresses += 1
        return self._addresses

    def _new_node(self) -> RingNode:
        address = self._new_address()
        taken = {node.ring.me.id for node in self.nodes.values()} if self.placement.settings.bits < 32 else ()
        while True:
            id = sha1_id(f"{address}/{self.rng.getrandbits(64)}".encode(), self.placement.settings.bits)
            if id not in taken:
                break
        node = RingNode(Contact(id, address), self.placement, is_batching=self._is_batching)
        self.nodes[address] = node
        return node

    # -- what happens -----------------------------------------------------------------------------------------------

    def settle(self, node: RingNode) -> None:
        """Carry out what a node wants done. To be called after every call on a node from outside."""
        source = node.ring.me.address
        for effect in node.take():
            if type(effect) is Send:
                self._send(source, effect.to, effect.message)
            elif type(effect) is Start:
                self._schedule(self.now + effect.after_ms, source, None, effect.timer)
            elif isinstance(effect, Outcome):
                self.outcomes[source, effect.operation] = effect

    def _send(self, source: Address, to: Address, message: Message) -> None:
        self.sent[type(message)] += 1
        if source == to:
            self._schedule(self.now, to, message, None)
            return
        links, rng = self.links, self.rng
        delay = links.least_ms + rng.random() * (links.most_ms - links.least_ms)
        if (links.loss and rng.random() < links.loss) or self._is_cut(source, to):
            self.lost += 1
        else:
            self._schedule(self.now + delay, to, message, None)

    def _is_cut(self, source: Address, to: Address) -> bool:
        sides = self._sides
        return sides is not None and source in sides and to in sides and sides[source] != sides[to]

    def _schedule(self, at: float, to: Address, message: Message | None, timer: Timer | None) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (at, self._sequence, to, message, timer))

    def run(self, milliseconds: float) -> None:
        """Let time pass."""
        end, events = self.now + milliseconds, self._events
        nodes, subscribers = self.nodes, self.subscribers
        while events and events[0][0] <= end:
            self.now, sequence, to, message, timer = heapq.heappop(events)
            self.trace = (self.trace * _TRACE_PRIME ^ sequence ^ int(self.now * 1000) << 24 ^ hash(to)) & _TRACE_MASK
            node = nodes.get(to)
            if node is not None:
                if message is not None:
                    node.receive(message)
                elif timer is not None:
                    node.fire(timer)
                self.settle(node)
            elif isinstance(message, Deliver) and to in subscribers:
                answer = subscribers[to].receive(message)
                self._send(to, answer.to, answer.message)
        self.now = end

    def run_until(self, operations: Iterable[tuple[Address, int]], most_ms: float) -> bool:
        """Let time pass until these operations have ended; False: some had not after `most_ms`."""
        waiting, end = set(operations), self.now + most_ms
        while self.now < end:
            waiting = {o for o in waiting if o not in self.outcomes}
            if not waiting:
                return True
            self.run(min(20.0, end - self.now))
        return all(o in self.outcomes for o in waiting)

    # -- looking ----------------------------------------------------------------------------------------------------

    def is_ideal(self) -> bool:
        """Whether every node knows exactly its true neighbours."""
        members = sorted((n for n in self.nodes.values() if n.ring.is_member), key=lambda n: n.ring.me.id)
        contacts = [n.ring.me for n in members]
        wanted = min(self.placement.settings.successors, len(members) - 1)
        for place, node in enumerate(members):
            following = (contacts * 2)[place + 1 : place + 1 + wanted]
            if node.ring.successors != (following or [node.ring.me]) or node.ring.predecessor != contacts[place - 1]:
                return False
        return len(members) == len(self.nodes)

    def told(self, publisher: Address, operation: int) -> Mapping[int | str, int]:
        """Which subscriptions were told of an event, and how many subscribers were."""
        return Counter(s for x in self.subscribers.values() for p, o, s in x.told if (p, o) == (publisher, operation))


def _found_together(nodes: list[RingNode], contacts: list[Contact]) -> None:
    """Each founder needs its neighbours only: with a thousand, sorting all of them at each would take a second."""
    ordered = sorted(range(len(nodes)), key=lambda i: contacts[i].id)
    reach = nodes[0].settings.successors + 1 if nodes else 0
    for place, index in enumerate(ordered):
        near = [contacts[ordered[(place + step) % len(ordered)]] for step in range(-1, min(reach, len(ordered) - 1))]
        nodes[index].found(dict.fromkeys(near))
