"""`wherecast doctor` finds what is wrong and says what to do."""

from __future__ import annotations

import importlib.util
import json
import shutil
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from wherecast import Engine, class_archive
from wherecast.cli import doctor, warm
from wherecast.cli.app import app
from wherecast.errors import WherecastError


def findings(*args: str) -> tuple[int, dict[str, dict[str, str]]]:
    done = CliRunner().invoke(app, ["doctor", "--json", *args])
    return done.exit_code, {row["name"]: row for row in json.loads(done.stdout)}


@pytest.mark.slow
def test_a_sound_machine():
    """Where everything is there, nothing is a problem, and the command succeeds."""
    code, found = findings()
    assert code == 0
    assert {row["verdict"] for row in found.values()} <= {"ok", "note"}
    assert "numba" in found["matching"]["found"]
    text = CliRunner().invoke(app, ["doctor"]).stdout
    assert all(name in text for name in found)


def test_without_spark(monkeypatch):
    """The extra is optional: that it is missing is a note with the line that installs it."""
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyspark" else find_spec(name))
    code, found = findings()
    assert code == 0
    assert found["spark"]["verdict"] == "note"
    assert "wherecast[spark]" in found["spark"]["advice"]
    assert "java" not in found


def test_without_java(monkeypatch):
    """Spark without Java is a problem, and the advice is that of the session."""
    monkeypatch.setattr("wherecast.spark.session._java_candidates", lambda environ: iter(()))
    code, found = findings()
    assert code == 1
    assert "JAVA_HOME" in found["java"]["advice"]


@pytest.mark.slow
def test_full_disk(monkeypatch):
    """Little room is a problem before it is an error in the middle of a job."""
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=1 << 20))
    code, found = findings()
    assert code == 1
    assert found["disk"]["verdict"] == found["temporary"]["verdict"] == "problem"


def test_no_place_for_kernels(monkeypatch, tmp_path):
    """A cache that cannot be written is a problem: every process would compile."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file" / "cache"))
    code, found = findings()
    assert code == 1
    assert "NUMBA_CACHE_DIR" in found["kernel cache"]["advice"]


@pytest.mark.slow
def test_matching_that_fails(monkeypatch):
    """An engine that does not work, or answers wrongly, is a problem."""

    def broken(engine, event):
        raise WherecastError("no kernels")

    monkeypatch.setattr(Engine, "match", broken)
    assert "no kernels" in findings()[1]["matching"]["found"]
    monkeypatch.setattr(Engine, "match", lambda engine, event: [])
    assert "wrong answer" in findings()[1]["matching"]["found"]


@pytest.mark.slow
def test_port_in_use(monkeypatch):
    """A port that somebody listens on is named."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr(doctor, "_PORT", taken.getsockname()[1])
        code, found = findings()
    assert code == 0
    assert "in use" in found["port"]["found"]


@pytest.mark.slow
def test_warming_uses_what_engines_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part runs in a process of its own, then an engine is used in every form."""
    monkeypatch.setattr(warm, "archive_classes", lambda: "Spark has no part in this")
    done = CliRunner().invoke(app, ["warm"])
    assert (done.exit_code, done.exception) == (0, None)
    assert "the matching kernels are compiled" in done.output


def test_classes_are_archived_as_far_as_that_is_possible(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without Spark, without Java or with a job that fails, nothing is lost but time: the command says so and ends well."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(class_archive, "make_archive", fail)
    assert warm.archive_classes().endswith("sessions start more slowly: no space left on device")
    monkeypatch.setattr(class_archive, "make_archive", lambda java, archive: None)
    assert "cannot write an archive" in warm.archive_classes()
    monkeypatch.setattr(class_archive, "make_archive", lambda java, archive: (archive.parent.mkdir(), archive.touch()))
    assert warm.archive_classes().startswith(f"Spark's classes are kept in {tmp_path}")
    _, found = findings()
    assert found["class archive"]["found"].startswith(str(tmp_path))
    monkeypatch.setattr(warm.importlib.util, "find_spec", lambda name: None)
    assert "not installed" in warm.archive_classes()
