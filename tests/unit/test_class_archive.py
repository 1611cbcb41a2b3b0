"""Which archive of classes a JVM is given."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.spark_settings import spark_jvm

from wherecast import class_archive
from wherecast.class_archive import archive_of, archive_options, make_archive


@pytest.fixture
def java(tmp_path: Path) -> Path:
    return made_java(tmp_path / "java")


def made_java(home: Path) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch(mode=0o755)
    return home


def test_an_archive_is_named_only_where_it_is_there(java: Path, tmp_path: Path) -> None:
    """Java drops its own archive when it is given one that is missing or of another Spark."""
    archive, other = archive_of(java, tmp_path), archive_of(java, tmp_path, java)
    assert archive != other
    assert archive_options(archive) == ""
    archive.touch()
    assert f'"-XX:SharedArchiveFile={archive}"' in archive_options(archive)
    assert archive_options(other) == ""


def test_a_java_without_an_archive_of_its_own_gets_both(java: Path, tmp_path: Path) -> None:
    """The archive of Spark's classes adds to one of Java's, which is named first."""
    archive = archive_of(java, tmp_path)
    base = archive.with_suffix(".base.jsa")
    base.touch()
    assert archive_options(archive) == ""
    archive.touch()
    assert f'"-XX:SharedArchiveFile={base}:{archive}"' in archive_options(archive)


def test_another_java_has_another_archive(java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its JVM would refuse that of the first. A session sets JAVA_HOME to the Java that it found, which stays the same one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(java / "bin"))
    archive = archive_of(java, tmp_path / "wherecast")
    archive.parent.mkdir()
    archive.touch()
    assert str(archive) in spark_jvm()
    monkeypatch.setenv("JAVA_HOME", str(java))
    assert str(archive) in spark_jvm()
    monkeypatch.setenv("JAVA_HOME", str(made_java(tmp_path / "second")))
    assert str(archive) not in spark_jvm()


def test_a_job_that_fails_leaves_nothing(java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a draft nor an archive: the next session would map it."""

    def fail(command: list[str], **_: object) -> None:
        raise subprocess.CalledProcessError(1, command)

    (java / "lib" / "server").mkdir(parents=True)
    (java / "lib" / "server" / "classes.jsa").touch()
    monkeypatch.setattr(class_archive.subprocess, "run", fail)
    cache = tmp_path / "cache"
    with pytest.raises(subprocess.CalledProcessError):
        make_archive(java, archive_of(java, cache))
    assert list(cache.iterdir()) == []
