"""A share of the tests on the oldest Spark; `make test-spark-versions` runs whole modules on each version."""

from __future__ import annotations

import pytest
from tests.spark_versions.run import VERSIONS, run_tests

pytestmark = [pytest.mark.spark, pytest.mark.slow]

#: Routed matching with its own repartitioning, and a stream with rule columns that follows a table.
SHARE = (
    "test_spark_match.py::test_equals_the_engine[event-space]",
    "test_spark_rules.py::test_a_stream_has_the_columns_of_its_version",
)


def test_the_oldest_spark() -> None:
    """Matching and streams work on the oldest version that is supported."""
    run = run_tests(VERSIONS[0], ["-n0", "-p", "no:cacheprovider", *(f"tests/integration/{name}" for name in SHARE)])
    assert run.returncode == 0, "see the output above"
