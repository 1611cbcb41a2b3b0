"""The runner: an experiment in, its result on disk and its claims judged; what is there already is not run again."""

from __future__ import annotations

import dataclasses
import gc
import time
from datetime import UTC, datetime
from functools import partial
from itertools import product
from typing import Any, NamedTuple

from wherecast.bench.results import describe_machine
from wherecast.papers.lab.experiment import Claim, Experiment, Finding, Progress, Scale
from wherecast.papers.lab.plots import save_plot
from wherecast.papers.lab.results import Results, RunRecord, fingerprint, write_whole

FORMATS = ("png", "svg")


class RunOutcome(NamedTuple):
    """A result, and what it says of each claim."""

    record: RunRecord
    findings: list[tuple[Claim, Finding]]


def is_current(experiment: Experiment[Any], scale: Scale, results: Results) -> bool:
    """Whether there is a result with the same settings from the same code."""
    record = results.record(experiment.name, scale)
    return record is not None and record.fingerprint == fingerprint(experiment, scale)


def run_experiment(experiment: Experiment[Any], scale: Scale, results: Results, progress: Progress) -> RunOutcome:
    """Run an experiment and keep its result; then judge and draw it.

    Rows are kept before they are judged: a mistake in a claim or a plot does not cost the run.
    """
    settings = experiment.at(scale)
    gc.collect()  # the experiment before is gone
    start = time.perf_counter()
    rows = experiment.run(settings, progress)
    record = RunRecord(
        name=experiment.name,
        scale=scale,
        fingerprint=fingerprint(experiment, scale),
        settings=describe_settings(settings),
        seconds=round(time.perf_counter() - start, 3),
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=describe_machine().fields(),
    )
    results.write(record, rows)
    return _review(experiment, record, results)


def judge_again(experiment: Experiment[Any], scale: Scale, results: Results) -> RunOutcome:
    """Judge and draw the result that is there."""
    record = results.record(experiment.name, scale)
    assert record is not None
    return _review(experiment, record, results)


def _review(experiment: Experiment[Any], record: RunRecord, results: Results) -> RunOutcome:
    rows = results.rows(record)
    outcome = RunOutcome(record, experiment.judge(rows))
    for drawing, form in product(experiment.drawings, FORMATS):
        path = results.folder(experiment.name, record.scale) / f"{drawing.name}.{form}"
        write_whole(path, partial(save_plot, drawing, rows))
    return outcome


def describe_settings(settings: Any) -> dict[str, str]:
    """Settings for people: the fields of a dataclass, those of one within it by their path."""
    if not dataclasses.is_dataclass(settings):
        return {"settings": str(settings)}
    found: dict[str, str] = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            found |= {f"{field.name}.{name}": text for name, text in describe_settings(value).items()}
        else:
            found[field.name] = _show_setting(value)
    return found


def _show_setting(value: object) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(_show_setting(each) for each in value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)
