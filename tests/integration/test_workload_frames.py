"""Subscriptions as a DataFrame: as many as are asked for, the same every time, of the popularity that they should have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from wherecast.bench.workloads.catalogue import find_entry
from wherecast.bench.workloads.form import WorkloadError
from wherecast.bench.workloads.frames import BLOCK, draw_block, subscription_frame
from wherecast.papers.edn.quotes import Quotes
from wherecast.papers.edn.workload import PAPER_MARKET

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def collect(spark: SparkSession, name: str, n: int, partitions: int) -> pa.Table:
    return subscription_frame(spark, name, n, partitions).toArrow().sort_by("id")


@pytest.mark.parametrize("name", ["edn", "stock", "overlay,seed=3"])
def test_the_same_name_gives_the_same_rows_however_they_are_cut(spark: SparkSession, name: str) -> None:
    """Three partitions or five, and with fewer rows the first of them."""
    n = 2 * BLOCK + 1000
    first = collect(spark, name, n, 3)
    assert first.schema.names == ["id", "filter"]
    assert first["id"].to_pylist() == list(range(n))
    assert collect(spark, name, n, 5).equals(first)
    assert collect(spark, name, 1000, 2).equals(first.slice(0, 1000))
    assert first["filter"].slice(BLOCK, BLOCK).combine_chunks().equals(draw_block(name, 1))


@pytest.mark.parametrize("follows", [None, "uniform", "permute7"])
def test_symbols_are_as_popular_as_they_should_be(spark: SparkSession, follows: str | None) -> None:
    """Spark counts subscriptions per symbol; no symbol is off by more than the error of counting allows."""
    n = 200_000
    name = "edn" if follows is None else f"edn-{follows}"
    frame = subscription_frame(spark, name, n, 4)
    counted = frame.selectExpr('substring_index(filter, "\'", 2) AS head').groupBy("head").count().toArrow()
    found = np.zeros(PAPER_MARKET.symbols)
    symbols = [int(head.removeprefix("symbol = 'S")) for head in counted["head"].to_pylist()]
    found[symbols] = counted["count"].to_numpy()
    assert found.sum() == n
    chances = Quotes(PAPER_MARKET, follows, int(find_entry(name)[1]["seed"])).chances
    assert not found[chances == 0].any()
    popular = n * chances >= 20
    if popular.any():
        errors = (found - n * chances)[popular] / np.sqrt(n * chances[popular])
        assert np.abs(errors).max() < 6
    rest = found[~popular].sum(), n * chances[~popular].sum()
    assert abs(rest[0] - rest[1]) <= 6 * np.sqrt(rest[1])


def test_a_workload_that_cannot_be_drawn_in_parts_is_refused_at_once(spark: SparkSession) -> None:
    """Before a task runs."""
    with pytest.raises(WorkloadError, match="drawn as a whole"):
        subscription_frame(spark, "topss-w0", 10)
    with pytest.raises(WorkloadError, match="no workload 'nothing'"):
        subscription_frame(spark, "nothing", 10)
