"""Random filters over the whole table of functions mean what Spark SQL says; `python -m tests.oracle.run` tries many more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.examples import scaled
from tests.oracle.run import compare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]

FILTERS, EVENTS = 50, 100


@pytest.mark.parametrize("seed", range(1000, 1000 + scaled(1)))
def test_random_filters_mean_what_spark_says(spark: SparkSession, seed: int) -> None:
    """Every pair of filter and event on which Spark gives an answer has the same here."""
    report = compare(spark, FILTERS, EVENTS, seed)
    assert not report.differences, "\n\n".join(report.differences[:3])
    assert report.counts["compared"] >= 0.6 * FILTERS, report.counts
