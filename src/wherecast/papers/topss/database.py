"""Matching by a database (TOPSS, section 4): subscriptions are tables, and a statement finds those that match.

Theory of operation
-------------------
Both formulations of the paper count: a subscription matches when as many of its predicates hold as it has.

- *Sequential search* (4.1) keeps every predicate of every subscription in one table, subs(sid, attr, op, val). The
  statement compares them all with the event, groups those that hold by subscription, and compares the size of each group
  with the number of predicates, which it counts too.
- *Predicate grouping* (4.2) stores each distinct predicate once, preds(pid, attr, op, val); subs_preds(sid, pid) says who
  uses it and subs(sid, cnt) how many each subscription has. Comparisons are few; the association decides the time.

The paper generates one statement for each event. Here the events are a relation as well and one statement serves a batch,
64 events to a word (see `database_relations`): a predicate that holds for some event of the word is one row with 64 bits,
so joining and grouping cost the same for 64 events as for one. A group is complete when its count is right, and the AND
of its bits says for which events. A batch is cut only where its groups would not fit in memory.

The comparison `val = x` is a join of its own, which a database answers by hashing (attr, val); the other operators are hashed
by attribute and compared behind. For the handful of rows that a word of events has, that is faster than the
range joins that DuckDB offers (docs/papers/database.md has the times).

The tables are the whole state. A snapshot holds the rows of the first formulation, and opening it fills the tables again.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from typing import Any, ClassVar, Self

import numpy as np

from wherecast.bench.connections import Columns, Database, open_database
from wherecast.errors import MatcherError
from wherecast.index.bounds import StoredArrays
from wherecast.index.boxes import Boxes, EventCodes
from wherecast.index.packed import PackedBoxes
from wherecast.kernels.arrays import Ints
from wherecast.matchers.protocol import Arrays, Hits, Matcher
from wherecast.papers.topss.database_predicates import PredicateTable
from wherecast.papers.topss.database_relations import (
    ABOVE,
    BELOW,
    BETWEEN,
    EQUAL,
    UNEQUAL,
    WORD,
    PredicateRows,
    event_rows,
    hits_of_words,
    predicate_rows,
)

#: Groups of (word, subscription) that one statement may form; twice as many take more than twice the time.
_GROUPS = 2_000_000

#: Operator -> when the value w.val of an event satisfies the predicate p. NULL, code 0, is not a value.
_CONDITIONS = {
    EQUAL: "w.val = p.val",
    UNEQUAL: "w.val <> p.val AND w.val > 0",
    BELOW: "w.val < p.val AND w.val > 0",
    ABOVE: "w.val > p.val",
    BETWEEN: "w.val BETWEEN p.val AND p.high",
}


def _held(table: str, key: str) -> str:
    """The beginning of a statement: `held` has the predicates of a table that hold, with the events they hold for."""
    joins = "\n    UNION ALL ".join(
        f"SELECT {key}, word, bits FROM words w JOIN {table} p ON w.attr = p.attr AND {condition} WHERE p.op = {op}"  # noqa: S608 - our own names
        for op, condition in _CONDITIONS.items()
    )
    return f"""
WITH words AS (SELECT word, attr, val, bit_or(bits) AS bits FROM events GROUP BY word, attr, val),
held AS (SELECT word, {key}, bit_or(bits) AS bits FROM (
    {joins}) AS satisfied GROUP BY word, {key})"""  # noqa: S608


class DatabaseMatcher(Matcher):
    """What the formulations share: the batch, the ids, the stored form."""

    name: ClassVar[str]
    tables: ClassVar[dict[str, str]]  # table -> columns
    query: ClassVar[str]  # reads `events`, answers with word, sid, bits
    dump: ClassVar[str]  # answers with the columns of PredicateRows

    def __init__(self, rows: PredicateRows, url: str | None = None) -> None:
        self._database: Database = open_database(url)
        self._database.run([f"CREATE TABLE {table} ({columns})" for table, columns in self.tables.items()])
        self._changing = threading.Lock()
        self._live = np.zeros(int(rows.sid.max(initial=-1)) + 1, bool)  # by clause id
        self._live[rows.sid] = True
        self._add(rows)

    @classmethod
    def build(
        cls,
        boxes: Boxes,
        sample: EventCodes | None = None,  # noqa: ARG003  # databases plan by their own statistics
        weights: Ints | None = None,  # noqa: ARG003
        url: str | None = None,
    ) -> Self:
        """Fill the tables: in PostgreSQL at `url` or at WHERECAST_DATABASE_URL, in DuckDB without either."""
        return cls(predicate_rows(boxes, np.arange(boxes.n_clauses, dtype=np.int32)), url)

    @abstractmethod
    def _add(self, rows: PredicateRows) -> None:
        """Store the predicates of new clauses."""

    @abstractmethod
    def _drop(self, gone: Columns) -> None:
        """Delete the clauses of the relation gone(sid)."""

    # -- matching -------------------------------------------------------------------------------------------------

    def match(self, events: EventCodes) -> Hits:
        step = self._step()
        parts = [self._match_some(events, first, step) for first in range(0, events.n_events, step)]
        counts = np.concatenate([np.zeros(1, np.int64), *(np.diff(part.event_ptr) for part in parts)])
        return Hits(np.cumsum(counts), np.concatenate([np.zeros(0, np.int32), *(part.clause_ids for part in parts)]))

    def _match_some(self, events: EventCodes, first: int, step: int) -> Hits:
        end = min(first + step, events.n_events)
        found = self._database.fetch(self.query, events=event_rows(events, first, end)._asdict())
        return hits_of_words(found["word"], found["sid"].astype(np.int32), found["bits"], end - first)

    def _step(self) -> int:
        """Events of one statement."""
        return WORD * max(1, _GROUPS // max(1, self._live.size))

    # -- changes --------------------------------------------------------------------------------------------------

    def insert(self, boxes: Boxes) -> Ints:
        with self._changing:
            free = np.flatnonzero(~self._live)[: boxes.n_clauses]
            fresh = np.arange(self._live.size, self._live.size + boxes.n_clauses - free.size)
            sids = np.concatenate((free, fresh)).astype(np.int32)
            self._add(predicate_rows(boxes, sids))
            live = np.append(self._live, np.zeros(fresh.size, bool))
            live[sids] = True
            self._live = live
        return sids

    def remove(self, clause_ids: Ints) -> None:
        with self._changing:
            known = (clause_ids >= 0) & (clause_ids < self._live.size)
            known[known] = self._live[clause_ids[known]]
            if not known.all():
                raise MatcherError(f"no clause {int(clause_ids[~known][0])} to remove; nothing was removed")
            self._drop({"sid": np.unique(clause_ids)})
            self._live[clause_ids] = False

    # -- the stored form ------------------------------------------------------------------------------------------

    def arrays(self) -> Arrays:
        """The rows of sequential search, whichever formulation this is."""
        found = self._database.fetch(self.dump)
        return {name: found[name].astype(np.int32) for name in PredicateRows._fields}

    @classmethod
    def check(cls, arrays: Arrays, boxes: PackedBoxes, weights: Ints | None) -> None:  # noqa: ARG003
        stored = StoredArrays(arrays, f"matcher {cls.name!r}")
        sid = stored.column("sid", np.int32)
        stored.within(sid, 0, boxes.n_clauses, "sid")
        for name in PredicateRows._fields:
            stored.column(name, np.int32, size=sid.size)

    @classmethod
    def from_arrays(cls, arrays: Arrays, boxes: PackedBoxes | None = None) -> Self:  # noqa: ARG003 - it keeps its own
        """Fill the tables again."""
        return cls(PredicateRows(**{name: arrays[name] for name in PredicateRows._fields}))

    def stats(self) -> dict[str, Any]:
        sizes = {t: int(self._database.fetch(f"SELECT count(*) AS n FROM {t}")["n"][0]) for t in self.tables}  # noqa: S608
        return {
            "matcher": self.name,
            "database": self._database.title,
            "clauses": int(self._live.sum()),
            "rows": sizes,
            "bytes": self._database.nbytes(),
        }

    def explain_plan(self) -> str:
        """The sizes of the tables and the statement."""
        facts = self.stats()
        sizes = ", ".join(f"{table} {rows:,} rows" for table, rows in facts["rows"].items())
        return f"{facts['database']}: {sizes}; one statement for {self._step()} events\n{self.query.strip()}"

    def explain_statement(self) -> str:
        """How the database plans the statement, in its own words."""
        event = EventCodes(np.zeros((1, 0), np.int32), np.zeros(1, np.int64), np.zeros(0, np.int32))
        return self._database.explain(self.query, events=event_rows(event, 0, 1)._asdict())


class GroupingMatcher(DatabaseMatcher):
    """Predicate grouping (4.2): each distinct predicate once."""

    name: ClassVar[str] = "database"
    tables: ClassVar = {
        "subs": "sid INTEGER, cnt INTEGER",
        "preds": "pid INTEGER, attr INTEGER, op INTEGER, val INTEGER, high INTEGER",
        "subs_preds": "sid INTEGER, pid INTEGER",
    }
    query: ClassVar[str] = f"""{_held("preds", "pid")},
counts AS (SELECT word, sid, count(*) AS n, bit_and(bits) AS bits FROM held JOIN subs_preds USING (pid) GROUP BY word, sid)
SELECT word, sid, bits FROM counts JOIN subs USING (sid) WHERE n = cnt AND bits <> 0"""  # noqa: S608 - our own names
    dump: ClassVar[str] = (
        "SELECT sid, pid AS part, attr, op, val, high FROM subs_preds JOIN preds USING (pid) ORDER BY sid, part, val"
    )

    def __init__(self, rows: PredicateRows, url: str | None = None) -> None:
        self._predicates = PredicateTable()
        super().__init__(rows, url)

    def _add(self, rows: PredicateRows) -> None:
        uses, preds = self._predicates.number(rows)
        first = np.flatnonzero(np.diff(uses.sid, prepend=-1))
        try:
            self._database.run(
                [
                    "INSERT INTO subs SELECT sid, cnt FROM new_subs",
                    "INSERT INTO preds SELECT pid, attr, op, val, high FROM new_preds",
                    "INSERT INTO subs_preds SELECT sid, pid FROM new_uses",
                    *(f"ANALYZE {table}" for table in self.tables),
                ],
                new_subs={"sid": uses.sid[first], "cnt": np.diff(first, append=uses.sid.size)},
                new_preds=preds._asdict(),
                new_uses=uses._asdict(),
            )
        except MatcherError:
            self._predicates.release(uses.pid)
            raise

    def _drop(self, gone: Columns) -> None:
        used = self._database.fetch("SELECT pid FROM subs_preds WHERE sid IN (SELECT sid FROM gone)", gone=gone)[
            "pid"
        ].astype(np.int32)
        unused = self._predicates.unused_without(used)
        self._database.run(
            [
                "DELETE FROM subs WHERE sid IN (SELECT sid FROM gone)",
                "DELETE FROM subs_preds WHERE sid IN (SELECT sid FROM gone)",
                "DELETE FROM preds WHERE pid IN (SELECT pid FROM unused)",
            ],
            gone=gone,
            unused={"pid": unused},
        )
        self._predicates.release(used)


class SequentialMatcher(DatabaseMatcher):
    """Sequential search (4.1): every predicate of every subscription."""

    name: ClassVar[str] = "database-sequential"
    tables: ClassVar = {
        "subs": "sid INTEGER, part INTEGER, attr INTEGER, op INTEGER, val INTEGER, high INTEGER",
    }
    query: ClassVar[str] = f"""{_held("subs", "sid, part")},
counts AS (SELECT word, sid, count(*) AS n, bit_and(bits) AS bits FROM held GROUP BY word, sid),
sizes AS (SELECT sid, count(DISTINCT part) AS cnt FROM subs GROUP BY sid)
SELECT word, sid, bits FROM counts JOIN sizes USING (sid) WHERE n = cnt AND bits <> 0"""  # noqa: S608 - our own names
    dump: ClassVar[str] = "SELECT sid, part, attr, op, val, high FROM subs ORDER BY sid, part, val"

    def _add(self, rows: PredicateRows) -> None:
        self._database.run(
            ["INSERT INTO subs SELECT sid, part, attr, op, val, high FROM added", "ANALYZE subs"], added=rows._asdict()
        )

    def _drop(self, gone: Columns) -> None:
        self._database.run(["DELETE FROM subs WHERE sid IN (SELECT sid FROM gone)"], gone=gone)
