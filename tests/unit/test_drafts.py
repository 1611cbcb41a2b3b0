"""Files that tasks write: bounded row groups, dictionaries where values repeat, and nothing in sight that a task has not named."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from wherecast.spark.columns import FILE
from wherecast.spark.sinks import drafts as drafts_module
from wherecast.spark.sinks.drafts import Draft, Drafts, file_schema, repeating
from wherecast.spark.sinks.parquet import Parquet
from wherecast.spark.store import Store
from wherecast.spark.stream import Batch

COLUMNS = StructType([StructField("host", StringType()), StructField("ids", ArrayType(LongType(), False))])


def write(store: Store, folder: str, n: int, *, codec: str = "snappy") -> str | None:
    """A file of `n` rows, added a hundred at a time."""
    draft = Draft(Drafts(store, folder, codec), file_schema(COLUMNS), 3)
    for start in range(0, n, 100):
        rows = range(start, min(start + 100, n))
        draft.add([pa.array([f"host {row % 7}" for row in rows]), pa.array([[row, row + 1] for row in rows])])
    return draft.close()


def test_row_groups_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task holds no more than a row group, and what it writes is all of it, in its order."""
    monkeypatch.setattr(drafts_module, "_GROUP", 10_000)
    name = write(Store(tmp_path), "a/drafts", 1_234)
    assert name is not None
    assert name.startswith("a/drafts/part-00003-")
    file = pq.ParquetFile(tmp_path / name)
    assert file.num_row_groups > 3
    assert file.read()["ids"].to_pylist() == [[row, row + 1] for row in range(1_234)]


def test_no_rows_no_file(tmp_path: Path) -> None:
    """A task without rows writes nothing and names nothing."""
    assert write(Store(tmp_path), "drafts", 0) is None
    assert not list(tmp_path.iterdir())


def test_dictionaries_are_for_values_that_repeat(tmp_path: Path) -> None:
    """By the values of all batches of a row group; parts of columns have the paths by which Parquet knows them."""
    n = 3_000
    few, many = pa.array(np.arange(n) % 9), pa.array(np.arange(n))
    lists = pa.ListArray.from_arrays(pa.array(np.arange(n + 1, dtype=np.int32)), many)
    maps = pa.MapArray.from_arrays(lists.offsets, few, many)
    struct = pa.StructArray.from_arrays([few, many, pa.array([True] * n)], ["few", "many", "flag"])
    table = pa.table({"few": few, "many": many, "lists": lists, "maps": maps, "struct": struct})
    assert repeating(table) == ["few", "maps.key_value.key", "struct.few"]
    assert repeating(table.schema.empty_table()) == []
    ids = pa.table({"ids": pa.chunked_array([np.arange(800), np.arange(800)])})
    assert repeating(ids) == ["ids"]  # each half has none twice
    name = write(Store(tmp_path), "drafts", 500)
    group = pq.read_metadata(tmp_path / str(name)).row_group(0)
    found = {group.column(i).path_in_schema: group.column(i).has_dictionary_page for i in range(2)}
    assert found == {"host": True, "ids.list.element": True}


def test_only_named_files_are_taken(tmp_path: Path) -> None:
    """Files that failed tasks, or tasks slower than their double, have left beside the named ones never come in sight, and are gone then."""
    sink, store, batch = Parquet(str(tmp_path), written_by="python"), Store(tmp_path), Batch(4, "one", "a")
    sink.goes_on = True
    drafts = Drafts(store, "_attempts", "snappy").of(batch)
    earlier, other = (Drafts(store, "_attempts", "snappy").of(Batch(n, "one", "a")) for n in (3, 5))
    named = [write(store, drafts.folder, n) for n in (10, 0, 20)]
    for strays in (drafts, earlier, other):
        write(store, strays.folder, 99)
    (tmp_path / drafts.folder / "part-00009-cut-short.parquet").write_bytes(b"PAR1")
    told: Any = SimpleNamespace(columns=["host", "ids", FILE])
    told.select = lambda _: SimpleNamespace(collect=lambda: [(name,) for name in named])
    sink.write(told, batch)
    files = list((tmp_path / "batch_id=4").iterdir())
    assert sorted(pq.read_metadata(file).num_rows for file in files) == [10, 20]
    assert [path.name for path in (tmp_path / "_attempts").iterdir()] == [other.folder.split("/")[1]]


def test_no_file_is_named(tmp_path: Path) -> None:
    """One without rows then tells the columns."""
    told: Any = SimpleNamespace(columns=["host", "ids", FILE], drop=lambda _: SimpleNamespace(schema=COLUMNS))
    told.select = lambda _: SimpleNamespace(collect=lambda: [(None,)])
    Parquet(str(tmp_path), written_by="python").write(told, Batch(0, "one", "a"))
    [file] = (tmp_path / "batch_id=0").iterdir()
    assert pq.read_table(file, partitioning=None).schema.names == ["host", "ids"]
    assert b"org.apache.spark.sql.parquet.row.metadata" in pq.read_metadata(file).metadata
