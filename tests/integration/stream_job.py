"""What streams that are killed are given to do, and what must have come of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import httpx
import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from wherecast.engine.engine import Engine

SCHEMA = {"symbol": "string", "price": "double"}
SYMBOLS = [f"S{i}" for i in range(12)]
EVENTS = 20
#: Every event satisfies subscription 0, so that every event shows.
SUBSCRIPTIONS = [
    (0, "price > 0 OR symbol IS NULL"),
    *((i, f"symbol = '{SYMBOLS[i % 12]}' AND price < {i}") for i in range(1, 60)),
]

#: Changes are applied at the beginning of every third batch.
CHANGE_EVERY = 3
NOT_COMMITTED = "done but not committed"
#: Where the driver dies on the way of a batch into its sink. Both lakes write a batch in one step of their own.
INTO_LAKE = ["before the append", "mid-append", "appended"]
INTO = {
    "parquet": ["before the write", "rows written", "rows durable", "manifest created", "batch in sight"],
    "drafts": ["drafts written", "rows written", "manifest created"],
    "delta": INTO_LAKE,
    "iceberg": INTO_LAKE,
    "jdbc": ["staging filled", "rows and key in"],
    "broker": ["piece handed over", "all handed over"],
    "foreach": ["function begins", "function half done", "function ends"],
}
#: Elsewhere: on the way to the version of a batch, while it is matched, while changes become a version. `pin drafted` is on disk only.
PINNING = ["before the pin", "pin drafted", "after the pin"]
CHANGING = ["change written", "change committed"]
MATCHING = "mid-match"
#: Dead letters go into a sink of the same kind, those of a broker into Parquet; Spark writes them.
INTO_DEAD = {**INTO, "broker": INTO["parquet"], "drafts": INTO["parquet"]}
POINTS = {
    sink: [*PINNING, *CHANGING, MATCHING, *into, *(f"dead {point}" for point in INTO_DEAD[sink]), NOT_COMMITTED]
    for sink, into in INTO.items()
}


class Cell(NamedTuple):
    """What is killed: a stream into a sink, with index, checkpoint and files on a store, by a plan."""

    sink: str
    store: str = "disk"
    strategy: str = "broadcast"


def every_point(cell: Cell) -> list[str]:
    """All points of a cell, one for each batch from 1 on; changes are applied in every third batch only."""
    changing = [point for point in POINTS[cell.sink] if point in CHANGING]
    others = [p for p in POINTS[cell.sink] if p not in CHANGING and (p != "pin drafted" or cell.store == "disk")]
    for number, point in enumerate(changing, 1):
        others.insert(CHANGE_EVERY * number - 1, point)
    return others


#: `make kills`: every sink on every store dies at every point, and plans with servers on the way into a sink.
MATRIX = {
    **{cell: every_point(cell) for sink in INTO for store in ("disk", "s3") for cell in [Cell(sink, store)]},
    Cell("parquet", strategy="event-space"): INTO["parquet"],
    Cell("foreach", strategy="event-space"): INTO["foreach"],
}
del MATRIX[Cell("foreach", "s3")]  # the function of the test writes files on disk
#: Its share in `make test`: each point on the way into a sink once, over all plans, and one on S3.
SHARE = {
    Cell("parquet"): ["rows written", "manifest created", NOT_COMMITTED],
    Cell("parquet", strategy="event-space"): ["before the write", "rows durable", "batch in sight"],
    Cell("parquet", "s3"): ["manifest created"],
    Cell("drafts"): INTO["drafts"],
    Cell("drafts", "s3"): ["drafts written"],
    Cell("jdbc"): INTO["jdbc"],
    Cell("delta"): ["appended"],
    Cell("iceberg"): ["appended"],
    Cell("broker"): INTO["broker"],
    Cell("foreach"): ["function half done"],
    Cell("foreach", strategy="event-space"): ["function begins", "function ends"],
}


def make_events(batch: int, rng: np.random.Generator) -> pa.Table:
    """The events of one file; the first two are poison."""
    return pa.table(
        {
            "row": np.arange(EVENTS) + batch * EVENTS,
            "symbol": rng.choice(SYMBOLS, EVENTS),
            "price": np.round(rng.uniform(0.01, 70, EVENTS), 2),
            "__wherecast_error": pa.array(["poison"] * 2 + [None] * (EVENTS - 2), pa.string()),
        }
    )


def make_job(folder: Path, cell: Cell, batches: int) -> None:
    """Changes come at every sequence number; each rule has another owner than the one before."""
    rng = np.random.default_rng(7)
    ids, filters = zip(*SUBSCRIPTIONS, strict=True)
    owners = [f"first {id}" for id in ids]
    pq.write_table(pa.table({"id": ids, "filter": filters, "owner": owners}), folder / "subscriptions.parquet")
    changes = [
        (n, "delete", 1 + n % 59, None, None)
        if n % 4 == 0
        else (
            n,
            "upsert",
            0 if n % 4 == 1 else 100 + n % 30,
            SUBSCRIPTIONS[0][1] if n % 4 == 1 else f"symbol = '{SYMBOLS[n % 12]}'",
            f"by {n}",
        )
        for n in range(1, batches + 1)
    ]
    names = ("sequence", "op", "id", "filter", "owner")
    pq.write_table(
        pa.table({name: [c[i] for c in changes] for i, name in enumerate(names)}), folder / "changes.parquet"
    )
    (folder / "events").mkdir()
    for batch in range(batches):
        pq.write_table(make_events(batch, rng), folder / "events" / f"{batch:03d}.parquet")
    (folder / "strategy").write_text(cell.strategy)
    (folder / "sink").write_text(cell.sink)


def read_output(folder: Path, name: str) -> pa.Table:
    """What a sink has, with the number of the batch in `batch_id`."""
    if (folder / "exported").exists():  # of a lake, by the driver
        table = ds.dataset(folder / "exported" / name, format="parquet").to_table()
    elif (folder / "broker").exists() and name == "matches":
        table = pa.Table.from_pylist(read_feed(*(folder / "broker").read_text().split()))
    elif (folder / "database").exists():
        with psycopg.connect((folder / "database").read_text(), row_factory=psycopg.rows.dict_row) as connection:
            table = pa.Table.from_pylist(connection.execute(f"SELECT * FROM {name}").fetchall())
    else:
        return ds.dataset(folder / name, format="parquet", partitioning="hive").to_table()
    logs = [file for file in (folder / "checkpoint" / "sources" / "0").iterdir() if not file.name.startswith(".")]
    taken = [json.loads(line) for log in logs for line in log.read_text().splitlines()[1:]]
    batch_of = {int(Path(entry["path"]).stem): entry["batchId"] for entry in taken}
    return table.append_column("batch_id", pa.array([batch_of[row // EVENTS] for row in table["row"].to_pylist()]))


def read_feed(url: str, token: str) -> list[dict[str, object]]:
    """The matches in the log of a broker's space: the values of each event, with one of its subscriptions."""
    rows: list[dict[str, object]] = []
    with httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=60) as http:
        left = http.get(url).json()["next_position"]
        with http.stream("GET", f"{url}/feed?from=earliest") as answer:
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    told = json.loads(line[6:])
                    rows += [{**told["data"], "subscription": int(id)} for id in told["subscriptions"]]
                    left -= 1
                if not left:
                    return rows
    raise AssertionError(f"{left} events are missing")


def check_matches(
    folder: Path,
    pins: Mapping[int, int],
    subscriptions_at: Callable[[int], list[tuple[int, str]]],
    owners_at: Callable[[int], dict[int, str]] | None = None,
) -> set[int]:
    """Every event of every file is there, once per subscription of the version that its batch pinned; versions used.

    So is the owner of each subscription, where there are owners.
    """
    events = ds.dataset(folder / "events", format="parquet").to_table()
    place = {row: i for i, row in enumerate(events["row"].to_pylist())}
    found, dead = read_output(folder, "matches"), read_output(folder, "dead")
    versions_used, delivered = set(), Counter[int]()
    for batch in sorted(set(found["batch_id"].to_pylist())):
        mine = found.filter(pa.compute.equal(found["batch_id"], batch))
        pairs = Counter(zip(mine["row"].to_pylist(), mine["subscription"].to_pylist(), strict=True))
        engine = Engine(SCHEMA)
        engine.subscribe_many(subscriptions_at(pins[batch]))
        rows = sorted(set(mine["row"].to_pylist()))
        part = events.take(pa.array([place[row] for row in rows]))
        event_rows, ids = engine.match_batch(part).pairs()
        assert pairs == Counter((rows[e], i) for e, i in zip(event_rows.tolist(), ids.tolist(), strict=True)), batch
        if owners_at is not None:
            owners = owners_at(pins[batch])
            assert mine["owner"].to_pylist() == [owners[i] for i in mine["subscription"].to_pylist()], batch
        versions_used.add(pins[batch])
        delivered.update(rows)
    # Every good event matches, so each one shows in the batch that had it; none may show in two.
    poison = {row for row, error in zip(place, events["__wherecast_error"].to_pylist(), strict=True) if error}
    assert delivered == Counter(row for row in place if row not in poison)
    assert Counter(dead["row"].to_pylist()) == Counter(poison)
    assert set(dead["error"].to_pylist()) == {"poison"}
    return versions_used
