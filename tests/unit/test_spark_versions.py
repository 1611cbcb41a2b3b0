"""Stand-ins for what older versions of Spark lack, as far as they need no Spark; the rest runs on each version."""

from __future__ import annotations

import pyarrow as pa
import pytest

from wherecast.spark import versions
from wherecast.spark.versions import JAVA, SparkVersionError, murmur3, partition_keys, require


@pytest.mark.parametrize(("key", "hashed"), [(0, 933211791), (1, -559580957), (2, 1765031574), (42, 29417773)])
def test_murmur3_is_sparks_hash(key: int, hashed: int) -> None:
    """`SELECT hash(key)` of Spark gives these."""
    assert murmur3(key) == hashed


@pytest.mark.parametrize("n", [1, 2, 3, 50, 257])
def test_each_partition_has_a_key(n: int) -> None:
    """The key of a partition is one that Spark's hash sends there."""
    assert [murmur3(key) % n for key in partition_keys(n)] == list(range(n))


def test_what_has_no_stand_in_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names both versions."""
    monkeypatch.setattr(versions, "spark_version", lambda: (3, 5))
    with pytest.raises(SparkVersionError, match=r"reading JSON needs Spark 4\.0 or later, and this is 3\.5"):
        require("reading JSON", (4, 0))


def test_unknown_versions_are_taken_for_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Spark that comes later starts on any Java that the newest known one starts on."""
    monkeypatch.setattr(versions, "spark_version", lambda: (4, 9))
    assert versions.java_range() == JAVA[max(JAVA)]


def test_zones_are_set_at_every_depth() -> None:
    """Timestamps of older versions come in UTC and get the wanted zone; those without a zone keep none."""
    utc, ntz = pa.timestamp("us", "UTC"), pa.timestamp("us")
    found = versions._in_zone(
        pa.list_(pa.struct([("a", utc), ("b", ntz), ("c", pa.map_(pa.string(), utc))])), "Asia/Tokyo"
    )
    there = pa.timestamp("us", "Asia/Tokyo")
    assert found == pa.list_(pa.struct([("a", there), ("b", ntz), ("c", pa.map_(pa.string(), there))]))
