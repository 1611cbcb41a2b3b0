"""Whether a result still says what a run would find: a digest of the settings and of the code that it came from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from wherecast.papers.lab.experiment import EXPERIMENTS, Experiment, Scale

PACKAGE = Path(__file__).parents[2]
PAPERS = PACKAGE / "papers"
#: Folders of the package that no row depends on, or only on a part of them.
APART = ("cli", "papers")
#: Modules of the lab that judge, draw and keep rows, and make none.
FRAME = ("claims", "experiment", "fingerprint", "forecast", "plots", "results", "runner")


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
