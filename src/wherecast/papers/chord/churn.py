"""Trials of the whole overlay under churn: what is lost, and who is not told.

A trial has four parts: subscriptions are stored on a quiet ring; nodes crash and new ones join, while events are
published; the ring heals; events are published again. Whatever is then missing from a list or from the metadata is a lost
subscription, and whoever the engine says should have been told and was not is an undelivered event.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from wherecast.engine.engine import Engine
from wherecast.language.events.schema import Schema
from wherecast.language.filters.compile import Compiler
from wherecast.overlay.placement import METADATA, RingPlacement
from wherecast.overlay.positions import Address
from wherecast.overlay.pubsub import RingNode, RingRegistration
from wherecast.overlay.settings import RingSettings
from wherecast.papers.chord.simulate import LinkModel, SimulatedNetwork

SCHEMA = Schema.of(
    {
        "symbol": "string",
        "price": {"type": "double", "min": 0, "max": 1000, "precision": 0.01},
        "volume": {"type": "bigint", "min": 0, "max": 100_000},
    }
)


LOSSY = LinkModel(least_ms=20, most_ms=80, loss=0.01)


@dataclass(frozen=True, slots=True)
class Churn:
    """One trial. Rates are shares of the peers per minute; as many join as crash."""

    peers: int = 1000
    copies: int = 4
    successors: int = 8
    crashes_per_minute: float = 0.1
    minutes: float = 3.0
    subscriptions: int = 300
    events: int = 100
    links: LinkModel = LOSSY


@dataclass(frozen=True, slots=True)
class ChurnResult:
    """What a trial came to."""

    crashes: int
    joins: int
    is_healed: bool
    lost: int  # subscriptions of which a part is missing
    undelivered: int  # (event, subscription) after the ring healed
    wrongly_delivered: int  # the same, where nobody should have been told
    deliveries: int  # (event, subscription) due after the ring healed
    undelivered_in_churn: int  # (event, subscription) published during the churn, by peers that lived on
    deliveries_in_churn: int
    messages: int
    trace: int


def run_churn(churn: Churn, seed: int) -> ChurnResult:
    """Run one trial."""
    settings = RingSettings(bits=64, successors=churn.successors, copies=churn.copies)
    network = SimulatedNetwork(RingPlacement(SCHEMA, settings), seed, churn.links)
    trial = _Trial(network, random.Random(seed))  # noqa: S311 - reproducible, not secret
    network.found(churn.peers)
    network.run(40_000)  # fingers
    trial.subscribe(churn.subscriptions)
    crashes, joins = trial.disturb(churn)
    in_churn = trial.published
    trial.published = []
    for _ in range(24):  # two minutes at most
        network.run(5_000)
        if network.is_ideal():
            break
    network.run(3 * settings.repair_ms)
    is_healed = network.is_ideal()
    missed, _, due = trial.undelivered(in_churn)
    for _ in range(churn.events):
        trial.publish()
    network.run_until(trial.operations(), 60_000)
    undelivered, wrong, deliveries = trial.undelivered(trial.published)
    return ChurnResult(
        crashes, joins, is_healed, trial.lost(), undelivered, wrong, deliveries, missed, due,
        sum(network.sent.values()), network.trace,
    )  # fmt: skip


class _Trial:
    """Subscriptions and events, and what the engine says about them."""

    def __init__(self, network: SimulatedNetwork, rng: random.Random) -> None:
        self.network = network
        self.rng = rng
        self.compiler = Compiler(SCHEMA)
        self.engine = Engine(SCHEMA)
        self.registrations: list[RingRegistration] = []
        self.published: list[tuple[Address, int, dict[str, object]]] = []
        self.subscriber = network.subscriber()

    def subscribe(self, count: int) -> None:
        texts = {number: random_filter(self.rng) for number in range(count)}
        waiting = []
        for number, text in texts.items():
            node = self._any_node()
            operation, registration = node.subscribe(number, self.compiler.compile(text), self.subscriber)
            self.network.settle(node)
            waiting.append((node.ring.me.address, operation))
            self.registrations.append(registration)
        assert self.network.run_until(waiting, 120_000), "subscriptions were not stored on a quiet ring"
        self.engine.subscribe_many(texts)

    def publish(self) -> None:
        node, event = self._any_node(), random_event(self.rng)
        operation = node.publish(event)
        self.network.settle(node)
        self.published.append((node.ring.me.address, operation, event))

    def operations(self) -> list[tuple[Address, int]]:
        return [(publisher, operation) for publisher, operation, _ in self.published]

    def disturb(self, churn: Churn) -> tuple[int, int]:
        """Crash and join at the rate asked for, publishing in between."""
        count = round(churn.peers * churn.crashes_per_minute * churn.minutes)
        step = churn.minutes * 60_000 / max(count, 1)
        for number in range(count):
            self.network.crash(self.rng.choice(list(self.network.nodes)))
            self.network.run(step / 2)
            self.network.join(self._any_node().ring.me.address for _ in range(3))
            if number % max(count // max(churn.events, 1), 1) == 0:
                self.publish()
            self.network.run(step / 2)
        return count, count

    def _any_node(self) -> RingNode:
        nodes = self.network.nodes
        addresses = list(nodes)
        while True:
            node = nodes[self.rng.choice(addresses)]
            if node.ring.is_member:
                return node

    def undelivered(self, published: list[tuple[Address, int, dict[str, object]]]) -> tuple[int, int, int]:
        """Told too few, told too many, and how many were due; events whose publisher crashed do not count."""
        told: dict[tuple[Address, int], set[int | str]] = {}
        for publisher, operation, subscription in self.network.subscribers[self.subscriber].told:
            told.setdefault((publisher, operation), set()).add(subscription)
        few = many = due = 0
        for publisher, operation, event in published:
            if publisher in self.network.nodes:
                wanted, got = set(self.engine.match(event)), told.get((publisher, operation), set())
                few, many, due = few + len(wanted - got), many + len(got - wanted), due + len(wanted)
        return few, many, due

    def lost(self) -> int:
        """Subscriptions of which the owner of some position does not know what it should."""
        placement = self.network.placement
        nodes = sorted(self.network.nodes.values(), key=lambda n: n.ring.me.id)
        return sum(not _is_whole(registration, placement, nodes) for registration in self.registrations)


def _is_whole(registration: RingRegistration, placement: RingPlacement, nodes: list[RingNode]) -> bool:
    layout = nodes[0].layout
    for clause, runs in registration.clauses:
        place = layout.node_of(clause)
        if _owner(nodes, place).lists.held(METADATA, clause, place) is None:
            return False
        for list, parts in runs.items():
            for run in parts:
                offset = placement.next_offset(list, run.first)
                while offset <= run.last:
                    owner = _owner(nodes, placement.position(list, offset))
                    held = owner.lists.held(list, clause, offset)
                    if held is None or held.value != run.spans:
                        return False
                    offset = _following(placement, list, placement.last_offset(list, offset, owner.ring.me.id))
    return True


def _following(placement: RingPlacement, list: int, offset: int) -> int:
    """The next offset after this one that a value can have, or one beyond all."""
    following = placement.next_offset(list, offset + 1)
    return following if placement.position(list, following) != placement.position(list, offset) else 1 << 200


def _owner(nodes: list[RingNode], position: int) -> RingNode:
    return next((n for n in nodes if n.ring.me.id >= position), nodes[0])


def random_filter(rng: random.Random) -> str:
    """Equality on a skewed set of symbols, narrow ranges, `<>` and prefixes, one to two clauses."""

    def clause() -> str:
        price, volume = rng.uniform(0, 990), rng.randrange(95_000)
        terms = [
            f"symbol = 'S{min(int(rng.expovariate(0.3)), 40)}'",
            f"price BETWEEN {price:.2f} AND {price + rng.uniform(0, 20):.2f}",
            f"volume >= {volume} AND volume < {volume + rng.randrange(1, 5000)}",
            f"symbol LIKE 'S{rng.randrange(4)}%'",
        ]
        return " AND ".join(rng.sample(terms, rng.choice((1, 1, 2, 2, 3))))

    return " OR ".join(f"({clause()})" for _ in range(rng.choice((1, 1, 1, 2))))


def random_event(rng: random.Random) -> dict[str, object]:
    """An event of the schema; now and then a value is missing."""
    event: dict[str, object] = {
        "symbol": f"S{min(int(rng.expovariate(0.3)), 40)}",
        "price": round(rng.uniform(0, 1000), 2),
        "volume": rng.randrange(100_001),
    }
    return {name: value for name, value in event.items() if rng.random() < 0.95}
