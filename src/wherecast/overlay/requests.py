"""What peers and clients say to a peer apart from the ring's own messages: entering, subscribing, publishing, looking.

A client has one request open at a time, so replies carry no numbers; a `Notice` may come at any time. Events travel as JSON
texts, as people write them; inside the ring they are keys (`messages.Values`).
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import NamedTuple

from wherecast.errors import WherecastError
from wherecast.language.events.schema import Schema
from wherecast.overlay.messages import Message
from wherecast.overlay.positions import Address
from wherecast.overlay.settings import RingSettings

_ENDPOINT = re.compile(r"(?P<host>[^\s/\[\]]{1,255}|\[[0-9a-fA-F:.]{2,45}\]):(?P<port>[0-9]{1,5})")
_ADDRESS = re.compile(_ENDPOINT.pattern + r"(/[0-9a-f]{16})?")


class PeerError(WherecastError):
    """A peer that cannot start, cannot be reached, or refuses a request."""


def parse_endpoint(text: str) -> tuple[str, int]:
    """Host and port of `host:port`."""
    found = _ENDPOINT.fullmatch(text)
    if found is None or int(found["port"]) > 65535:
        raise PeerError(f"{text!r} is not an address; write host:port, for example 127.0.0.1:7001")
    return found["host"].strip("[]"), int(found["port"])


def endpoint_of(address: Address) -> str:
    """The `host:port` of an address. A node's address is `host:port/incarnation`: no two nodes ever share one."""
    return str(address).partition("/")[0]


def is_address(address: Address) -> bool:
    return isinstance(address, str) and _ADDRESS.fullmatch(address) is not None


@dataclass(frozen=True, slots=True)
class Rules:
    """What all peers of a ring must agree on. A joiner takes them from the ring."""

    settings: RingSettings
    schema: Schema

    def to_json(self) -> str:
        return json.dumps({"settings": asdict(self.settings), "schema": self.schema.to_dict()})

    @classmethod
    def from_json(cls, text: str) -> Rules:
        """Raises PeerError if this build cannot follow them."""
        try:
            found = json.loads(text)
            return cls(RingSettings(**found["settings"]), Schema.of(dict(found["schema"])))
        except (ValueError, TypeError, KeyError, AttributeError, WherecastError) as error:
            raise PeerError(f"the ring's settings cannot be read by this version: {error}") from None


# -- between peers -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message and whom it is for: what was meant for a node that is gone must not reach the one that came after it."""

    to: Address
    message: Message


@dataclass(frozen=True, slots=True)
class Enter:
    """A peer that is in no ring asks to be let in, under this address."""

    address: Address


@dataclass(frozen=True, slots=True)
class Welcome:
    """There is a ring: join it through these nodes."""

    rules: str
    addresses: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class Founders:
    """You are one of these, who start the ring together."""

    rules: str
    addresses: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class Waiting:
    """There is no ring yet: `known` founders of `wanted`. Ask again."""

    known: int
    wanted: int


# -- requests of clients -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Register or change a filter and attach to it. One that is not durable ends with the connection."""

    subscription: int | str
    filter: str
    is_durable: bool


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    subscription: int | str


@dataclass(frozen=True, slots=True)
class Publish:
    """Events as JSON objects; the reply comes when all subscribers have answered, or after `wait_ms`."""

    events: tuple[str, ...]
    wait_ms: int


@dataclass(frozen=True, slots=True)
class Inspect:
    """How are you?"""


@dataclass(frozen=True, slots=True)
class Taken:
    """The notices of a subscription up to this number need not be kept any more."""

    subscription: int | str
    number: int


# -- replies and notices -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Done:
    """The subscription stands, or is gone."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Why not. `reason` names the class of the error."""

    reason: str
    text: str


class Told(NamedTuple):
    """What came of an event: the clauses that hold, the hops of its look-ups, and whether all subscribers answered."""

    clauses: int
    hops: int
    is_complete: bool


@dataclass(frozen=True, slots=True)
class Published:
    """What came of each event."""

    events: tuple[Told, ...]


@dataclass(frozen=True, slots=True)
class Status:
    """A JSON object; see `Peer.status`."""

    text: str


@dataclass(frozen=True, slots=True)
class Notice:
    """An event for a subscription of yours."""

    subscription: int | str
    number: int
    event: str


Request = Enter | Subscribe | Unsubscribe | Publish | Inspect | Taken
Reply = Welcome | Founders | Waiting | Done | Refused | Published | Status | Notice
