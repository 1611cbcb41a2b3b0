"""Results on disk: a folder per scale and experiment, complete or not there.

lab-output/paper/edn-bloom/rows.parquet    what was found; rows.csv is the same for people
record.json     when, where, how long, with which settings and code
edn-bloom.png   each figure, and as .svg

Whether a result still says what a run would find is told by its fingerprint: a digest of the settings and of the code that
it came from.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from wherecast.papers.lab.experiment import EXPERIMENTS, Experiment, LabError, Scale
from wherecast.papers.lab.rows import Row, Rows

PACKAGE = Path(__file__).parents[2]
PAPERS = PACKAGE / "papers"
#: Folders of the package that no row depends on, or only on a part of them.
APART = ("cli", "papers")
#: Modules of the lab that judge, draw and keep rows, and make none.
FRAME = ("experiment", "forecast", "plots", "results", "runner")


def fingerprint(experiment: Experiment[Any], scale: Scale) -> str:
    """A digest of settings, seeds included, and code: the product's, and that of the paper's experiments.

    What commands print, how rows are judged and drawn and what other papers' experiments do changes no rows, and no digest.
    """
    package = EXPERIMENTS[experiment.name].partition(":")[0].partition(".")[0]
    parts = (_shared_code(), _code_of_experiments(package), repr(experiment.at(scale)))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


# Digests are kept from the first call: a file that changes during a long run is not the code that runs.


@cache
def _shared_code() -> str:
    parts = (part for part in PACKAGE.iterdir() if part.is_dir() and part.name not in APART)
    product = (file for part in parts for file in part.rglob("*.py"))
    lab = (file for file in (PAPERS / "lab").glob("*.py") if file.stem not in FRAME)
    # A paper's experiment may measure another paper's matcher.
    matchers = [*PAPERS.glob("*/*.py"), *PAPERS.glob("*/kernels/*.py")]
    return _digest([*PACKAGE.glob("*.py"), *product, *lab, *(m for m in matchers if m.parent.name != "lab")])


@cache
def _code_of_experiments(package: str) -> str:
    return _digest((PAPERS / package / "experiments").rglob("*.py"))


def _digest(files: Iterable[Path]) -> str:
    total = hashlib.sha256()
    for file in sorted(files):
        total.update(f"{file.relative_to(PACKAGE).as_posix()}\n".encode())
        total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What is known of a run, apart from its rows."""

    name: str  # of the experiment
    scale: Scale
    fingerprint: str  # of settings and code
    settings: dict[str, str]
    seconds: float
    finished: str  # UTC, ISO 8601
    machine: dict[str, object]  # the fields of bench.results.Machine


@dataclass(frozen=True, slots=True)
class Results:
    """The results below a folder."""

    root: Path

    def folder(self, name: str, scale: Scale) -> Path:
        """Where the result of an experiment is, or would be."""
        return self.root / scale / name

    def record(self, name: str, scale: Scale) -> RunRecord | None:
        """What is known of the last run; None if there was none."""
        path = self.folder(name, scale) / "record.json"
        try:
            return RunRecord(**json.loads(path.read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError):
            raise LabError(f"'{path}' is not a record of the lab; remove its folder and run {name} again") from None

    def rows(self, record: RunRecord) -> Rows:
        """What a run found."""
        path = self.folder(record.name, record.scale) / "rows.parquet"
        try:
            found: list[Row] = pq.read_table(path).to_pylist()
        except (OSError, pa.ArrowException) as error:
            raise LabError(f"'{path}' cannot be read ({error}); run {record.name} again") from None
        return found

    def write(self, record: RunRecord, rows: Rows) -> None:
        """Keep a result, in place of the one before. Figures of that one go with it."""
        table = as_table(record.name, rows)
        folder = self.folder(record.name, record.scale)
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = _beside(folder)
        try:
            partial.mkdir()
            pq.write_table(table, partial / "rows.parquet")
            pa_csv.write_csv(table, partial / "rows.csv")
            (partial / "record.json").write_text(json.dumps(asdict(record), indent=2) + "\n")
            shutil.rmtree(folder, ignore_errors=True)
            partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def as_table(name: str, rows: Rows) -> pa.Table:
    """Rows of an experiment as columns; each row must have them all."""
    if not rows:
        raise LabError(f"{name} found no rows")
    odd = next((number for number, row in enumerate(rows) if row.keys() != rows[0].keys()), None)
    if odd is not None:
        raise LabError(f"{name}: row {odd} has the columns {', '.join(rows[odd])}, the first {', '.join(rows[0])}")
    try:
        return pa.Table.from_pylist(list(rows))
    except pa.ArrowException as error:
        raise LabError(f"{name}: a column holds cells of several types: {error}") from None


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Have a file written beside its place and move it there when it is complete."""
    partial = _beside(path)
    try:
        write(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole."""
    write_whole(path, lambda partial: partial.write_text(text, encoding="utf-8"))


def _beside(path: Path) -> Path:
    """A name for what is not complete; the suffix stays, as it says the format."""
    return path.with_name(f".{path.stem}.{os.getpid()}.partial{path.suffix}")
