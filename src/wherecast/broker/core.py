"""The core: what a group of commands does to one space. Commands and facts in, a decision out; no I/O.

Theory of operation. The naive way handles a request at a time: read, check, write, fsync, answer. An fsync takes milliseconds,
so the writer takes all requests that wait and makes them durable with one. This module says what such a group does:

1. All events of the group are matched together, against the subscriptions as they are when the group begins.
   They get consecutive positions.
2. Then the changes of subscriptions happen, each on top of those before it, each with a version of its own. The engine learns
   of them after the commit and before anybody hears of it: what was answered is live.
3. A command that is refused changes nothing and does not disturb the others.

Events of a group do not meet subscriptions of the same group. Nobody can tell: neither had been answered when the other came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from wherecast.broker.log_entries import LoggedEvents, Longs, sort_matches
from wherecast.broker.problems import Problem, not_found
from wherecast.errors import EventError


class SubscriptionState(StrEnum):
    """Only an active subscription is matched."""

    ACTIVE = "active"
    PAUSED = "paused"
    EXPIRED = "expired"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class StoredSubscription:
    """A row of the table of subscriptions."""

    number: int
    id: str
    subscriber: str
    filter: str
    labels: str  # JSON
    state: SubscriptionState
    expires_ms: int | None
    clauses: int
    version: int
    created_ms: int
    updated_ms: int


@dataclass(frozen=True, slots=True)
class SpaceCounters:
    """The counters of a space (see `store.tables`), and what its tenant may still add."""

    version: int
    head: int
    last_ms: int
    numbers: int
    subscriptions: int
    clauses: int
    subscriptions_left: int
    clauses_left: int
    name: str = ""  # of the space, for the audit log


# -- commands -------------------------------------------------------------------------------------------------------


class Condition(NamedTuple):
    """What must hold for a change: the subscription exists (or does not), at one of these versions."""

    exists: bool | None = None
    versions: frozenset[int] | None = None

    def refusal(self, id: str, old: StoredSubscription | None) -> Problem | None:
        if self.exists is False and old is not None:
            return Problem(409, "exists", f"subscription {id!r} exists already", {"version": old.version})
        if self.exists and old is None:
            return not_found("subscription", id)
        if self.versions is not None and (old is None or old.version not in self.versions):
            return Problem(412, "changed", f"subscription {id!r} has changed; get it again and repeat the change")
        return None


ANY = Condition()


@dataclass(frozen=True, slots=True)
class PutSubscription:
    """Create or replace a subscription. Its filter is known to compile."""

    id: str
    filter: str
    subscriber: str | None = None
    labels: str = "{}"
    state: SubscriptionState = SubscriptionState.ACTIVE
    expires_ms: int | None = None
    clauses: int = 1
    condition: Condition = ANY


@dataclass(frozen=True, slots=True)
class PutSubscriptions:
    """Create or replace many; those that are refused are reported with their row."""

    puts: Sequence[tuple[int, PutSubscription]]


@dataclass(frozen=True, slots=True)
class MoveSubscription:
    """Pause, resume, expire or delete a subscription."""

    id: str
    to: SubscriptionState
    condition: Condition = ANY


class EventsIn(NamedTuple):
    """Events that fit the schema: their JSON lines, and their values for matching."""

    lines: list[bytes]
    values: list[Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class PublishEvents:
    events: EventsIn


@dataclass(frozen=True, slots=True)
class TakeMatches:
    """Put events into the log that were matched elsewhere: their lines, and for each the ids of the subscriptions it reached."""

    lines: list[bytes]
    ids: list[list[str]]


Command: TypeAlias = PutSubscription | PutSubscriptions | MoveSubscription | PublishEvents | TakeMatches


# -- answers and decisions ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Changed:
    """A subscription after its change. It is live from `version` on, if it is active."""

    subscription: StoredSubscription
    created: bool = False


@dataclass(frozen=True, slots=True)
class ChangedMany:
    version: int
    created: int
    replaced: int
    refused: list[tuple[int, str, Problem]]  # row, id, why


@dataclass(frozen=True, slots=True)
class PublishedEvents:
    """Events and where they are in the log; `refused` are those that would take too much work, by their place."""

    positions: list[int]
    matches: int
    version: int
    refused: list[tuple[int, str]]


Answer: TypeAlias = Changed | ChangedMany | PublishedEvents | Problem


class FoundMatches(NamedTuple):
    """Pairs of event row and subscription number, and the rows that could not be matched."""

    rows: Longs
    numbers: Longs
    errors: list[EventError]


class Note(NamedTuple):
    """A line for the audit log."""

    action: str
    subject: str
    details: dict[str, Any]


@dataclass(slots=True)
class Decision:
    """What a group does: rows to write, an entry for the log, and an answer for each command, in order."""

    counters: SpaceCounters
    rows: dict[int, StoredSubscription] = field(default_factory=dict)
    entry: LoggedEvents | None = None
    answers: list[Answer] = field(default_factory=list)
    notes: list[Note | None] = field(default_factory=list)  # by command


def ids_of(commands: Iterable[Command]) -> list[str]:
    """The subscriptions that a group speaks of: what must be known of them before it is decided."""
    found: dict[str, None] = {}
    for command in commands:
        match command:
            case PutSubscription() | MoveSubscription():
                found[command.id] = None
            case PutSubscriptions():
                found.update((put.id, None) for _, put in command.puts)
            case TakeMatches():
                found.update((id, None) for ids in command.ids for id in ids)
            case PublishEvents():
                pass
    return list(found)


def decide(
    counters: SpaceCounters,
    known: Mapping[str, StoredSubscription],
    commands: Sequence[Command],
    now_ms: int,
    find: Callable[[Sequence[EventsIn]], FoundMatches],
) -> Decision:
    """Decide what a group of commands does.

    Args:
        counters: Those of the space.
        known: The subscriptions that the commands speak of, as far as they exist.
        commands: In the order of their arrival.
        now_ms: The time. Where it is before the time of the last entry, that one counts: a clock may be set back.
        find: Matches events against the subscriptions of `counters.version`.
    """
    now_ms = max(now_ms, counters.last_ms)
    group = _Group(Decision(replace(counters, last_ms=now_ms)), dict(known), now_ms)
    to_match = [(n, c) for n, c in enumerate(commands) if isinstance(c, PublishEvents)]
    matched = [(n, c) for n, c in enumerate(commands) if isinstance(c, TakeMatches)]
    places, published = [n for n, _ in [*to_match, *matched]], list[Answer]()
    if places:
        found = find([c.events for _, c in to_match]) if to_match else _NOTHING
        published = _publish(group, found, [c for _, c in to_match], [c for _, c in matched])
    by_place = dict(zip(places, published, strict=True))
    for n, command in enumerate(commands):
        answer: Answer
        note: Note | None = None
        match command:
            case PutSubscription():
                answer, note = group.put(command)
            case PutSubscriptions():
                answer, note = group.put_many(command)
            case MoveSubscription():
                answer, note = group.move(command)
            case PublishEvents() | TakeMatches():
                answer = by_place[n]
        group.decision.answers.append(answer)
        group.decision.notes.append(note)
    return group.decision


@dataclass(slots=True)
class _Group:
    """A decision in the making, and the subscriptions as the commands so far leave them."""

    decision: Decision
    known: dict[str, StoredSubscription]
    now_ms: int

    def _noted(self, version: int, **details: Any) -> dict[str, Any]:
        return {"space": self.decision.counters.name, "version": version, **details}

    def put(self, put: PutSubscription) -> tuple[Answer, Note | None]:
        old = self.known.get(put.id)
        problem = put.condition.refusal(put.id, old) or self._objection(put, old)
        if problem is not None:
            return problem, None
        version = self._next_version()
        return Changed(self._write(put, old, version), old is None), Note(
            "create" if old is None else "replace", put.id, self._noted(version, filter=put.filter[:500])
        )

    def put_many(self, command: PutSubscriptions) -> tuple[Answer, Note | None]:
        refused: list[tuple[int, str, Problem]] = []
        created, replaced = 0, 0
        version = self.decision.counters.version + 1
        for row, put in command.puts:
            old = self.known.get(put.id)
            problem = put.condition.refusal(put.id, old) or self._objection(put, old)
            if problem is not None:
                refused.append((row, put.id, problem))
                continue
            self._write(put, old, version)
            created, replaced = created + (old is None), replaced + (old is not None)
        if not created + replaced:
            return ChangedMany(version - 1, 0, 0, refused), None
        self._next_version()
        details = self._noted(version, created=created, replaced=replaced, refused=len(refused))
        return ChangedMany(version, created, replaced, refused), Note("load", "", details)

    def move(self, move: MoveSubscription) -> tuple[Answer, Note | None]:
        old = self.known.get(move.id)
        problem = move.condition.refusal(move.id, old)
        if problem is not None:
            return problem, None
        if old is None:
            return not_found("subscription", move.id), None
        if old.state is move.to:
            return Changed(old), None
        expires_ms = old.expires_ms
        if move.to is SubscriptionState.ACTIVE and expires_ms is not None and expires_ms <= self.now_ms:
            return Problem(409, "expired", f"subscription {move.id!r} has expired; replace it with a later time"), None
        version = self._next_version()
        new = replace(old, state=move.to, version=version, updated_ms=self.now_ms)
        self._keep(new)
        if move.to is SubscriptionState.DELETED:
            self._count(-1, -old.clauses)
        return Changed(new), Note(move.to.value, move.id, self._noted(version))

    def _objection(self, put: PutSubscription, old: StoredSubscription | None) -> Problem | None:
        counters = self.decision.counters
        if old is not None and put.subscriber is not None and put.subscriber != old.subscriber:
            return Problem(
                409,
                "subscriber",
                f"subscription {put.id!r} belongs to {old.subscriber!r}; delete it and create it anew",
            )
        if old is None and counters.subscriptions_left < 1:
            return Problem(403, "quota", "the tenant has as many subscriptions as its quota allows")
        if counters.clauses_left < put.clauses - (old.clauses if old else 0):
            return Problem(403, "quota", "the filters of the tenant have as many clauses as its quota allows")
        if put.expires_ms is not None and put.expires_ms <= self.now_ms:
            return Problem(422, "expired", "the time of expiry is in the past")
        return None

    def _write(self, put: PutSubscription, old: StoredSubscription | None, version: int) -> StoredSubscription:
        counters = self.decision.counters
        number = old.number if old is not None else counters.numbers
        if old is None:
            self.decision.counters = replace(counters, numbers=number + 1)
        self._count(int(old is None), put.clauses - (old.clauses if old else 0))
        subscriber = put.subscriber if put.subscriber is not None else old.subscriber if old else put.id
        new = StoredSubscription(
            number,
            put.id,
            subscriber,
            put.filter,
            put.labels,
            put.state,
            put.expires_ms,
            put.clauses,
            version,
            old.created_ms if old else self.now_ms,
            self.now_ms,
        )
        self._keep(new)
        return new

    def _keep(self, new: StoredSubscription) -> None:
        self.decision.rows[new.number] = new
        if new.state is SubscriptionState.DELETED:
            self.known.pop(new.id, None)
        else:
            self.known[new.id] = new

    def _next_version(self) -> int:
        self.decision.counters = replace(self.decision.counters, version=self.decision.counters.version + 1)
        return self.decision.counters.version

    def _count(self, subscriptions: int, clauses: int) -> None:
        old = self.decision.counters
        self.decision.counters = replace(
            old,
            subscriptions=old.subscriptions + subscriptions,
            clauses=old.clauses + clauses,
            subscriptions_left=old.subscriptions_left - subscriptions,
            clauses_left=old.clauses_left - clauses,
        )


def _publish(
    group: _Group, found: FoundMatches, to_match: list[PublishEvents], matched: list[TakeMatches]
) -> list[Answer]:
    """Put all events that could be matched into the log: those that were matched here, and after them those matched elsewhere."""
    decision, counters = group.decision, group.decision.counters
    parts = [c.events.lines for c in to_match] + [c.lines for c in matched]
    lines = [line for part in parts for line in part]
    starts = np.cumsum([0, *map(len, parts)])
    given = _given(group.known, matched, int(starts[len(to_match)]))
    all_rows = np.concatenate([found.rows, given[0]])
    reasons = {e.row: e for e in found.errors if e.row is not None}
    places = np.arange(len(lines), dtype=np.int64)  # of each row in the entry
    if reasons:
        kept = np.ones(len(lines), np.bool_)
        kept[list(reasons)] = False
        places = np.where(kept, np.cumsum(kept) - 1, -1)
        lines = [line for line, keep in zip(lines, kept.tolist(), strict=True) if keep]
    if lines:
        numbers, rows = sort_matches(np.concatenate([found.numbers, given[1]]), places[all_rows])
        decision.entry = LoggedEvents(counters.head, counters.version, group.now_ms, lines, numbers, rows)
        decision.counters = replace(counters, head=counters.head + len(lines))
    answers: list[Answer] = []
    per_row = np.bincount(all_rows, minlength=int(starts[-1]))
    for first, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        own = places[first:end]
        refused = [(row - first, reasons[row].message) for row in range(first, end) if row in reasons]
        positions = (own[own >= 0] + counters.head).tolist()
        answers.append(PublishedEvents(positions, int(per_row[first:end].sum()), counters.version, refused))
    return answers


def _given(known: Mapping[str, StoredSubscription], matched: list[TakeMatches], row: int) -> tuple[Longs, Longs]:
    """Rows and subscription numbers of matches found elsewhere; the first event has the given row.

    A subscription that is gone or not active any more has no match: nobody is told who does not want to be.
    """
    rows: list[int] = []
    numbers: list[int] = []
    for ids in (ids for command in matched for ids in command.ids):
        for id in dict.fromkeys(ids):
            found = known.get(id)
            if found is not None and found.state is SubscriptionState.ACTIVE:
                rows.append(row)
                numbers.append(found.number)
        row += 1
    return np.array(rows, np.int64), np.array(numbers, np.int64)


_NOTHING = FoundMatches(np.empty(0, np.int64), np.empty(0, np.int64), [])
