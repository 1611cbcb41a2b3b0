"""What arrives while a stream is killed over and over: files of events and two logs of changes with one sequence."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.integration.stream_job import SYMBOLS, make_events

#: Files that may wait to be worked off.
_WAITING = 4
Row = tuple[int | None, str, int | None, str | None]
_FIELDS = pa.schema([("sequence", pa.int64()), ("op", pa.string()), ("id", pa.int64()), ("filter", pa.string())])


def is_good(row: Row) -> bool:
    """Whether a change can be applied; its number may still be that of another one."""
    sequence, op, id, filter = row
    return sequence is not None and id is not None and (op == "delete" or (op == "upsert" and "symbol" in str(filter)))


class Producer:
    """Writes files as fast as they are worked off."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self._rng, self._values = random.Random(seed), np.random.default_rng(seed)
        self._number = 0
        self.logs: dict[str, list[list[Row]]] = {"a": [], "b": []}
        self.events = 0
        for name in ("events", "changes-a", "changes-b", "done-b", "drafts"):
            (folder / name).mkdir()

    def step(self) -> None:
        """Write what is due."""
        folder = self.folder
        if self.events - _count(folder / "matches", "batch_id=*") < _WAITING:
            self._put("events", self.events, make_events(self.events, self._values))
            self.events += 1
        done = {"a": _committed(folder / "checkpoint-changes"), "b": _count(folder / "done-b", "*")}
        for name, log in self.logs.items():
            if len(log) - done[name] < _WAITING:
                rows = self._rows(log)
                columns = zip(*rows, strict=True)
                self._put(f"changes-{name}", len(log), pa.table(list(map(list, columns)), schema=_FIELDS))
                log.append(rows)

    def _put(self, name: str, number: int, table: pa.Table) -> None:
        """A file comes into sight whole."""
        draft = self.folder / "drafts" / name
        pq.write_table(table, draft)
        draft.rename(self.folder / name / f"{number:05d}.parquet")

    def _rows(self, log: list[list[Row]]) -> list[Row]:
        rng = self._rng
        rows = [self._change() for _ in range(rng.randint(1, 5))]
        if rng.random() < 0.3:
            rows.append(rows[0])  # twice in one set
        if rng.random() < 0.3:
            number, _, id, _ = self._change()
            rows += [(number, "upsert", id, f"symbol = '{symbol}'") for symbol in SYMBOLS[:2]]  # two with one number
        if rng.random() < 0.4:
            number, _, id, _ = self._change()
            bad: list[Row] = [
                (number, "upsert", id, "prise > 1"),
                (number, "drop", id, None),
                (None, "delete", id, None),
            ]
            rows.append(rng.choice(bad))
        if log and rng.random() < 0.3:
            again = [row for row in rng.choice(log) if is_good(row)]
            rows += [row for row in again if sum(other[0] == row[0] for other in again) == 1][:2]
        rng.shuffle(rows)
        return rows

    def _change(self) -> Row:
        self._number += 1
        rng: Any = self._rng
        if rng.random() < 0.3:
            return self._number, "delete", rng.choice([rng.randint(1, 59), rng.randint(100, 129)]), None
        filter = f"symbol = '{rng.choice(SYMBOLS)}' AND price < {rng.randint(1, 80)}"
        return self._number, "upsert", rng.choice([rng.randint(1, 59), rng.randint(100, 129)]), filter


def _count(folder: Path, pattern: str) -> int:
    return sum(1 for _ in folder.glob(pattern))


def _committed(checkpoint: Path) -> int:
    """Batches that Spark has committed; it forgets old ones."""
    return max((int(file.name) + 1 for file in (checkpoint / "commits").glob("[0-9]*")), default=0)
