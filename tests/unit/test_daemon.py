"""What Spark's Python workers are forked from, as far as it needs no Spark; the rest is in the integration tests of the session."""

from __future__ import annotations

import gc
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from wherecast.spark import daemon
from wherecast.spark.daemon import skip_archive

pyspark_daemon = pytest.importorskip("pyspark.daemon")


def test_a_worker_whose_socket_is_closed_ends_without_a_word() -> None:
    """Its last words fail on a socket of the file system; that is an end like any other, told by the exit code."""

    def worker(sock: Any, authenticated: bool) -> int:
        assert authenticated
        sock.sendall(b"last words")
        return 0

    ours, sparks = socket.socketpair(socket.AF_UNIX)
    with ours:
        assert daemon._until_closed(worker)(ours, True) == 0
        sparks.close()
        assert daemon._until_closed(worker)(ours, True) == 1


def test_other_errors_of_a_worker_are_told() -> None:
    """Only a closed socket is passed over in silence."""

    def worker(sock: Any, authenticated: bool) -> int:
        raise ConnectionResetError("the other end is gone in the middle of a task")

    with pytest.raises(ConnectionResetError):
        daemon._until_closed(worker)(None, True)


def test_the_archive_of_an_installed_pyspark_is_skipped(tmp_path: Path) -> None:
    """Its modules are those beside it. The archive of another PySpark stays, and so does one without an installed PySpark."""
    site, other = tmp_path / "site", tmp_path / "other"
    for place in (site, other):
        (place / "pyspark" / "python" / "lib").mkdir(parents=True)
    (site / "pyspark" / "__init__.py").touch()
    own, foreign = (str(place / "pyspark" / "python" / "lib" / "pyspark.zip") for place in (site, other))
    java = str(site / "pyspark" / "python" / "lib" / "py4j-src.zip")
    assert skip_archive(["", own, java, str(site)]) == ["", java, str(site)]
    for path in (["", foreign, java, str(site)], ["", own, foreign, str(site)], ["", own, java], ["", str(site)]):
        assert skip_archive(path) == path
    assert skip_archive(sys.path) == sys.path


@pytest.mark.slow
def test_workers_are_forked_from_frozen_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """When workers are forked, collections no longer look at what is imported, and workers end quietly."""
    frozen: list[bool] = []
    workers: list[Any] = []
    spark_worker = pyspark_daemon.worker

    def serve() -> None:
        workers.append(pyspark_daemon.worker)
        before = gc.get_freeze_count()
        gc.unfreeze()
        frozen.append(before > len(gc.get_objects()) // 2)
        gc.freeze()

    monkeypatch.setattr(pyspark_daemon, "worker", spark_worker)
    monkeypatch.setattr(pyspark_daemon, "manager", serve)
    gc.unfreeze()
    try:
        daemon.main()
    finally:
        gc.freeze()  # as the tests run
    assert frozen == [True]
    assert workers[0] is not spark_worker
