"""Content-based publish/subscribe on the ring, without I/O: one node.

Theory of operation
-------------------
Naively, every node would hold every filter. Here a filter is cut into clauses, a clause into constraints, and each
constraint is stored where the values that satisfy it live (section 3.1). A clause has a subscription id c1 | c2 | c3 of
its own; only the id is stored in the lists, and the metadata (who is told) at the node c1.

To match an event (section 3.2), the lists of its values are collected, one per attribute; a clause that is in exactly c3
of them holds. Its subscriber is told by the owner of c1, which joins the clauses of one subscription, so that nobody is
told twice. The subscriber answers the publisher: what is not answered is sent again, end to end.

Every operation is a set of things that have not been answered yet. When a retry timer fires, those are sent again; all
of them may arrive twice without harm (`storage`).

| operation | sent to the owner of | answered with | ends when |
|---|---|---|---|
| subscribe, update, unsubscribe | the first offset of each changed run | `Stored`, per owner along the run | all offsets are stored |
| publish, collecting | the value of each attribute | `Listed` | all lists are in |
| publish, notifying | c1 of each clause that holds | `Delivered`, by the subscriber | all clauses are told |
| find | a position | `Found` | at once |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from wherecast.language.events.events import EventReader
from wherecast.language.events.names import NameCheck
from wherecast.language.filters.filters import Filters
from wherecast.overlay.lookup import Router
from wherecast.overlay.messages import (
    Copied,
    Copy,
    Deliver,
    Delivered,
    Effect,
    Entry,
    Find,
    Found,
    Handover,
    HopTimeout,
    Item,
    Listed,
    Message,
    Notify,
    Outcome,
    Piece,
    Put,
    Query,
    Record,
    Retry,
    Route,
    Send,
    Start,
    Stored,
    Sync,
    Synced,
    Tick,
    Timer,
    Took,
    Values,
)
from wherecast.overlay.placement import METADATA, ClauseRuns, RingPlacement, difference
from wherecast.overlay.positions import Address, Contact, SubIdLayout
from wherecast.overlay.replication import Replication
from wherecast.overlay.ring import Ring
from wherecast.overlay.settings import RingSettings
from wherecast.overlay.storage import Extent, Lists, clip, without


@dataclass(frozen=True, slots=True)
class RingRegistration:
    """A subscription as its owner must know it to update or delete it, through any node."""

    subscription: int | str
    address: Address
    version: int
    clauses: tuple[tuple[int, ClauseRuns], ...]  # subscription id of each clause, and where it is stored


@dataclass(slots=True)
class _Storing:
    """Entries, and the offsets of each that no owner has confirmed."""

    entries: dict[tuple[int, int], Entry]
    open: dict[tuple[int, int], list[Extent]]
    is_moving: bool = False  # something was confirmed since the last retry: a long run takes its time
    tries: int = 0


@dataclass(slots=True)
class _Publishing:
    """An event: first the lists that have not come, then the clauses that have not been told."""

    event: Values
    queries: dict[int, Item]
    attributes: dict[int, set[int]] = field(default_factory=dict)
    matched: tuple[int, ...] = ()
    untold: set[int] = field(default_factory=set)
    hops: int = 0
    tries: int = 0


@dataclass(slots=True)
class _Finding:
    position: int
    is_iterative: bool
    tries: int = 0


class RingNode:
    """A member of the overlay. After each call, `take` gives what is to be sent, started or told."""

    def __init__(self, me: Contact, placement: RingPlacement, *, is_batching: bool = True) -> None:
        self.settings: RingSettings = placement.settings
        self.placement = placement
        self._out: list[Effect] = []
        self.ring = Ring(me, self.settings, self._out)
        self.lists = Lists(placement)
        self.replication = Replication(self.ring, self.lists, self._out)
        self.router = Router(self.ring, self._own, self._out, is_batching=is_batching)
        self.layout = SubIdLayout.of(self.settings.bits, self.settings.subscriptions, len(placement.schema))
        self._is_batching = is_batching
        scalars = [i for i, a in enumerate(placement.schema) if not a.is_array]
        self._reader = EventReader(placement.schema, scalars, NameCheck(placement.schema))
        self._operations: dict[int, _Storing | _Publishing | _Finding] = {}
        self._next_operation = 1
        self._next_clause = 0
        self._handlers: dict[type, Callable[[Any], None]] = {
            Route: self.router.receive,
            Took: self.router.took,
            Found: self._found,
            Stored: self._stored,
            Listed: self._listed,
            Delivered: self._delivered,
            Copy: self.replication.keep_copy,
            Copied: self.replication.copied,
            Sync: self.replication.sync,
            Synced: self.replication.synced,
            Handover: self.replication.take_over,
        }

    # -- membership -------------------------------------------------------------------------------------------------

    def found(self, members: Iterable[Contact]) -> None:
        """Start a ring with these members, of whom I am one."""
        self.ring.found(members)
        self.replication.found()

    def join(self, bootstraps: Iterable[Address]) -> None:
        """Join the ring that the nodes at these addresses belong to."""
        self.ring.join(bootstraps)
        self.replication.start()

    def leave(self) -> None:
        """Hand everything to the successor and go."""
        self.replication.hand_on()
        self.ring.leave()

    def take(self) -> list[Effect]:
        """The effects since the last call."""
        effects = self._out[:]
        self._out.clear()
        return effects

    def receive(self, message: Message) -> None:
        """Handle a message."""
        if not self.ring.receive(message):
            self._handlers[type(message)](message)
        self.replication.watch()

    def fire(self, timer: Timer) -> None:
        """Handle a timer."""
        if isinstance(timer, HopTimeout):
            self.router.fire(timer)
        elif isinstance(timer, Retry):
            self._retry(timer.operation)
        elif timer is Tick.REPAIR:
            self.replication.repair()
        else:
            self.ring.fire(timer)
        self.replication.watch()

    # -- subscriptions ----------------------------------------------------------------------------------------------

    def subscribe(self, subscription: int | str, filters: Filters, address: Address) -> tuple[int, RingRegistration]:
        """Store a filter (the first of `filters`). Raises FilterError if the overlay cannot serve it."""
        clauses = tuple((self._new_clause(runs), runs) for runs in self.placement.clauses(filters))
        new = RingRegistration(subscription, address, 1, clauses)
        return self._store(RingRegistration(subscription, address, 0, ()), new), new

    def update(self, old: RingRegistration, filters: Filters) -> tuple[int, RingRegistration]:
        """Change the filter of a subscription: only the difference is stored."""
        wanted = self.placement.clauses(filters)
        kept = dict(zip((c for c, _ in old.clauses), wanted, strict=False))
        # c3 is part of the id: a clause that constrains more attributes than before is another clause.
        clauses = [
            (clause if self.layout.count_of(clause) == _count(runs) else self._new_clause(runs), runs)
            for clause, runs in kept.items()
        ]
        clauses += [(self._new_clause(runs), runs) for runs in wanted[len(kept) :]]
        new = RingRegistration(old.subscription, old.address, old.version + 1, tuple(clauses))
        return self._store(old, new), new

    def unsubscribe(self, old: RingRegistration) -> int:
        """Delete a subscription."""
        return self._store(old, RingRegistration(old.subscription, old.address, old.version + 1, ()))

    def _new_clause(self, runs: ClauseRuns) -> int:
        number, self._next_clause = self._next_clause, self._next_clause + 1
        return self.layout.pack(self.ring.me.id, number, _count(runs))

    def _store(self, old: RingRegistration, new: RingRegistration) -> int:
        entries: dict[tuple[int, int], Entry] = {}
        extents: dict[tuple[int, int], list[Extent]] = {}
        before, after = dict(old.clauses), dict(new.clauses)
        for clause in {**before, **after}:
            was, now = before.get(clause, {}), after.get(clause, {})
            for list in {**was, **now}:
                changes = difference(was.get(list, ()), now.get(list, ()))
                pieces = [Piece(c.first, c.last, new.version, c.spans) for run in changes for c in run]
                if pieces:
                    entries[list, clause] = Entry(list, clause, tuple(pieces))
                    extents[list, clause] = [(run[0].first, run[-1].last) for run in changes]
            if not was or not now:
                place = self.layout.node_of(clause)
                record = Record(new.subscription, new.address) if now else None
                entries[METADATA, clause] = Entry(METADATA, clause, (Piece(place, place, new.version, record),))
                extents[METADATA, clause] = [(place, place)]
        return self._begin(_Storing(entries, extents))

    def _put(self, operation: int, storing: _Storing) -> None:
        me, position = self.ring.me.address, self.placement.position
        self.router.route(
            Item(position(place[0], first), 0, Put(me, operation, first, last, storing.entries[place]))
            for place, extents in storing.open.items()
            for first, last in extents
        )

    def _stored(self, stored: Stored) -> None:
        storing = self._operations.get(stored.operation)
        place = (stored.list, stored.subscription)
        if isinstance(storing, _Storing) and place in storing.open:
            storing.is_moving = True
            left = [p for extent in storing.open[place] for p in without(extent, stored.first, stored.last)]
            if left:
                storing.open[place] = left
            else:
                del storing.open[place]
                if not storing.open:
                    self._end(stored.operation, Outcome(stored.operation, is_complete=True))

    # -- events -----------------------------------------------------------------------------------------------------

    def publish(self, event: Mapping[str, object]) -> int:
        """Tell everybody whose filter an event satisfies. Raises EventError if a value does not fit."""
        return self.publish_many([event])[0]

    def publish_many(self, events: Iterable[Mapping[str, object]]) -> list[int]:
        """Publish several events at once: their look-ups share hops, the more the more there are."""
        read = [self.placement.read(self._reader.read(event)) for event in events]
        publishing = {self._register(_Publishing(values, {})): values for values in read}
        items = [item for number, values in publishing.items() for item in self._query(number, values)]
        self.router.route(items)
        return list(publishing)

    def _query(self, operation: int, values: Values) -> Iterable[Item]:
        publishing, me = self._operations[operation], self.ring.me.address
        assert isinstance(publishing, _Publishing)
        for attribute, key in values:
            for list, offset in self.placement.lists_of(attribute, key):
                position = self.placement.position(list, offset)
                publishing.queries[list] = Item(position, 0, Query(me, operation, list, key))
        self._match(operation, publishing)  # an event without values is over at once
        return publishing.queries.values()

    def _listed(self, listed: Listed) -> None:
        publishing = self._operations.get(listed.operation)
        if isinstance(publishing, _Publishing) and publishing.queries.pop(listed.list, None) is not None:
            publishing.attributes.setdefault(listed.list >> 1, set()).update(listed.subscriptions)
            publishing.hops += listed.hops
            self._match(listed.operation, publishing)

    def _match(self, operation: int, publishing: _Publishing) -> None:
        """Once all lists are in: clauses that are in as many as they constrain attributes hold."""
        if publishing.queries:
            return
        seen = Counter(clause for clauses in publishing.attributes.values() for clause in clauses)
        matched = sorted(clause for clause, count in seen.items() if count == self.layout.count_of(clause))
        publishing.matched, publishing.untold = tuple(matched), set(matched)
        publishing.attributes.clear()
        if matched:
            self._notify(operation, publishing)
        else:
            self._end_publishing(operation, publishing)

    def _notify(self, operation: int, publishing: _Publishing) -> None:
        by_node: dict[int, list[int]] = {}
        for clause in sorted(publishing.untold):
            by_node.setdefault(self.layout.node_of(clause), []).append(clause)
        me, event = self.ring.me.address, publishing.event
        groups = [(n, tuple(g)) for n, group in by_node.items() for g in ([group] if self._is_batching else zip(group))]
        self.router.route(Item(node, 0, Notify(me, operation, clauses, event)) for node, clauses in groups)

    def _delivered(self, delivered: Delivered) -> None:
        publishing = self._operations.get(delivered.operation)
        if isinstance(publishing, _Publishing):
            publishing.untold.difference_update(delivered.clauses)
            if not publishing.untold and not publishing.queries:
                self._end_publishing(delivered.operation, publishing)

    def _end_publishing(self, operation: int, publishing: _Publishing) -> None:
        outcome = Outcome(operation, True, publishing.matched, None, publishing.hops)
        self._end(operation, outcome)

    # -- look-ups ---------------------------------------------------------------------------------------------------

    def find(self, position: int, *, is_iterative: bool = False) -> int:
        """Find the owner of a position: by a message that is passed on, or iteratively by asking node after node."""
        return self._begin(_Finding(position, is_iterative))

    def _found(self, found: Found) -> None:
        self._end(found.operation, Outcome(found.operation, True, (), found.owner, found.hops))

    # -- operations -------------------------------------------------------------------------------------------------

    def _register(self, operation: _Storing | _Publishing | _Finding) -> int:
        number, self._next_operation = self._next_operation, self._next_operation + 1
        self._operations[number] = operation
        self._out.append(Start(self.settings.retry_ms, Retry(number)))
        return number

    def _begin(self, operation: _Storing | _Finding) -> int:
        number = self._register(operation)
        self._advance(number, operation)
        return number

    def _advance(self, number: int, operation: _Storing | _Publishing | _Finding) -> None:
        """Send what has not been answered."""
        if isinstance(operation, _Storing):
            if not operation.open:
                self._end(number, Outcome(number, is_complete=True))
            self._put(number, operation)
        elif isinstance(operation, _Finding):
            if operation.is_iterative:
                self.ring.seek(number, operation.position)
            else:
                self.router.route([Item(operation.position, 0, Find(self.ring.me.address, number))])
        elif operation.queries:
            self.router.route(operation.queries.values())
        else:
            self._notify(number, operation)

    def _retry(self, number: int) -> None:
        operation = self._operations.get(number)
        if operation is None:
            return
        if isinstance(operation, _Storing) and operation.is_moving:
            operation.is_moving, operation.tries = False, 0
        else:
            operation.tries += 1
            if operation.tries >= self.settings.tries:
                self._end(number, Outcome(number, is_complete=False))
                return
            self._advance(number, operation)
        self._out.append(Start(self.settings.retry_ms, Retry(number)))

    def _end(self, number: int, outcome: Outcome) -> None:
        if self._operations.pop(number, None) is not None:
            self._out.append(outcome)

    # -- as the owner of a position ---------------------------------------------------------------------------------

    def _own(self, item: Item) -> None:
        """An item for a position of mine."""
        payload = item.payload
        if isinstance(payload, Put):
            self._own_put(payload, item.hops)
        elif isinstance(payload, Find):
            self._reply(payload.origin, Found(payload.operation, self.ring.me, item.hops))
        elif self.replication.is_settled(item.position):
            if isinstance(payload, Query):
                found = self.lists.query(payload.list, payload.key)
                self._reply(payload.origin, Listed(payload.operation, payload.list, found, item.hops))
            else:
                self._own_notify(payload)

    def _own_put(self, put: Put, hops: int) -> None:
        """Store the part of a run that is mine, and pass on the rest."""
        list, clause, pieces = put.entry
        mine = min(self.placement.last_offset(list, put.first, self.ring.me.id), put.last)
        following = self.placement.next_offset(list, mine + 1) if mine < put.last else put.last + 1
        done = min(following - 1, put.last)
        stored = Stored(put.operation, list, clause, put.first, done, hops)
        entry = Entry(list, clause, tuple(clip(pieces, [(put.first, mine)])))
        self.replication.copy(entry, Send(put.origin, stored))
        if done < put.last:
            rest = Put(put.origin, put.operation, following, put.last, put.entry)
            self.router.route([Item(self.placement.position(list, following), hops, rest)])

    def _own_notify(self, notify: Notify) -> None:
        """Tell each subscriber once, however many of its clauses hold."""
        clauses: dict[Record, list[int]] = {}
        gone = []
        for clause in notify.subscriptions:
            record = self.lists.record(clause)
            if record is None:
                gone.append(clause)
            else:
                clauses.setdefault(record, []).append(clause)
        for record, held in clauses.items():
            message = Deliver(notify.origin, notify.operation, record.subscription, tuple(held), notify.event)
            self._out.append(Send(record.address, message))
        if gone:
            self._reply(notify.origin, Delivered(notify.operation, tuple(gone)))

    def _reply(self, origin: Address, answer: Found | Listed | Delivered) -> None:
        self._out.append(Send(origin, answer))


def _count(runs: ClauseRuns) -> int:
    """The number of attributes that a clause constrains: c3."""
    return len({list >> 1 for list in runs})


def deliver_once(seen: set[tuple[Address, int, int | str]], message: Deliver) -> tuple[bool, Send]:
    """What a subscriber does with an event: whether it is new to it, and the answer to the publisher."""
    mark = (message.origin, message.operation, message.subscription)
    is_new = mark not in seen
    seen.add(mark)
    return is_new, Send(message.origin, Delivered(message.operation, message.clauses))
