"""Which archive of classes the JVMs of tests are given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.spark_settings import class_archive, jvm_options

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_an_archive_is_named_only_where_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java drops its own archive when it is given one that is missing or of another Spark."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    other = tmp_path / "pyspark"
    other.mkdir()
    assert "SharedArchiveFile" not in jvm_options()["SPARK_SUBMIT_OPTS"]
    archive = class_archive()
    archive.parent.mkdir()
    archive.touch()
    assert f"-XX:SharedArchiveFile={archive}" in jvm_options()["SPARK_SUBMIT_OPTS"]
    assert "SharedArchiveFile" not in jvm_options(other)["SPARK_SUBMIT_OPTS"]


def test_another_java_has_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its JVM would refuse that of the first."""
    before = class_archive()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert class_archive() != before
