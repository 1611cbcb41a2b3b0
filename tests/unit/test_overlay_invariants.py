"""The two invariants of the corrected Chord protocol, in every reachable state of small rings.

The states are those of the real `Ring` objects and of the messages between them; every order of deliveries, rounds, joins,
failures and noticed failures is followed. What is assumed is what the protocol assumes: a question is given up only
when its addressee is dead, and a failure leaves every member a live successor (in its list, and in lists on their way)
and r + 1 principals.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import pytest

from wherecast.overlay.messages import Send, State
from wherecast.overlay.positions import Contact, between
from wherecast.overlay.ring import Ring
from wherecast.overlay.settings import RingSettings

BITS = 6


class Memory(NamedTuple):
    """What a node remembers."""

    is_member: bool
    predecessor: Contact | None
    successors: tuple[Contact, ...]
    candidate: Contact | None
    awaited: Contact | None
    bootstraps: tuple[int, ...]


class World(NamedTuple):
    """A state: live nodes, messages on their way, and what may still happen."""

    nodes: tuple[tuple[Contact, Memory], ...]
    messages: tuple[Send, ...]
    to_join: tuple[Contact, ...]
    failures: int


def wake(me: Contact, memory: Memory, length: int) -> tuple[Ring, list]:
    out: list = []
    ring = Ring(me, RingSettings(bits=BITS, successors=length, copies=1, misses=1), out)
    ring.is_member, ring.predecessor, ring.candidate = memory.is_member, memory.predecessor, memory.candidate
    ring.successors, ring._awaited = list(memory.successors), memory.awaited
    ring._bootstraps = list(memory.bootstraps)
    return ring, out


def sleep(ring: Ring) -> Memory:
    return Memory(
        ring.is_member, ring.predecessor, tuple(ring.successors), ring.candidate, ring._awaited, tuple(ring._bootstraps)
    )


@cache
def act(me: Contact, memory: Memory, length: int, work: str, *arguments: Any) -> tuple[Memory, tuple[Send, ...]]:
    """What a node remembers and sends after a step: the same in each of the many states in which it makes this step."""
    ring, out = wake(me, memory, length)
    getattr(ring, work)(*arguments)
    return sleep(ring), tuple(effect for effect in out if isinstance(effect, Send))


def after(world: World, me: Contact, step: tuple[Memory, tuple[Send, ...]], messages: tuple[Send, ...]) -> World:
    nodes = dict(world.nodes)
    nodes[me], sent = step
    # A node that is dead reads nothing, so nothing need be kept for it.
    addresses = {c.address for c in nodes}
    kept = [m for m in (*messages, *sent) if m.to in addresses]
    return world._replace(nodes=tuple(sorted(nodes.items())), messages=tuple(sorted(kept, key=hash)))


def is_unanswerable(world: World, asker: Contact, asked: Contact) -> bool:
    """The addressee is dead, and no answer of its is on its way."""
    alive = dict(world.nodes)
    return asked not in alive and not any(
        m.to == asker.address and getattr(m.message, "sender", None) == asked for m in world.messages
    )


def steps(world: World, length: int):
    """All states that can follow."""
    alive = dict(world.nodes)
    for number, sent in enumerate(world.messages):
        rest = world.messages[:number] + world.messages[number + 1 :]
        me = next(c for c in alive if c.address == sent.to)
        yield after(world, me, act(me, alive[me], length, "receive", sent.message), rest)
    for me, memory in alive.items():
        has_message = any(m.to == me.address or getattr(m.message, "sender", None) == me for m in world.messages)
        is_idle = memory.awaited is None and (memory.is_member or not has_message)
        gave_up = memory.awaited is not None and is_unanswerable(world, me, memory.awaited)
        if is_idle or gave_up:
            yield after(world, me, act(me, memory, length, "stabilise"), world.messages)
        if memory.predecessor is not None and memory.predecessor not in alive:
            yield after(world, me, act(me, memory, length, "drop", memory.predecessor), world.messages)
    for joiner in world.to_join[:1]:
        for contact, memory in alive.items():
            if memory.is_member:
                step = act(joiner, Memory(False, None, (), None, None, ()), length, "join", (contact.address,))
                yield after(world._replace(to_join=world.to_join[1:]), joiner, step, world.messages)
    if world.failures:
        for victim in alive:
            nodes = tuple((c, m) for c, m in world.nodes if c != victim)
            kept = tuple(m for m in world.messages if m.to != victim.address)
            failed = World(nodes, kept, world.to_join, world.failures - 1)
            if is_survivable(failed, length):
                yield failed


def members(world: World) -> dict[Contact, Memory]:
    return {c: m for c, m in world.nodes if m.is_member}


def principals(world: World) -> set[Contact]:
    """Members that no extended successor list skips."""
    inside = members(world)
    lists = [(c, *m.successors) for c, m in inside.items()]
    return {p for p in inside if not any(between(a.id, p.id, b.id) for x in lists for a, b in pairwise(x))}


def has_live_successor(world: World) -> bool:
    inside = members(world)
    return all(any(s in inside for s in m.successors) for m in inside.values())


def is_survivable(world: World, length: int) -> bool:
    """What the protocol asks of failures."""
    inside = members(world)
    on_their_way = [(m.message.sender, *m.message.successors) for m in world.messages if isinstance(m.message, State)]
    return (
        has_live_successor(world)
        and all(any(s in inside for s in followers[:length]) for followers in on_their_way)
        and len(principals(world)) > length
    )


def is_one_ordered_ring(world: World) -> bool:
    """Following first live successors from anywhere ends in one cycle, which goes round once."""
    inside = members(world)
    follow = {c: next(s for s in m.successors if s in inside) for c, m in inside.items()}
    cycles = set()
    for start in inside:
        seen = [start]
        while follow[seen[-1]] not in seen:
            seen.append(follow[seen[-1]])
        cycle = seen[seen.index(follow[seen[-1]]) :]
        cycles.add(frozenset(cycle))
        wraps = sum(follow[c].id <= c.id for c in cycle)
        if wraps != 1:
            return False
    return len(cycles) == 1


def first_world(ids: list[int], joiners: list[int], failures: int, length: int) -> World:
    contacts = [Contact(id, id) for id in ids]
    nodes = []
    for me in contacts:
        ring = Ring(me, RingSettings(bits=BITS, successors=length, copies=1), [])
        ring.found(contacts)
        nodes.append((me, sleep(ring)))
    return World(tuple(sorted(nodes)), (), tuple(Contact(id, id) for id in joiners), failures)


@cache
def holds(nodes: tuple[tuple[Contact, Memory], ...], length: int) -> bool:
    """Whether the invariants do, whatever messages are on their way."""
    world = World(nodes, (), (), 0)
    return has_live_successor(world) and len(principals(world)) > length and is_one_ordered_ring(world)


def explore(world: World, length: int, limit: int = 10**7):
    """Every reachable state, up to a limit; returns how many there are and the first that breaks an invariant."""
    act.cache_clear()  # a test changes how nodes act
    holds.cache_clear()
    seen, frontier = {world}, [world]
    while frontier:
        state = frontier.pop()
        if not holds(state.nodes, length):
            return len(seen), state
        for following in steps(state, length):
            if following not in seen:
                seen.add(following)
                frontier.append(following)
        assert len(seen) < limit
    return len(seen), None


@pytest.mark.parametrize(
    ("ids", "joiners", "failures", "length"),
    [
        ([10, 40], [20], 1, 1),
        ([10, 30, 50], [40], 0, 2),
        ([10, 20, 30, 50], [40], 0, 2),
        pytest.param([10, 30], [20, 40], 1, 1, marks=pytest.mark.slow),
        pytest.param([10, 30, 50], [20, 40], 0, 1, marks=pytest.mark.slow),
        pytest.param([10, 20, 30, 50], [], 1, 2, marks=pytest.mark.slow),
        pytest.param([10, 30, 50], [20], 1, 2, marks=pytest.mark.slow),
        pytest.param([10, 20, 30, 40, 50], [], 1, 2, marks=pytest.mark.slow),
        pytest.param([10, 30, 50], [20, 25], 0, 2, marks=pytest.mark.slow),
        pytest.param([10, 20, 30, 40, 50], [60], 0, 3, marks=pytest.mark.slow),
    ],
)
def test_invariants_hold_in_every_state(ids, joiners, failures, length):
    """One live successor and sufficient principals hold always, and with them one ordered ring."""
    count, broken = explore(first_world(ids, joiners, failures, length), length)
    assert broken is None
    assert count > 10


def test_a_pointer_to_an_unconfirmed_node_breaks_them(monkeypatch):
    """The exploration can fail: without asking first, as in published Chord, a member may have no live successor."""
    confirmed = Ring._learn

    def learn(self, state):
        confirmed(self, state)
        if self.candidate is not None:
            self.successors = [self.candidate, *self.successors][: self.settings.successors]

    monkeypatch.setattr(Ring, "_learn", learn)
    _, broken = explore(first_world([10, 40], [20], 1, 1), 1)
    assert broken is not None
    assert not has_live_successor(broken)


def test_fewer_than_r_plus_one_founders_are_too_few():
    """Two founders with lists of two have two principals only."""
    _, broken = explore(first_world([10, 40], [], 0, 2), 2)
    assert broken is not None
    assert len(principals(broken)) == 2
