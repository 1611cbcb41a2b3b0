"""What a peer must not forget: its subscribers' filters, where they are stored in the ring, and notices nobody has taken yet.

One SQLite file in the state directory, one process at a time; without a directory, a database in memory. What is written
is there after the process is killed.

The node's own list entries are kept too, with the time: a peer that comes back is a new node and owns other
positions, but while graves of deleted clauses still stand (`RingSettings.lease` rounds) it can offer what it had to the owners. Later
it might bring back what was deleted, and its copies have long been replaced.
"""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path
from typing import NamedTuple

from wherecast.overlay.messages import Entry, Piece, Record, Span
from wherecast.overlay.placement import Run
from wherecast.overlay.pubsub import RingRegistration
from wherecast.overlay.requests import PeerError
from wherecast.overlay.wire import Codec

VERSION = 1
#: Notices that are kept for a subscription nobody is attached to; then the oldest go.
MAX_NOTICES = 100_000

_TABLES = """
CREATE TABLE subscriptions (id TEXT PRIMARY KEY, filter TEXT NOT NULL, is_durable INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE registrations (number INTEGER PRIMARY KEY, id TEXT NOT NULL, body BLOB NOT NULL);
CREATE TABLE notices (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, event TEXT NOT NULL);
CREATE INDEX notices_of ON notices (id, number);
CREATE TABLE facts (name TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
"""

SubscriptionId = int | str


class SavedClause(NamedTuple):
    clause: int
    runs: tuple[tuple[int, tuple[Run, ...]], ...]  # list, runs there


class SavedRegistration(NamedTuple):
    subscription: SubscriptionId
    address: str
    version: int
    clauses: tuple[SavedClause, ...]


class SavedEntries(NamedTuple):
    saved_at: int  # seconds since 1970
    entries: tuple[Entry, ...]


_CODEC = Codec((Span, Record, Piece, Entry, Run, SavedClause, SavedRegistration, SavedEntries))


class Subscription(NamedTuple):
    """A subscriber's filter, as it was written."""

    id: SubscriptionId
    filter: str
    is_durable: bool


class PeerState:
    """The database of one peer."""

    def __init__(self, directory: Path | None) -> None:
        self._place = "memory" if directory is None else f"'{directory}'"
        try:
            if directory is not None:
                directory.mkdir(parents=True, exist_ok=True)
            path = ":memory:" if directory is None else str(directory / "peer.sqlite")
            self._database = sqlite3.connect(path, isolation_level=None, timeout=0)
            self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = NORMAL")  # a killed process loses nothing; a dead machine may
            self._prepare()
        except sqlite3.OperationalError as error:
            raise PeerError(
                f"the state in {self._place} cannot be opened ({error}); does another peer use it?"
            ) from None
        except sqlite3.DatabaseError as error:
            raise PeerError(f"the state in {self._place} is damaged ({error}); remove it to start anew") from None

    def _prepare(self) -> None:
        database = self._database
        database.execute("BEGIN EXCLUSIVE")
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version == 0:
            for statement in _TABLES.split(";"):
                database.execute(statement)
            database.execute(f"PRAGMA user_version = {VERSION}")
        database.execute("COMMIT")
        if version not in (0, VERSION):
            raise PeerError(
                f"the state in {self._place} is of version {version}, this is {VERSION}; use a fitting build"
            )

    def close(self) -> None:
        self._database.close()

    # -- subscriptions ----------------------------------------------------------------------------------------------

    def subscriptions(self) -> list[Subscription]:
        rows = self._database.execute("SELECT id, filter, is_durable FROM subscriptions ORDER BY id")
        return [Subscription(json.loads(id), filter, bool(durable)) for id, filter, durable in rows]

    def find(self, id: SubscriptionId) -> Subscription | None:
        rows = self._database.execute("SELECT filter, is_durable FROM subscriptions WHERE id = ?", (_key(id),))
        found = rows.fetchone()
        return None if found is None else Subscription(id, found[0], bool(found[1]))

    def keep(self, subscription: Subscription) -> None:
        self._database.execute(
            "INSERT OR REPLACE INTO subscriptions VALUES (?, ?, ?)",
            (_key(subscription.id), subscription.filter, subscription.is_durable),
        )

    def forget(self, id: SubscriptionId) -> None:
        """Forget a subscription and its notices; its registrations stay until they are gone from the ring."""
        self._database.execute("BEGIN")
        self._database.execute("DELETE FROM subscriptions WHERE id = ?", (_key(id),))
        self._database.execute("DELETE FROM notices WHERE id = ?", (_key(id),))
        self._database.execute("COMMIT")

    # -- where filters are stored in the ring ----------------------------------------------------------------------

    def registrations(self, id: SubscriptionId | None = None) -> dict[int, RingRegistration]:
        """By number, oldest first: of one subscription, or all."""
        where, arguments = ("", ()) if id is None else (" WHERE id = ?", (_key(id),))
        rows = self._database.execute(f"SELECT number, body FROM registrations{where} ORDER BY number", arguments)  # noqa: S608
        return {number: _registration(_CODEC.decode(body)) for number, body in rows}

    def add_registration(self, registration: RingRegistration) -> int:
        """Before it is stored in the ring, so that it can be taken out again whatever happens. Its number."""
        clauses = tuple(SavedClause(clause, tuple(runs.items())) for clause, runs in registration.clauses)
        saved = SavedRegistration(registration.subscription, str(registration.address), registration.version, clauses)
        row = (_key(registration.subscription), _CODEC.encode(saved))
        number = self._database.execute("INSERT INTO registrations (id, body) VALUES (?, ?)", row).lastrowid
        assert number is not None
        return number

    def drop_registration(self, number: int) -> None:
        self._database.execute("DELETE FROM registrations WHERE number = ?", (number,))

    # -- notices ----------------------------------------------------------------------------------------------------

    def add_notice(self, id: SubscriptionId, event: str) -> int:
        """Keep a notice until it is taken. Its number; numbers only grow."""
        insert = "INSERT INTO notices (id, event) VALUES (?, ?)"
        number = self._database.execute(insert, (_key(id), event)).lastrowid
        assert number is not None
        if number % 1000 == 0:
            self._database.execute(
                "DELETE FROM notices WHERE id = ?1 AND number <= "
                "(SELECT number FROM notices WHERE id = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2)",
                (_key(id), MAX_NOTICES),
            )
        return number

    def notices(self, id: SubscriptionId) -> list[tuple[int, str]]:
        """Those that have not been taken, oldest first."""
        rows = self._database.execute("SELECT number, event FROM notices WHERE id = ? ORDER BY number", (_key(id),))
        return rows.fetchall()

    def take_notices(self, id: SubscriptionId, number: int) -> None:
        """They have arrived, up to this one."""
        most = min(max(number, 0), 2**63 - 1)  # what SQLite can hold: the number is a client's
        self._database.execute("DELETE FROM notices WHERE id = ? AND number <= ?", (_key(id), most))

    # -- the ring as it was -----------------------------------------------------------------------------------------

    def save_ring(self, neighbours: list[str], entries: tuple[Entry, ...]) -> None:
        """Whom to ask for the way back, and what the lists hold."""
        body = _CODEC.encode(SavedEntries(int(time.time()), entries))
        self._database.execute("BEGIN")
        self._database.execute("INSERT OR REPLACE INTO facts VALUES ('neighbours', ?)", (json.dumps(neighbours),))
        self._database.execute("INSERT OR REPLACE INTO facts VALUES ('entries', ?)", (body,))
        self._database.execute("COMMIT")

    def neighbours(self) -> list[str]:
        """Peers of the ring that this one was in last."""
        found = self._fact("neighbours")
        return [] if found is None else list(json.loads(found))

    def entries(self, most_s: float) -> tuple[Entry, ...]:
        """The lists, if they were saved no longer ago than this."""
        found = self._fact("entries")
        if found is None:
            return ()
        saved: SavedEntries = _CODEC.decode(found)
        return saved.entries if 0 <= time.time() - saved.saved_at <= most_s else ()

    def _fact(self, name: str) -> bytes | None:
        found = self._database.execute("SELECT body FROM facts WHERE name = ?", (name,)).fetchone()
        return None if found is None else found[0]


def _key(id: SubscriptionId) -> str:
    """7 and '7' are different ids."""
    return json.dumps(id)


def _registration(saved: SavedRegistration) -> RingRegistration:
    clauses = tuple((clause, dict(runs)) for clause, runs in saved.clauses)
    return RingRegistration(saved.subscription, saved.address, saved.version, clauses)
