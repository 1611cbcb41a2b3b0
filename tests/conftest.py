"""What all tests share: the profile of Hypothesis and one Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests import examples  # noqa: F401 - loads the profile before the first property is declared
from tests.spark_settings import INTERPRETED, SETTINGS, start_jvms_quickly

from wherecast.matchers.registry import MATCHERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

start_jvms_quickly()

#: The matchers of the papers.
PAPERS = MATCHERS.keys() - {"adaptive", "scan"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark whatever uses the session, so that no test of the fast part can start Spark by accident.

    Of the tests that run with every matcher, the fast part has those of the default and of the simplest.
    """
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
        if any(isinstance(value, str) and value in PAPERS for value in parameters):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One local Spark session for the whole run: starting one takes seconds."""
    from wherecast.spark.session import create_session

    session = create_session(
        "wherecast-tests",
        "local[2]",
        **SETTINGS,
        **{"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))},
    )
    yield session
    session.stop()


@pytest.fixture(scope="module")
def compiling_spark(spark: SparkSession) -> Iterator[None]:
    """Where Spark is the oracle it runs as users run it: plans are compiled and adapted."""
    before = {name: spark.conf.get(name) for name in INTERPRETED}
    for name in INTERPRETED:
        spark.conf.unset(name)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)
