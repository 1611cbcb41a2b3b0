"""What nodes say to each other, and what a node asks of whoever runs it.

Messages and timers come in, effects go out; nothing here or in the modules above opens a socket or reads a clock. Every
message is a frozen record of integers, bytes, texts, contacts and tuples of these: what a framed binary protocol
can carry.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

from wherecast.overlay.positions import Address, Contact


class Span(NamedTuple):
    """Keys from `low` on and before `high`; None: no end on that side."""

    low: int | bytes | None
    high: int | bytes | None

    def holds(self, key: int | bytes) -> bool:
        """Whether a key of the attribute's kind is inside."""
        low, high = self.low, self.high
        return (low is None or low <= key) and (high is None or key < high)  # type: ignore[operator]


class Record(NamedTuple):
    """The metadata of a subscription clause: who is told, under which id."""

    subscription: int | str
    address: Address


class Piece(NamedTuple):
    """What a list says about one subscription clause at the offsets `first` .. `last` of its line.

    A value of None says that the clause is gone from there. Of two pieces for one offset, the higher version holds.
    """

    first: int
    last: int
    version: int
    value: tuple[Span, ...] | Record | None


class Entry(NamedTuple):
    """Pieces of one clause in one list. Lists are numbered by `placement.RingPlacement`."""

    list: int
    subscription: int
    pieces: tuple[Piece, ...]


#: The events of a schema as they travel: (attribute, key) of every value that is there.
Values = tuple[tuple[int, int | bytes], ...]


# -- the ring ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ask:
    """Tell me your predecessor and successors. With `notify` the sender takes itself for your predecessor."""

    sender: Contact
    notify: bool


@dataclass(frozen=True, slots=True)
class State:
    """The answer to `Ask`."""

    sender: Contact
    predecessor: Contact | None
    successors: tuple[Contact, ...]


@dataclass(frozen=True, slots=True)
class Ping:
    """Are you there?"""

    sender: Contact


@dataclass(frozen=True, slots=True)
class Pong:
    sender: Contact


@dataclass(frozen=True, slots=True)
class Leaving:
    """I am going: treat me as failed."""

    sender: Contact


@dataclass(frozen=True, slots=True)
class Step:
    """One step of an iterative look-up: who is nearer to `position`?"""

    sender: Contact
    position: int
    request: int


@dataclass(frozen=True, slots=True)
class Nearer:
    """The answer to `Step`: the owner, or a node nearer to it."""

    sender: Contact
    request: int
    contact: Contact
    is_owner: bool


# -- routed items: each goes to the owner of a position ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Find:
    """Who owns this position?"""

    origin: Address
    operation: int


@dataclass(frozen=True, slots=True)
class Put:
    """Lay these pieces over the list at the offsets `first` .. `last`, node after node."""

    origin: Address
    operation: int
    first: int
    last: int
    entry: Entry


@dataclass(frozen=True, slots=True)
class Query:
    """Which clauses of this list hold this key?"""

    origin: Address
    operation: int
    list: int
    key: int | bytes


@dataclass(frozen=True, slots=True)
class Notify:
    """Tell the subscribers of these clauses, which all have this node in c1, of an event."""

    origin: Address
    operation: int
    subscriptions: tuple[int, ...]
    event: Values


Payload = Find | Put | Query | Notify


class Item(NamedTuple):
    """A payload on its way, and the messages that it took so far."""

    position: int
    hops: int
    payload: Payload


@dataclass(frozen=True, slots=True)
class Route:
    """Items that share this hop. With `is_last` the sender takes the receiver for their owner."""

    sender: Contact
    hop: int
    is_last: bool
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Took:
    """The hop arrived."""

    hop: int


# -- answers to the origin ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Found:
    """The answer to `Find`."""

    operation: int
    owner: Contact
    hops: int


@dataclass(frozen=True, slots=True)
class Stored:
    """The answer to `Put`, for the offsets that this node owns, once its copies are made."""

    operation: int
    list: int
    subscription: int
    first: int
    last: int
    hops: int


@dataclass(frozen=True, slots=True)
class Listed:
    """The answer to `Query`."""

    operation: int
    list: int
    subscriptions: tuple[int, ...]
    hops: int


@dataclass(frozen=True, slots=True)
class Deliver:
    """To the subscriber: an event for one of its subscriptions. It answers the origin with `Delivered`."""

    origin: Address
    operation: int
    subscription: int | str
    clauses: tuple[int, ...]
    event: Values


@dataclass(frozen=True, slots=True)
class Delivered:
    """These clauses have been told, or are gone."""

    operation: int
    clauses: tuple[int, ...]


# -- copies ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Copy:
    """Keep these entries. A `token` other than 0 asks for `Copied`."""

    sender: Contact
    token: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Copied:
    sender: Contact
    token: int


@dataclass(frozen=True, slots=True)
class Sync:
    """The owner of (start, end] compares what it has there with a successor."""

    sender: Contact
    start: int
    end: int
    digest: int


@dataclass(frozen=True, slots=True)
class Synced:
    """The answer to `Sync`: nothing if the digests agree, else all entries there."""

    sender: Contact
    start: int
    end: int
    is_same: bool
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Handover:
    """(start, end] is the receiver's from now on; here is all that is in it."""

    sender: Contact
    start: int
    end: int
    entries: tuple[Entry, ...]


Message = (
    Ask | State | Ping | Pong | Leaving | Step | Nearer | Route | Took | Found | Stored | Listed | Deliver | Delivered
    | Copy | Copied | Sync | Synced | Handover
)  # fmt: skip


# -- effects and timers ------------------------------------------------------------------------------------------------


class Tick(enum.IntEnum):
    """Timers that run all the time; a node starts each again when it fires."""

    STABILISE = 0
    FIX_FINGERS = 1
    REPAIR = 2


class HopTimeout(NamedTuple):
    """A hop that should have been taken by now."""

    hop: int


class Retry(NamedTuple):
    """An operation that should have been answered by now."""

    operation: int


Timer = Tick | HopTimeout | Retry


class Send(NamedTuple):
    """Effect: send a message. One to the node's own address is handed back to it, in a call of its own."""

    to: Address
    message: Message


class Start(NamedTuple):
    """Effect: fire this timer after this many milliseconds."""

    after_ms: int
    timer: Timer


class Outcome(NamedTuple):
    """Effect: an operation ended. `subscriptions` are the clauses that matched, `owner` what a look-up found."""

    operation: int
    is_complete: bool
    subscriptions: tuple[int, ...] = ()
    owner: Contact | None = None
    hops: int = 0


Effect = Send | Start | Outcome
