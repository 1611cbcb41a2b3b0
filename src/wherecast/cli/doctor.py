"""`wherecast doctor`: whether everything that Wherecast needs is here and works; if not, what to do.

A check is a function that gives findings; `CHECKS` lists them in the order in which they are shown.
"""

from __future__ import annotations

import enum
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import typer

from wherecast.cli.failures import CommandError

_GB = 1 << 30
#: Less than this fails sooner or later: Spark's shuffles and an index's versions go to disk.
_LEAST_DISK_BYTES = 2 * _GB
_PORT = 8080


class Verdict(enum.StrEnum):
    """How serious a finding is."""

    OK = "ok"
    NOTE = "note"  # something optional is missing
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What one check found."""

    name: str
    verdict: Verdict
    found: str
    advice: str = ""


def examine(*, with_spark: bool) -> Iterator[Diagnosis]:
    """Make all checks, one after the other."""
    for check in CHECKS:
        yield from check()
    if with_spark:
        yield _started_spark()


def run_doctor(*, with_spark: bool, as_json: bool) -> None:
    """Show the findings; problems make the command fail."""
    findings = []
    for finding in examine(with_spark=with_spark):
        findings.append(finding)
        if not as_json:
            _show(finding)
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=1))
    problems = sum(finding.verdict is Verdict.PROBLEM for finding in findings)
    if problems:
        raise CommandError(f"{problems} of {len(findings)} checks found a problem")


def _show(finding: Diagnosis) -> None:
    colour = {Verdict.OK: typer.colors.GREEN, Verdict.NOTE: typer.colors.YELLOW, Verdict.PROBLEM: typer.colors.RED}
    mark = typer.style(f"{finding.verdict.value:<8}", fg=colour[finding.verdict], bold=True)
    typer.echo(f"{mark} {finding.name:<14} {finding.found}")
    if finding.advice:
        typer.echo(f"{'':<23} {finding.advice}")


def _python() -> Iterator[Diagnosis]:
    name = f"{platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    if sys.version_info < (3, 11):  # noqa: UP036 - somebody may have installed the files by hand
        yield Diagnosis("python", Verdict.PROBLEM, name, "Python 3.11 or later is needed.")
    else:
        yield Diagnosis("python", Verdict.OK, name)


def _matching() -> Iterator[Diagnosis]:
    try:
        began = time.perf_counter()
        from wherecast.engine.engine import Engine

        engine = Engine({"price": "double"})
        engine.subscribe("doctor", "price < 120")
        right = engine.match({"price": 119.5}) == ["doctor"] and engine.match({"price": 120.0}) == []
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        reason = f"{type(error).__name__}: {error}"
        yield Diagnosis("matching", Verdict.PROBLEM, reason, "Install again: pip install --force-reinstall wherecast")
        return
    seconds = time.perf_counter() - began
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("numpy", "numba", "pyarrow"))
    if right:
        yield Diagnosis("matching", Verdict.OK, f"a filter and two events in {seconds:.1f} s; {versions}")
    else:
        yield Diagnosis("matching", Verdict.PROBLEM, f"a wrong answer with {versions}", "Please report this.")


def _kernel_cache() -> Iterator[Diagnosis]:
    """Numba keeps compiled kernels beside the module, else in the user's cache; without either, each process compiles."""
    named = os.environ.get("NUMBA_CACHE_DIR")
    beside = Path(__file__).parents[1] / "kernels"
    for folder in [Path(named)] if named else [beside, Path.home() / ".cache"]:
        if _writable(folder):
            yield Diagnosis("kernel cache", Verdict.OK, str(folder))
            return
    advice = "Set NUMBA_CACHE_DIR to a folder of your own, or every process compiles its kernels for a minute."
    yield Diagnosis("kernel cache", Verdict.PROBLEM, f"{named or beside} cannot be written", advice)


def _writable(folder: Path) -> bool:
    place = next((path for path in (folder, *folder.parents) if path.exists()), None)
    return place is not None and place.is_dir() and os.access(place, os.W_OK)


def _disk() -> Iterator[Diagnosis]:
    for name, folder in (("disk", Path.cwd()), ("temporary", Path(tempfile.gettempdir()))):
        free = shutil.disk_usage(folder).free
        found = f"{free / _GB:.1f} GB free in {folder}"
        if free < _LEAST_DISK_BYTES:
            advice = "Indexes, checkpoints and Spark's shuffles need room; free some, or set TMPDIR."
            yield Diagnosis(name, Verdict.PROBLEM, found, advice)
        else:
            yield Diagnosis(name, Verdict.OK, found)


def _spark() -> Iterator[Diagnosis]:
    if importlib.util.find_spec("pyspark") is None:
        yield Diagnosis("spark", Verdict.NOTE, "not installed", "For the pipeline: pip install 'wherecast[spark]'")
        return
    yield Diagnosis("spark", Verdict.OK, f"PySpark {importlib.metadata.version('pyspark')}")
    from wherecast.spark.session import SessionError, class_archive, find_java

    try:
        java = find_java()
    except SessionError as error:
        yield Diagnosis("java", Verdict.PROBLEM, "none that Spark can use", str(error))
    else:
        yield Diagnosis("java", Verdict.OK, f"Java {java.version} in {java.home}")
        archive = class_archive(java)
        if archive.exists():
            yield Diagnosis("class archive", Verdict.OK, str(archive))
        else:
            yield Diagnosis("class archive", Verdict.NOTE, "none", "Spark starts sooner after: wherecast warm")


def _started_spark() -> Diagnosis:
    try:
        began = time.perf_counter()
        from wherecast.spark.session import create_session

        session = create_session(master="local[1]")
        rows = session.range(3).count()
        session.stop()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return Diagnosis("spark session", Verdict.PROBLEM, reason, "See the lines above about spark and java.")
    return Diagnosis(
        "spark session", Verdict.OK, f"started and counted {rows} rows in {time.perf_counter() - began:.0f} s"
    )


def _port() -> Iterator[Diagnosis]:
    with socket.socket() as probe:
        in_use = probe.connect_ex(("127.0.0.1", _PORT)) == 0
    if in_use:
        advice = "`wherecast serve` would take it; choose another with --port."
        yield Diagnosis("port", Verdict.NOTE, f"{_PORT} is in use", advice)
    else:
        yield Diagnosis("port", Verdict.OK, f"{_PORT} is free")


CHECKS: tuple[Callable[[], Iterator[Diagnosis]], ...] = (_python, _matching, _kernel_cache, _disk, _spark, _port)
