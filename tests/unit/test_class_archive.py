"""Which archive of classes the JVMs of tests are given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.spark_settings import base_archive, class_archive, spark_jvm

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_an_archive_is_named_only_where_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java drops its own archive when it is given one that is missing or of another Spark."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    other = tmp_path / "pyspark"
    other.mkdir()
    assert "SharedArchiveFile" not in spark_jvm()
    archive = class_archive()
    archive.parent.mkdir()
    archive.touch()
    assert f"-XX:SharedArchiveFile={archive}" in spark_jvm()
    assert "SharedArchiveFile" not in spark_jvm(other)


def test_a_java_without_an_archive_of_its_own_gets_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The archive of Spark's classes adds to one of Java's, which is named first."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    archive = class_archive()
    base = base_archive(archive)
    archive.parent.mkdir()
    base.touch()
    assert "SharedArchiveFile" not in spark_jvm()
    archive.touch()
    assert f"-XX:SharedArchiveFile={base}:{archive}" in spark_jvm()


def test_another_java_has_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its JVM would refuse that of the first. A session sets JAVA_HOME to the Java that it found, which stays the same one."""
    first, second = (tmp_path / name for name in ("first", "second"))
    for home in (first, second):
        (home / "bin").mkdir(parents=True)
        (home / "bin" / "java").touch(mode=0o755)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(first / "bin"))
    found = class_archive()
    monkeypatch.setenv("JAVA_HOME", str(first))
    assert class_archive() == found
    monkeypatch.setenv("JAVA_HOME", str(second))
    assert class_archive() != found
