"""What streams that are killed are given to do, and what must have come of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx
import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.dataset as ds

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
#: Where the driver dies: on the way of a batch into its sink, which is between these, and elsewhere; at one point in each batch.
INTO_PARQUET = ["before the write", "rows written", "rows durable", "manifest created", "batch in sight"]
INTO_JDBC = ["staging filled", "rows and key in"]
INTO_LAKE = ["before the append", "mid-append", "appended"]
INTO_BROKER = ["piece handed over", "all handed over"]
INTO_FOREACH = ["function begins", "function half done", "function ends"]
NOT_COMMITTED = "done but not committed"
POINTS = {
    "parquet": [
        *("before the pin", "pin drafted", "change written", "after the pin", "mid-match", "change committed"),
        *INTO_PARQUET,
        *(f"dead {point}" for point in INTO_PARQUET),
        NOT_COMMITTED,
    ],
    "jdbc": [*INTO_JDBC, *(f"dead {point}" for point in INTO_JDBC), NOT_COMMITTED],
    **{kind: [*INTO_LAKE, *(f"dead {point}" for point in INTO_LAKE), NOT_COMMITTED] for kind in ("delta", "iceberg")},
    "broker": [*INTO_BROKER, NOT_COMMITTED],
    "foreach": [*INTO_FOREACH, *(f"dead {point}" for point in INTO_FOREACH), NOT_COMMITTED],
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
