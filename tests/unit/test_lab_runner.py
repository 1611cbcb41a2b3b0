"""The lab's frame without its experiments: results on disk, what counts as done, how long it takes."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pyarrow.csv as pa_csv
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.lab_toy import Settings, register, run, toy  # noqa: F401

from wherecast.papers.lab import results as results_module
from wherecast.papers.lab.experiment import Claim, LabError
from wherecast.papers.lab.forecast import GUESS, Forecast, expected_seconds, show_duration
from wherecast.papers.lab.results import Results, as_table, fingerprint, write_whole
from wherecast.papers.lab.runner import FORMATS, describe_settings, is_current, judge_again, run_experiment


def silent(_):
    """Progress that nobody watches."""


@pytest.fixture
def experiment(register):  # noqa: F811
    return register(toy("toy-one"))[0]


@pytest.fixture
def results(tmp_path):
    return Results(tmp_path / "out")


@pytest.mark.slow
def test_a_run_leaves_rows_record_and_figures(register, results):  # noqa: F811
    """Rows come back as they were found, from Parquet and CSV; every figure is there in both formats."""
    (experiment,) = register(toy("toy-one"), formats=FORMATS)
    outcome = run_experiment(experiment, "paper", results, silent)
    folder = results.folder("toy-one", "paper")
    assert sorted(path.name for path in folder.iterdir()) == [
        "record.json", "rows.csv", "rows.parquet",
        "toy-one-more.png", "toy-one-more.svg", "toy-one.png", "toy-one.svg",
    ]  # fmt: skip
    found = run(Settings(), silent)
    assert results.rows(outcome.record) == found
    assert pa_csv.read_csv(folder / "rows.csv").to_pylist() == found
    assert results.record("toy-one", "paper") == outcome.record
    assert outcome.record.settings == {"limits": "10, 1,000", "seeds": "3"}
    assert outcome.record.machine["cores"] >= 1
    assert [(claim.claim, finding.holds) for claim, finding in outcome.findings] == [
        ("Visits are few.", True), ("Time | is 1.", False),
    ]  # fmt: skip


def test_progress_is_passed_on(experiment, results):
    """The experiment's own lines."""
    lines = []
    run_experiment(experiment, "small", results, lines.append)
    assert lines == ["seed 0", "seed 1"]


def test_a_result_is_current_until_settings_or_code_change(experiment, results, monkeypatch):
    """Other scales are other results; a change of the code of its paper or of the product is seen."""
    assert not is_current(experiment, "small", results)
    run_experiment(experiment, "small", results, silent)
    assert is_current(experiment, "small", results)
    assert not is_current(experiment, "paper", results)
    other = replace(experiment, settings={"small": Settings(seeds=4)})
    assert not is_current(other, "small", results)
    assert judge_again(experiment, "small", results).record.name == "toy-one"
    monkeypatch.setattr(results_module, "_code_of_experiments", lambda package: f"changed {package}")
    assert not is_current(experiment, "small", results)


def test_the_digest_of_code_sees_what_rows_depend_on(tmp_path, monkeypatch, experiment):
    """The product and the paper's own experiments; no commands, no reports, no other papers' experiments."""
    for name in ("index/a.py", "errors.py", "cli/a.py", "papers/lab/timing.py", "papers/lab/plots.py", "papers/lab/report/page.py",
                 "papers/toy0/experiments/a.py", "papers/other/experiments/a.py", "papers/other/matcher.py"):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    monkeypatch.setattr(results_module, "PACKAGE", tmp_path)
    monkeypatch.setattr(results_module, "PAPERS", tmp_path / "papers")

    def digest():
        results_module._shared_code.cache_clear()
        results_module._code_of_experiments.cache_clear()
        return fingerprint(experiment, "small")

    first = digest()
    seen = set()
    for path in tmp_path.rglob("*.py"):
        path.write_text("2")
        if digest() != first:
            seen.add(path.relative_to(tmp_path).as_posix())
        path.write_text("1")
    moved = tmp_path / "index" / "b.py"
    (tmp_path / "index" / "a.py").rename(moved)
    assert digest() != first
    assert seen == {
        "index/a.py",
        "errors.py",
        "papers/lab/timing.py",
        "papers/toy0/experiments/a.py",
        "papers/other/matcher.py",
    }
    results_module._shared_code.cache_clear()
    results_module._code_of_experiments.cache_clear()


def test_a_claim_or_plot_that_fails_does_not_cost_the_rows(experiment, results):
    """They are kept before anything is judged."""

    def broken(rows):
        raise ZeroDivisionError

    wrong = replace(experiment, claims=(Claim("p", "toy-one", "c", "f", broken),))
    with pytest.raises(ZeroDivisionError):
        run_experiment(wrong, "small", results, silent)
    assert len(results.rows(results.record("toy-one", "small"))) == 4
    assert len(judge_again(experiment, "small", results).findings) == 2


@pytest.mark.slow
def test_a_run_that_fails_leaves_the_result_before(experiment, results):
    """Also one whose rows cannot be stored; nothing half-written stays."""
    before = run_experiment(experiment, "small", results, silent).record

    def interrupted(settings, progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_experiment(replace(experiment, run=interrupted), "small", results, silent)
    with pytest.raises(LabError, match="toy-one found no rows"):
        run_experiment(replace(experiment, run=lambda s, p: []), "small", results, silent)
    assert results.record("toy-one", "small") == before
    assert [path.name for path in (results.root / "small").iterdir()] == ["toy-one"]


def test_a_result_that_cannot_be_written_leaves_nothing(experiment, results, monkeypatch):
    """The folder is moved to its place when it is complete."""

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr("wherecast.papers.lab.results.pa_csv.write_csv", full)
    with pytest.raises(OSError, match="no space left"):
        run_experiment(experiment, "small", results, silent)
    assert list((results.root / "small").iterdir()) == []


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    """What was there stays if writing fails."""
    path = tmp_path / "a.txt"
    write_whole(path, lambda partial: partial.write_text("first"))

    def fail(partial):
        partial.write_text("sec")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_whole(path, fail)
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]
    assert path.read_text() == "first"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"a": 1, "b": 2}, {"a": 1}], "row 1 has the columns a, the first a, b"),
        ([{"a": 1}, {"a": "x"}], "a column holds cells of several types"),
    ],
)
def test_rows_that_are_no_table_are_refused(rows, message):
    """The message names the experiment and what is wrong."""
    with pytest.raises(LabError, match=f"toy: {message}"):
        as_table("toy", rows)


def test_damaged_results_are_named(experiment, results):
    """A record or rows that cannot be read say which, and what to do."""
    record = run_experiment(experiment, "small", results, silent).record
    folder = results.folder("toy-one", "small")
    (folder / "rows.parquet").write_text("x")
    with pytest.raises(LabError, match=r"rows\.parquet' cannot be read .*; run toy-one again"):
        results.rows(record)
    for text in ("{", json.dumps({"name": "x"})):
        (folder / "record.json").write_text(text)
        with pytest.raises(LabError, match=r"record\.json' is not a record of the lab"):
            results.record("toy-one", "small")


def test_settings_are_described_by_field():
    """Fields of settings within settings have a path; whole numbers have commas, truth values have not."""
    inner = Settings((1, 20_000), seeds=1)
    outer = replace(inner, limits=inner, seeds=True)
    assert describe_settings(outer) == {"limits.limits": "1, 20,000", "limits.seeds": "1", "seeds": "True"}
    assert describe_settings(5) == {"settings": "5"}


def test_expected_seconds_come_from_the_last_run_else_from_the_declaration(experiment, results):
    """Else from a guess."""
    assert expected_seconds(experiment, "paper", results) == 40.0
    assert expected_seconds(experiment, "small", results) == GUESS["small"]
    taken = run_experiment(experiment, "paper", results, silent).record.seconds
    assert expected_seconds(experiment, "paper", results) == taken


def test_a_forecast_learns_from_what_is_over():
    """Twice as slow as expected so far: the others are expected to be as well."""
    forecast = Forecast({"a": 10.0, "b": 20.0, "c": 30.0})
    assert forecast.left() == 60.0
    assert forecast.left("a", 4.0) == 56.0
    forecast.finish("a", 20.0)
    assert forecast.left() == 100.0
    assert forecast.left("b", 50.0) == 60.0  # overdue: only c is counted
    assert forecast.share("b", 20.0) == pytest.approx(40 / 120)


@given(st.lists(st.tuples(st.floats(0, 1e4), st.floats(0, 1e4)), max_size=8))
def test_shares_rise_to_one(runs):
    """Whatever is expected and taken, the share is between 0 and 1 and ends at 1; the time left ends at 0."""
    forecast = Forecast({str(i): expected for i, (expected, _) in enumerate(runs)})
    for i, (_, taken) in enumerate(runs):
        assert 0 <= forecast.share(str(i), taken / 2) <= 1
        assert forecast.left(str(i), taken / 2) >= 0
        forecast.finish(str(i), taken)
    assert forecast.share() == 1
    assert math.isclose(forecast.left(), 0, abs_tol=1e-6)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.01, "1 s"), (59.6, "60 s"), (99, "99 s"), (100, "2 min"), (3540, "59 min"), (7260, "2 h 1 min")],
)
def test_durations_read_well(seconds, text):
    """Rounded to what matters."""
    assert show_duration(seconds) == text


def test_the_modules_of_a_frame_are_there():
    """A module that the digest leaves out exists."""
    assert all((results_module.PAPERS / "lab" / f"{name}.py").exists() for name in results_module.FRAME)
