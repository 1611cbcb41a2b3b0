"""Experiments that take no time, for the tests of the lab's frame."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest

import wherecast.papers  # noqa: F401 - the parent of the modules made here
from wherecast.papers.lab.experiment import EXPERIMENTS, Claim, Drawing, Experiment, Finding
from wherecast.papers.lab.rows import numbers

PAPER = "topss-2002"


@dataclass(frozen=True)
class Settings:
    """So many seeds of the numbers below a limit."""

    limits: tuple[int, ...] = (10, 1000)
    seeds: int = 3


def run(settings, progress):
    """Sums, and times that differ by seed."""
    rows = []
    for seed in range(settings.seeds):
        progress(f"seed {seed}")
        rows += [
            {"seed": seed, "limit": limit, "kind": "sum", "visits": limit, "ms": limit * (seed + 1) / 7}
            for limit in settings.limits
        ]
    return rows


def plot(rows, axes):
    """A line."""
    axes.plot(numbers(rows, "limit"), numbers(rows, "ms"), "o", label="ours")
    axes.set(xlabel="limit", ylabel="time (ms)")


def judge_visits(rows):
    """Counts are what they must be."""
    return Finding(float(numbers(rows, "visits").max()), holds=True)


def toy(name, **changes):
    """An experiment with a claim that holds, one that does not, and two figures."""
    claims = (
        Claim(PAPER, name, "Visits are few.", "< 2,000", judge_visits),
        Claim(PAPER, name, "Time | is 1.", "1 ms", lambda rows: Finding("a <b> | c", holds=False), "It is not."),
    )
    settings = {"small": Settings(seeds=2), "paper": Settings()}
    more = (Drawing(f"{name}-more", "More of it", plot),)
    made = Experiment(name, PAPER, f"Table 1: {name}", settings, run, claims, plot, more, {"paper": 40.0})
    return replace(made, **changes)


@pytest.fixture
def register(monkeypatch):
    """Makes these the only experiments there are. Runs draw nothing unless asked to: it takes most of the time."""

    def only(*experiments, formats=()):
        monkeypatch.setattr("wherecast.papers.lab.runner.FORMATS", formats)
        for name in reversed(list(EXPERIMENTS)):  # undone last first, so their order comes back
            monkeypatch.delitem(EXPERIMENTS, name)
        for number, experiment in enumerate(experiments):
            module = f"toy{number}"
            monkeypatch.setitem(
                sys.modules, f"wherecast.papers.{module}.experiments.one", SimpleNamespace(EXPERIMENT=experiment)
            )
            monkeypatch.setitem(EXPERIMENTS, experiment.name, f"{module}.one:EXPERIMENT")
        return experiments

    return only
