"""What all tests share: the profile of Hypothesis and one Spark session for each process."""

from __future__ import annotations

import atexit
import gc
import os
import signal
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING

import pytest
from tests.spark_settings import INTERPRETED, SETTINGS, start_jvms_quickly

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import IO

    from pyspark.sql import SparkSession

pytest_plugins = ["tests.crashes"]
start_jvms_quickly()
# Shells start background jobs deaf to Ctrl-C, and the processes of tests would be deaf, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Nearly all that is made while tests are read stays. When they run, a test makes many objects and keeps few; by default the
# collector would look at them after every 700.
gc.disable()
gc.set_threshold(100_000, 20, 100)
#: Where the longest tests are. They start first, so that at the end no process waits for another that has just begun one.
LONGEST = (
    "test_spark_versions.py",
    "test_spark_exactly_once.py",
    "test_cli_pipeline.py",
    "test_soak.py",
    "test_spark_connect.py",
    "test_forged.py",
    "test_site.py",
    "test_overlay_network.py",
    "test_overlay_invariants.py",
    "test_lab_edn.py",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark whatever uses the session, so that no test of the fast part can start Spark by accident.

    Of the tests that run with every matcher, the fast part has those of the default and of the simplest.
    """
    from tests.examples import left_to_others

    from wherecast.matchers.registry import MATCHERS

    papers = MATCHERS.keys() - {"adaptive", "scan"}
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.name, len(LONGEST)))
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
        if any(isinstance(value, str) and value in papers for value in parameters):
            item.add_marker(pytest.mark.slow)
    left_out = left_to_others(items, getattr(config, "workerinput", {}).get("testrunuid"))
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))


def deal_longest(session: pytest.Session) -> None:
    """Let every process begin with a share of the longest tests.

    Each process is given a run of neighbours, and those who are done take from the end of another's run. With all of the longest in
    one run, one of them would begin when the others are done.
    """
    workers = getattr(session.config, "workerinput", {}).get("workercount", 1)
    shares: list[list[pytest.Item]] = [[] for _ in range(workers)]
    modules = groupby((item for item in session.items if item.path.name in LONGEST), lambda item: item.path)
    for number, (_, tests) in enumerate(modules):
        shares[number % workers] += tests
    others = [item for item in session.items if item.path.name not in LONGEST]
    dealt: list[pytest.Item] = []
    for left, share in zip(range(workers, 0, -1), shares, strict=True):
        room = max((len(session.items) - len(dealt)) // left - len(share), 0)
        dealt += [*share, *others[:room]]
        del others[:room]
    session.items[:] = [*dealt, *others]


def pytest_sessionstart(session: pytest.Session) -> None:
    """Before tests are collected: the first property needs the profile, and some modules compile filters when they are imported.

    A process that only hands tests to others loads nothing: they begin when it is ready.
    """
    config = session.config
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        return
    import typer.testing
    from tests import examples  # noqa: F401 - loads the profile
    from tests.warming import warm_kernels

    # To read all commands from their signatures takes longer than most of them run.
    typer.testing._get_command = cache(typer.testing._get_command)  # type: ignore[attr-defined]
    os.fsync = _look_at  # type: ignore[assignment]
    warm_kernels(config)


def _look_at(file: int | IO[bytes]) -> None:
    """In place of fsync, which takes a millisecond or more, seven thousand times; no test cuts the power.

    It refuses what fsync would refuse. Tests of durability look at the calls; the processes that they start do sync.
    """
    os.fstat(file if isinstance(file, int) else file.fileno())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """The last moment to choose the order of the tests, before it is told. What is there now stays until the end.

    So the collector need not look at thousands of tests and modules again and again.
    """
    deal_longest(session)
    gc.freeze()
    gc.enable()
    atexit.register(gc.unfreeze)  # else DuckDB takes what is still there for a leak, and says so


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One local Spark session for the whole run: starting one takes seconds."""
    from wherecast.spark.session import create_session

    has_kafka = any(item.get_closest_marker("kafka") for item in request.session.items)
    has_lakes = any(item.get_closest_marker("lakes") for item in request.session.items)
    settings = {
        **SETTINGS,
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        **(kafka_connector() if has_kafka else {}),
        **(lakes(tmp_path_factory.mktemp("lakes")) if has_lakes else {}),
    }
    session = create_session("wherecast-tests", "local[2]", **settings)
    yield session
    session.stop()


def kafka_connector() -> dict[str, str]:
    """The setting that loads Spark's Kafka connector, which must be there when the session starts.

    Where the connector cannot be had, the other tests run without it, and the tests of Kafka say why they fail.
    """
    import pyspark
    from tests.jars.artifacts import connector_jars
    from tests.jars.maven import MavenError

    try:
        return {"spark.jars": ",".join(map(str, connector_jars(pyspark.__version__)))}
    except MavenError:
        return {}


def lakes(warehouse: Path) -> dict[str, str]:
    """The settings that load Delta and Iceberg, where they are there for this Spark; tests of them say if not."""
    import pyspark
    from tests.lakes import has_lakes, lake_settings

    return lake_settings(pyspark.__version__, warehouse) if has_lakes(pyspark.__version__) else {}


@pytest.fixture(scope="module")
def compiling_spark(spark: SparkSession) -> Iterator[None]:
    """Where Spark is the oracle it runs as users run it: plans are compiled and adapted."""
    before = {name: spark.conf.get(name) for name in INTERPRETED}
    for name in INTERPRETED:
        spark.conf.unset(name)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)
