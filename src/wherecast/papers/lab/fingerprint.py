"""Whether a result still says what a run would find: a digest of the settings and of the code that it came from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from wherecast.lab.experiment import EXPERIMENTS, Experiment, Scale

PACKAGE = Path(__file__).parents[1]
#: Folders of the package that no row depends on; of the lab only a part counts.
APART = ("cli", "lab")
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
    lab = (file for file in (PACKAGE / "lab").glob("*.py") if file.stem not in FRAME)
    return _digest([*PACKAGE.glob("*.py"), *product, *lab])


@cache
def _code_of_experiments(package: str) -> str:
    folder = PACKAGE / "lab" / "experiments"
    return _digest([*folder.glob(f"{package}.py"), *(folder / package).rglob("*.py")])


def _digest(files: Iterable[Path]) -> str:
    total = hashlib.sha256()
    for file in sorted(files):
        total.update(f"{file.relative_to(PACKAGE).as_posix()}\n".encode())
        total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()
