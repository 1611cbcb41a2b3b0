"""Event-space partitioning: each server owns a part of the event space, so an event goes to one server at most.

Theory of operation
-------------------
Event Distribution Network, section III.A. The signature of a filter (`signatures`) is hashed into `servers x ratio`
buckets, and an indirection table says which server owns a bucket. More buckets than servers make the load even, and
moving a bucket is changing one entry. The weight of a bucket is its expected work: the rate of its events times the
subscriptions behind it. The rate is at first the number of its distinct signatures, the paper's estimate; every event seen
(`observe`) counts as one more, so the estimate gives way to what is measured. `balance` deals and moves buckets. A bucket
heavier than a server's fair share, such as that of a symbol that everybody watches, belongs to several servers, and its events are
dealt out among them (`shares`).

The *ledger* is an exact dictionary of all signatures with their subscriptions. From it come the weights, and from it
the summaries that dispatchers get are built, and built anew after removals.

Filters without signatures (they leave a routing attribute open) are never lost. Either they are *replicated* to every
server, and then no event can be dropped; or they are the *residual* set on a server of their own, number 0, that sees
all events. Which one is settled when the partition is built, by cost (`costs.choose_policy`), and stated by `explain`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from wherecast.errors import PlanError
from wherecast.kernels.arrays import Bools, Longs, Words
from wherecast.language.events.events import EventBatch
from wherecast.language.events.schema import Schema
from wherecast.language.filters.columns import Reading
from wherecast.language.filters.filters import Filters
from wherecast.language.sequences import take_ranges
from wherecast.partition import balance, shares
from wherecast.partition.balance import Moves
from wherecast.partition.costs import choose_policy
from wherecast.partition.dispatch import Dispatcher
from wherecast.partition.protocol import Partition, Placement, Routes
from wherecast.partition.shares import Owners, Table
from wherecast.partition.signatures import Signatures, choose_columns, find_column, sign_events, sign_filters
from wherecast.partition.summary import BITS_PER_SIGNATURE, Bloom, Dictionary, buckets_of

#: Buckets per server. The paper's figure 4: beyond 10 the load hardly gets more even.
RATIO = 10
#: The summary is built anew when there are this many times the signatures it was built for.
GROWTH = 1.5

Policy = Literal["replicate", "residual"]
SummaryKind = Literal["bloom", "dictionary"]


class EventSpace:
    """Filters by their signatures, events by theirs."""

    strategy: ClassVar[str] = "event-space"

    def __init__(
        self,
        schema: Schema,
        attributes: tuple[int, ...],
        n_servers: int,
        *,
        policy: Policy = "replicate",
        ratio: int = RATIO,
        summary: SummaryKind = "bloom",
        bits: int = BITS_PER_SIGNATURE,
        seed: int = 0,
    ) -> None:
        """An empty partition; `build` makes one of filters."""
        self.schema = schema
        self.attributes = _check_attributes(schema, attributes)  # columns of the schema, see `signatures`
        self.policy: Policy = policy
        self.summary: SummaryKind = summary
        self.bits = bits
        self.seed = seed
        self.n_servers = n_servers
        if self._owners < 1:
            raise PlanError(f"{n_servers} servers are too few for policy {policy}: the residual set has one of its own")
        n_buckets = n_servers * ratio
        self.ledger = Dictionary.empty()
        self.signatures = np.zeros(n_buckets, np.int64)  # distinct ones, by bucket
        self.subscriptions = np.zeros(n_buckets, np.int64)
        self.seen = np.zeros(n_buckets, np.int64)  # events
        self.unrouted = 0  # subscriptions
        self.total = 0  # subscriptions
        self.copies = 0  # subscriptions times servers that hold them, as they were placed
        #: the owner of each entry: one per bucket, then those of `extra`; over the owners of buckets only
        self.table = balance.assign_buckets(np.zeros(n_buckets), self._owners)
        self.extra = np.zeros(0, np.int64)  # the buckets of further entries, see `shares`
        self._bloom = Bloom.build(self.ledger.signatures(), n_buckets, bits)
        self._built_for = 0

    @classmethod
    def build(
        cls,
        filters: Filters,
        weights: Longs,
        schema: Schema,
        n_servers: int,
        *,
        attributes: Sequence[str] | None = None,
        unrouted: Policy | None = None,
        ratio: int = RATIO,
        summary: SummaryKind = "bloom",
        bits: int = BITS_PER_SIGNATURE,
        seed: int = 0,
    ) -> Self:
        """Partition filters.

        Args:
            filters: What to partition.
            weights: Subscriptions per filter.
            schema: The schema of the filters.
            n_servers: Servers to spread them over.
            attributes: The names of the routing attributes; None: chosen by entropy.
            unrouted: What becomes of filters without signatures; None: what costs less.
            ratio: Buckets per server.
            summary: What the dispatcher tests events with.
            bits: Bits of a Bloom filter per signature.
            seed: Of the hash.
        """
        if attributes is None:
            chosen, _ = choose_columns(filters, weights, schema, n_servers * ratio, seed)
        else:
            given = filters, weights, schema
            chosen = tuple(find_column(*given, name, n_servers * ratio, seed) for name in attributes)
        signatures = sign_filters(filters, schema, chosen, seed)
        lost = int(weights[signatures.unrouted].sum())
        policy = unrouted or choose_policy(int(weights.sum()) - lost, lost, n_servers)
        new = cls(schema, chosen, n_servers, policy=policy, ratio=ratio, summary=summary, bits=bits, seed=seed)
        new._count(signatures, weights)
        new.table, new.extra = shares.assign(new.weights(), new._owners, new._divisible())
        new.copies = new._weigh_copies(new._place(signatures), weights)
        new.rebuild()
        return new

    # -- filters --------------------------------------------------------------------------------------------------

    def place(self, filters: Filters) -> Placement:
        """The owners of the buckets of each filter; every server, or the residual one, for a filter without any.

        A filter that can never match has no bucket and is on no server.
        """
        return self._place(self._sign(filters))

    def insert(self, filters: Filters, weights: Longs) -> Placement:
        """Take in filters; events that match them pass from now on."""
        signatures = self._sign(filters)
        fresh = self._count(signatures, weights)
        if len(self.ledger) > GROWTH * self._built_for:
            self.rebuild()
        else:
            self._bloom.insert(fresh)
        placement = self._place(signatures)
        self.copies += self._weigh_copies(placement, weights)
        return placement

    def remove(self, filters: Filters, weights: Longs) -> None:
        """Take filters out of the load; the dictionary forgets them at once, Bloom filters when they are rebuilt."""
        signatures = self._sign(filters)
        by_signature = weights[signatures.owners()]
        lost = int(weights[signatures.unrouted].sum())
        if lost > self.unrouted:  # to go below what is there would drop events that somebody wants
            raise PlanError(
                f"{lost} unrouted subscriptions to remove of {self.unrouted}; remove only what was inserted"
            )
        self.copies -= min(self._weigh_copies(self._place(signatures), weights), self.copies)
        gone = self.ledger.take(signatures.hashes, by_signature)
        buckets = buckets_of(signatures.hashes, self.n_buckets)
        self.subscriptions -= np.bincount(buckets, by_signature, self.n_buckets).astype(np.int64)
        self.signatures -= np.bincount(buckets[gone], minlength=self.n_buckets)
        self.unrouted -= lost
        self.total -= int(weights.sum())

    def recount(self, filters: Filters, weights: Longs) -> None:
        """Begin anew with these filters, which are all that are left; buckets stay where they are."""
        self.ledger = Dictionary.empty()
        self.signatures, self.subscriptions = np.zeros_like(self.signatures), np.zeros_like(self.subscriptions)
        self.unrouted = self.total = 0
        signatures = self._sign(filters)
        self._count(signatures, weights)
        self.copies = self._weigh_copies(self._place(signatures), weights)
        self.rebuild()

    def rebuild(self) -> None:
        """Build the summary anew from the signatures that are left."""
        self._bloom = Bloom.build(self.ledger.signatures(), self.n_buckets, self.bits)
        self._built_for = len(self.ledger)

    def _sign(self, filters: Filters) -> Signatures:
        return sign_filters(filters, self.schema, self.attributes, self.seed)

    def _count(self, signatures: Signatures, weights: Longs) -> Words:
        """Enter filters in the ledger, and return the signatures that are new."""
        by_signature = weights[signatures.owners()]
        fresh = self.ledger.add(signatures.hashes, by_signature)
        buckets = buckets_of(signatures.hashes, self.n_buckets)
        self.subscriptions += np.bincount(buckets, by_signature, self.n_buckets).astype(np.int64)
        self.signatures += np.bincount(buckets[fresh], minlength=self.n_buckets)
        self.unrouted += int(weights[signatures.unrouted].sum())
        self.total += int(weights.sum())
        return signatures.hashes[fresh]

    def _place(self, signatures: Signatures) -> Placement:
        held = self._held()
        places, ptr = take_ranges(held.ptr, buckets_of(signatures.hashes, self.n_buckets))
        lost = np.flatnonzero(signatures.unrouted)
        everywhere = np.arange(self.n_servers if self.policy == "replicate" else 1)
        pairs = np.concatenate(
            (
                np.repeat(signatures.owners(), np.diff(ptr)) * self.n_servers + held.servers[places],
                (lost[:, None] * self.n_servers + everywhere).ravel(),
            )
        )
        owners, servers = np.divmod(np.unique(pairs), self.n_servers)
        ptr = np.searchsorted(owners, np.arange(signatures.unrouted.size + 1))
        return Placement(ptr, servers.astype(np.int32))

    @staticmethod
    def _weigh_copies(placement: Placement, weights: Longs) -> int:
        return int((np.diff(placement.ptr) * weights).sum())

    # -- events ---------------------------------------------------------------------------------------------------

    def dispatcher(self) -> Dispatcher:
        """What a dispatcher needs to route as this partition does now."""
        tested = self._bloom if self.summary == "bloom" else self.ledger
        residual = 0 if self.policy == "residual" and self.unrouted else None
        return Dispatcher(
            self.attributes,
            self.seed,
            self.table[: self.n_buckets] + self._first,
            None if self._drops_none else tested,
            residual,
            self._held() if self.extra.size else None,
        )

    def route(self, events: EventBatch) -> Routes:
        """At most one server per event, and the residual one."""
        return self.dispatcher().route(events)

    @property
    def sends_to_one(self) -> bool:
        """Unless a residual server sees all events too."""
        return self.dispatcher().residual is None

    def in_vain(self, events: EventBatch, routes: Routes) -> npt.NDArray[np.bool_]:
        """Which of these routes lead to a server that has no filter of the event's signature, and none without any."""
        wanted = self.ledger.may_hold(sign_events(events, self.attributes, self.seed))
        if self._drops_none:
            return np.zeros(routes.servers.size, bool)
        return ~wanted[routes.event_ids] & (routes.servers >= self._first)

    def observe(self, events: EventBatch) -> None:
        """Let the load follow traffic: every event that reaches a bucket counts."""
        self.seen += self.count_events(events)

    def count_events(self, events: EventBatch) -> Longs:
        """How many events reach each bucket."""
        signatures = sign_events(events, self.attributes, self.seed)
        if not self._drops_none:
            signatures = signatures[self.ledger.may_hold(signatures)]
        return np.bincount(buckets_of(signatures, self.n_buckets), minlength=self.n_buckets)

    def carry_over(self, before: Partition) -> None:
        """Go on with the events that another partition saw, if its buckets are the same."""
        if not isinstance(before, EventSpace):
            return
        if (before.attributes, before.seed, before.n_buckets) == (self.attributes, self.seed, self.n_buckets):
            self.seen = before.seen.copy()

    @property
    def _drops_none(self) -> bool:
        """Whether any event may match something that every server has."""
        return self.policy == "replicate" and self.unrouted > 0

    # -- servers --------------------------------------------------------------------------------------------------

    @property
    def _first(self) -> np.int32:
        """The first server that owns buckets; a residual server comes before it."""
        return np.int32(self.policy == "residual")

    @property
    def _owners(self) -> int:
        """How many servers own buckets; in `table` they are numbered from 0."""
        return self.n_servers - int(self._first)

    @property
    def n_buckets(self) -> int:
        """How many there are, shared or not."""
        return self.signatures.size

    def _held(self) -> Owners:
        """The servers of each bucket."""
        return shares.owners(Table(self.table + self._first, self.extra), self.n_buckets)

    def _divisible(self) -> Bools:
        """Buckets that are worth sharing if they are heavy."""
        most: Bools = np.maximum(self.subscriptions, self.seen) >= shares.WORTH_SHARING
        return most

    def _entry_weights(self) -> npt.NDArray[np.float64]:
        return shares.entry_weights(self.weights(), self.extra)

    def weights(self) -> npt.NDArray[np.float64]:
        """Expected work per bucket: the rate of its events times the subscriptions that each of them meets."""
        met = self.subscriptions + (self.unrouted if self.policy == "replicate" else 0)
        return (self.signatures + self.seen).astype(np.float64) * met

    def loads(self) -> npt.NDArray[np.float64]:
        """Expected work per server; the residual server meets every event."""
        loads = balance.server_loads(self._entry_weights(), self.table, self._owners)
        if self.policy == "replicate":
            return loads
        return np.concatenate(([float((self.signatures + self.seen).sum()) * self.unrouted], loads))

    def rebalance(self, threshold: float) -> Moves:
        """Move few buckets, or shares of heavy ones, that bring the imbalance of the owners back within a threshold.

        A bucket that has become heavier than a server's fair share is cut into shares first; those that stay where they are cost
        nothing. The numbers of shares follow those of the buckets.
        """
        weights = self.weights()
        moves = balance.rebalance(self._entry_weights(), self.table, self._owners, threshold)
        after = balance.apply_moves(self.table, moves)
        fair = weights.sum() / self._owners
        if balance.imbalance(balance.server_loads(self._entry_weights(), after, self._owners)) > threshold and fair > 0:
            heavy = np.where(self._divisible(), weights, 0.0)
            cut = shares.shares_within(heavy, fair / 2, self._owners, self.extra)
            wide = np.concatenate((self.table, self.table[cut[self.extra.size :]]))
            more = balance.rebalance(shares.entry_weights(weights, cut), wide, self._owners, threshold)
            if more.buckets.size:
                self.table, self.extra, moves = wide, cut, more
        return self._move(moves)

    def add_server(self) -> Moves:
        """Let a server join, with the next number; it takes its share of the buckets."""
        moves = balance.add_server(self._entry_weights(), self.table, self._owners)
        self.n_servers += 1
        return self._move(moves)

    def remove_server(self, server: int) -> Moves:
        """Let a server leave; the numbers above go down by one, as in a list. The moves are in the numbers before.

        If the residual server leaves, the next one gives its buckets away and takes its place.
        """
        if not 0 <= server < self.n_servers:
            raise PlanError(f"no server {server}; there are 0 to {self.n_servers - 1}")
        if self._owners == 1:
            raise PlanError(f"server {server} cannot leave: no other would be left to own buckets; add one first")
        leaving = max(server - int(self._first), 0)
        moves = self._move(balance.remove_server(self._entry_weights(), self.table, self._owners, leaving))
        self.table = self.table - (self.table > leaving)
        self.n_servers -= 1
        return moves

    def _move(self, moves: Moves) -> Moves:
        """Move buckets, and tell it in the numbers of the servers."""
        self.table = balance.apply_moves(self.table, moves)
        return Moves(moves.buckets, moves.sources + self._first, moves.targets + self._first)

    # -- saving and looking ---------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Everything; summaries are saved as they are, not rebuilt."""
        facts = [
            self.n_servers, _POLICIES.index(self.policy), _SUMMARIES.index(self.summary), self.bits, self.seed,
            self.unrouted, self.total, self.copies, self._built_for,
        ]  # fmt: skip
        return {
            "facts": np.array(facts, np.int64),
            "attributes": np.array(self.attributes, np.int64),
            "table": self.table,
            "extra": self.extra,
            "signatures": self.signatures,
            "subscriptions": self.subscriptions,
            "seen": self.seen,
            **{f"ledger_{name}": array for name, array in self.ledger.arrays().items()},
            **{f"bloom_{name}": array for name, array in self._bloom.arrays().items()},
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]], schema: Schema) -> Self:
        """The partition whose `arrays()` these are. Raises PlanError where they contradict each other."""
        n_servers, policy, summary, bits, seed, unrouted, total, copies, built_for = arrays["facts"].tolist()
        table = np.array(arrays["table"])
        new = cls(
            schema, tuple(arrays["attributes"].tolist()), n_servers, policy=_POLICIES[policy], ratio=0,
            summary=_SUMMARIES[summary], bits=bits, seed=seed,
        )  # fmt: skip
        new.table = table
        new.extra = np.array(arrays.get("extra", np.zeros(0)), np.int64)  # older plans have no shares
        new.signatures, new.subscriptions, new.seen = (
            np.array(arrays[name]) for name in ("signatures", "subscriptions", "seen")
        )
        new.unrouted, new.total, new.copies, new._built_for = unrouted, total, copies, built_for
        new.ledger = Dictionary.from_arrays({n: arrays[f"ledger_{n}"] for n in ("signatures", "counts")})
        new._bloom = Bloom.from_arrays({n: arrays[f"bloom_{n}"] for n in ("ptr", "words")})
        n, extra = new.n_buckets, new.extra
        sizes = {a.size for a in (new.signatures, new.subscriptions, new.seen)} | {new._bloom.n_buckets}
        sound = len(sizes) == 1 and n > 0 and table.size == n + extra.size
        if not sound or table.min() < 0 or table.max() >= new._owners or np.any((extra < 0) | (extra >= n)):
            raise PlanError("the arrays of the plan contradict each other; save it again")
        return new

    def stats(self) -> dict[str, Any]:
        """Figures. `summary_bytes` is what the dispatcher holds, `replication` copies per subscription."""
        tested = self._bloom if self.summary == "bloom" else self.ledger
        held = self._bloom.bytes_per_bucket()[shares.buckets_of_entries(self.n_buckets, self.extra)]
        words = np.bincount(self.table, held, self._owners)
        return {
            "routing_attributes": [_column_name(self.schema, number) for number in self.attributes],
            "buckets": self.n_buckets,
            "shared_buckets": int(np.unique(self.extra).size),
            "signatures": len(self.ledger),
            "subscriptions": self.total,
            "unrouted": self.unrouted,
            "unrouted_policy": self.policy,
            "replication": self.copies / self.total if self.total else 1.0,
            "imbalance": balance.imbalance(self.loads()),
            "summary": self.summary,
            "summary_bytes": tested.nbytes,
            "summary_bytes_per_server": int(words.max()) if self.summary == "bloom" else tested.nbytes // self._owners,
            "false_positive_rate": tested.false_positive_rate(),
        }

    def explain(self) -> str:
        """What it does and what that costs, for a person."""
        f = self.stats()
        names = ", ".join(f["routing_attributes"])
        passing = f"{100 * f['false_positive_rate']:.2g} % of unwanted events are expected to pass"
        lines = [
            f"event-space over {self.n_servers:,} servers, routed by {names}",
            f"  {f['subscriptions']:,} subscriptions, {f['signatures']:,} signatures in {f['buckets']:,} buckets",
            f"  load: largest / smallest {f['imbalance']:.2f}; {f['replication']:.2f} copies per subscription",
            *self._explain_shares(f["shared_buckets"]),
            f"  summary: {self.summary}, {f['summary_bytes']:,} bytes at the dispatcher; {passing}",
            f"  unrouted: {self._explain_unrouted()}",
        ]
        return "\n".join(lines)

    def _explain_shares(self, shared: int) -> list[str]:
        if not shared:
            return []
        shares_of = f"{shared:,} buckets, each" if shared > 1 else "1 bucket,"
        return [
            f"  hot keys: {shares_of} heavier than a server's fair share: several servers hold it and take its events in turn"
        ]

    def _explain_unrouted(self) -> str:
        if not self.unrouted:
            return f"none; a filter that leaves {_column_name(self.schema, self.attributes[0])} open would be put on {self._unrouted_place()}"
        share = 100 * self.unrouted / max(self.total, 1)
        cost = (
            f"{(self.n_servers - 1) * self.unrouted:,} more copies, and no event can be dropped"
            if self.policy == "replicate"
            else "every event is sent there too, one server more per event"
        )
        return f"{self.unrouted:,} subscriptions ({share:.1f} %) on {self._unrouted_place()}: {cost}"

    def _unrouted_place(self) -> str:
        return "every server" if self.policy == "replicate" else "server 0, which sees all events"


_POLICIES: tuple[Policy, ...] = ("replicate", "residual")
_SUMMARIES: tuple[SummaryKind, ...] = ("bloom", "dictionary")


def _column_name(schema: Schema, number: int) -> str:
    attr, reading = schema.columns[number]
    name = schema.attributes[attr].name
    return f"the first level of {name}" if reading is Reading.TOPICS else name


def _check_attributes(schema: Schema, attributes: tuple[int, ...]) -> tuple[int, ...]:
    if not attributes:
        raise PlanError("event-space needs a routing attribute; name one")
    for number in attributes:
        if not 0 <= number < len(schema.columns) or schema.columns[number].reading not in (
            Reading.VALUE,
            Reading.TOPICS,
        ):
            raise PlanError(f"no column {number} of the schema to route by; plan anew")
        attribute = schema.attributes[schema.columns[number].attr]
        if attribute.is_array:
            raise PlanError(
                f"{attribute.name!r} is an array: an event has no one value of it to route by; name another"
            )
    return attributes
