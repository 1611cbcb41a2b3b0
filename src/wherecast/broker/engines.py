"""The engine of a space: subscriptions by number, at a version of the space; its snapshot beside the store.

A snapshot is written under a name of its own, and then a small file that points to it is replaced. The pointer tells the
version: what has changed since is read from the store. Where a snapshot is missing, damaged, of another schema or from the
time before tombstones were purged, the engine is built from the store; nobody has to do anything.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection

from wherecast.broker.core import EventsIn, FoundMatches, StoredSubscription, SubscriptionState
from wherecast.broker.store import subscriptions
from wherecast.broker.store.spaces import StoredSpace
from wherecast.engine.engine import Engine
from wherecast.errors import EventError, WherecastError
from wherecast.language.events.events import EventBatch, EventReader
from wherecast.language.events.names import NameCheck
from wherecast.language.events.schema import Schema
from wherecast.language.filters.compile import Compiler
from wherecast.language.syntax.limits import Limits

_log = logging.getLogger(__name__)

_POINTER = "current.json"


class SpaceEngine:
    """The engine of a space at a version. Whoever changes it holds `changing`; matching needs no lock."""

    def __init__(self, engine: Engine, schema_version: int, version: int, limits: Limits) -> None:
        self.engine = engine
        self.schema_version = schema_version
        self.version = version
        self.changing = threading.RLock()
        self.compiler = Compiler(engine.schema, limits)  # of its own: checking filters does not wait for changes
        self.unsaved = 0  # changes since the last snapshot
        #: ("subscriber", name) or ("id", name) of those that feeds follow, each with how often its subscriptions changed
        self.marks: dict[tuple[str, str], int] = {}
        #: Whether some attribute holds more digits than a float.
        self.is_exact = any("decimal" in attribute.type_name for attribute in engine.schema.attributes)
        self._reader = EventReader(engine.schema, range(len(engine.schema)), NameCheck(engine.schema))

    @property
    def schema(self) -> Schema:
        return self.engine.schema

    def check(self, events: Sequence[Mapping[str, object]]) -> tuple[Sequence[int], list[EventError]]:
        """The rows of the events that fit the schema, with all attributes and not only those of filters, and why others do not."""
        if len(events) == 1:  # without Arrow, which takes ten times as long for one
            try:
                self._reader.read(events[0])
            except EventError as error:
                return [], [error]
            return [0], []
        batch = EventBatch.read(self.schema, list(events), on_error="skip")
        return batch.rows.tolist(), batch.errors

    def find(self, events: Sequence[EventsIn]) -> FoundMatches:
        """Match events of several publishers as one batch."""
        values = [value for part in events for value in part.values]
        if len(values) == 1:
            with suppress(EventError):  # as a batch it is refused with its row, and the group goes on
                numbers = np.array(self.engine.match(values[0]), np.int64)
                return FoundMatches(np.zeros(numbers.size, np.int64), numbers, [])
        matches = self.engine.match_batch(values, on_error="skip")
        rows, numbers = matches.pairs()
        return FoundMatches(rows, numbers.astype(np.int64), matches.errors)

    def apply(self, rows: Iterable[StoredSubscription], version: int) -> None:
        """Take over changed subscriptions; to take one over again changes nothing."""
        puts, gone = [], []
        for row in rows:
            if row.state is SubscriptionState.ACTIVE:
                puts.append((row.number, row.filter))
            else:
                gone.append(row.number)
            for mark in (("subscriber", row.subscriber), ("id", row.id)):
                if mark in self.marks:
                    self.marks[mark] += 1
        with self.changing:
            _remove(self.engine, gone)
            _put(self.engine, puts)
            self.version = version
            self.unsaved += len(puts) + len(gone)

    # -- from the store -----------------------------------------------------------------------------------------------

    @classmethod
    def load(cls, connection: Connection, space: StoredSpace, folder: Path | None, limits: Limits) -> SpaceEngine:
        """The engine of a space, from its snapshot or else from the store."""
        found = None if folder is None else cls._open(connection, space, folder, limits)
        if found is None:
            found = cls.build(connection, space, limits)
        found.follow(connection, space.tenant, space.space)
        return found

    @classmethod
    def build(cls, connection: Connection, space: StoredSpace, limits: Limits) -> SpaceEngine:
        """Compile all subscriptions of the store. `space` was read before, so what is missing is found by `follow`."""
        engine = Engine(Schema.from_json(space.schema), limits=limits)
        for rows in subscriptions.active_filters(connection, space.tenant, space.space):
            _put(engine, [(row.number, row.filter) for row in rows])
        engine.merge(everything=True)
        found = cls(engine, space.schema_version, space.version, limits)
        found.unsaved = len(engine)
        return found

    def follow(self, connection: Connection, tenant: str, space: int, reached: int = 0) -> int:
        """Take over what changed in the store since; returns how many rows that were.

        `reached` is the version of the store, for a caller who holds the space: the row of the last change may be purged.
        """
        with self.changing:
            rows = subscriptions.changed_since(connection, tenant, space, self.version)
            if rows:
                self.apply(rows, max(row.version for row in rows))
            self.version = max(self.version, reached)
        return len(rows)

    @classmethod
    def _open(cls, connection: Connection, space: StoredSpace, folder: Path, limits: Limits) -> SpaceEngine | None:
        pointer = folder / str(space.space) / _POINTER
        if not pointer.exists():
            return None
        try:
            told = json.loads(pointer.read_text())
            purged = subscriptions.purged_to(connection, space.tenant, space.space)
            if [told["created_ms"], told["schema_version"]] != [space.created_ms, space.schema_version]:
                return None
            if not purged <= told["version"] <= space.version:
                return None
            engine = Engine.open(pointer.parent / told["folder"], limits=limits)
            if engine.schema != Schema.from_json(space.schema):
                return None
            return cls(engine, space.schema_version, told["version"], limits)
        except (WherecastError, OSError, ValueError, KeyError, TypeError) as error:
            _log.warning("snapshot=damaged space=%s reason=%s; it is built anew from the store", space.name, error)
            return None

    def save(self, space: StoredSpace, folder: Path) -> None:
        """Write a snapshot. Changes may go on: those that it has already are taken over again when it is opened."""
        version, unsaved = self.version, self.unsaved
        home = folder / str(space.space)
        home.mkdir(parents=True, exist_ok=True)
        name = f"v{version}-{os.getpid()}"
        self.engine.save(home / name)
        told = {
            "folder": name,
            "version": version,
            "schema_version": self.schema_version,
            "created_ms": space.created_ms,
        }
        new = home / f"{_POINTER}.{os.getpid()}"
        with new.open("w") as file:
            file.write(json.dumps(told))
            file.flush()
            os.fsync(file.fileno())
        new.replace(home / _POINTER)
        self.unsaved -= unsaved
        for old in home.iterdir():
            if old.is_dir() and old.name != name:
                shutil.rmtree(old, ignore_errors=True)


def _put(engine: Engine, puts: list[tuple[int, str]]) -> None:
    if len(puts) == 1:
        try:
            engine.subscribe(*puts[0], replace=True)
        except WherecastError as error:
            _say_refused(error, puts[0][1])
    elif puts:
        table = pa.table({"id": pa.array([p[0] for p in puts], pa.int64()), "filter": pa.array([p[1] for p in puts])})
        for row in engine.subscribe_many(table, replace=True).quarantined:
            _say_refused(row.error, puts[row.row][1])


def _say_refused(error: WherecastError, filter: str) -> None:
    """It was checked when it was accepted, so this is our mistake: say so, and serve the others."""
    _log.error("refused=%s filter=%r; an accepted filter does not compile", error, filter)


def _remove(engine: Engine, gone: list[int]) -> None:
    if len(gone) == 1:
        if gone[0] in engine:
            engine.unsubscribe(gone[0])
    elif gone:
        engine.apply(Engine(engine.schema), removed=np.array(gone, np.int64))
