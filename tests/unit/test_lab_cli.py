"""`wherecast lab`: list, run and report, on experiments that take no time; and what every registered experiment declares."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from tests.unit.lab_toy import Settings, register, run, toy  # noqa: F401
from typer.testing import CliRunner

from wherecast.cli.app import app
from wherecast.cli.lab import LabWatch
from wherecast.papers.lab.experiment import EXPERIMENTS, Claim, Finding, load_experiment
from wherecast.papers.lab.forecast import Forecast
from wherecast.papers.lab.report.entries import PAPERS


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """Calls `wherecast lab` in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments, code=0):
        result = CliRunner().invoke(app, ["lab", *arguments])
        assert result.exit_code == code, result.output + result.stderr
        return result

    return call


def fail(settings, progress):
    raise ValueError("no luck")


def test_run_judges_each_claim(lab, register):  # noqa: F811
    """As a table for people, as a line of JSON per claim for programs."""
    register(toy("toy-one"), toy("toy-two"))
    result = lab("run", "--all", "--scale", "small")
    assert "2 of 4 claims hold" in result.stdout
    assert re.search(r"toy-one +Visits are few\. +< 2,000 +1,000 +yes", result.stdout)
    assert "2 of 2 results are in lab-output/small" in result.stderr
    lines = [json.loads(line) for line in lab("run", "toy-two", "--scale", "small", "--json").stdout.splitlines()]
    assert lines == [
        {"paper": "topss-2002", "name": "toy-two", "claim": "Visits are few.", "paper_figure": "< 2,000", "ours": 1000.0, "holds": True},
        {"paper": "topss-2002", "name": "toy-two", "claim": "Time | is 1.", "paper_figure": "1 ms", "ours": "a <b> | c", "holds": False},
    ]  # fmt: skip


def test_numbers_that_json_does_not_have_are_texts(lab, register):  # noqa: F811
    """Every line can be read by any reader of JSON."""
    claim = Claim("topss-2002", "toy-one", "c", "f", lambda rows: Finding(float("inf"), holds=True))
    register(toy("toy-one", claims=(claim,)))
    assert json.loads(lab("run", "--all", "--scale", "small", "--json").stdout)["ours"] == "inf"


def noted(name, ran, then=lambda: None):
    """An experiment that notes its runs."""

    def body(settings, progress):
        ran.append(name)
        then()
        return run(settings, progress)

    return toy(name, run=body)


@pytest.mark.slow
def test_a_run_is_continued_where_it_was_interrupted(lab, register):  # noqa: F811
    """What is finished is not run again."""

    def stop():
        raise KeyboardInterrupt

    ran = []
    register(noted("toy-one", ran), noted("toy-two", ran, stop))
    result = lab("run", "--all", "--scale", "small", code=130)
    assert "what is finished stays in lab-output; the same command continues" in result.stderr
    register(noted("toy-one", ran), noted("toy-two", ran))
    result = lab("run", "--all", "--scale", "small")
    assert "1 of 2 are there already" in result.stderr
    assert "[1/1] toy-two; about 5 s left" in result.stderr
    assert ran == ["toy-one", "toy-two", "toy-two"]
    lab("run", "--all", "--scale", "small")
    assert len(ran) == 3


@pytest.mark.slow
def test_what_is_there_is_run_again_if_asked_for_or_changed(lab, register):  # noqa: F811
    """Another scale and other settings are other runs."""
    ran = []
    register(noted("toy-one", ran))
    for expected, *arguments in (
        (1, "--scale", "small"),
        (1, "--scale", "small"),
        (2, "--scale", "small", "--again"),
        (3, "--scale", "paper"),
    ):
        lab("run", "toy-one", *arguments)
        assert len(ran) == expected
    register(replace(noted("toy-one", ran), settings={"small": Settings(seeds=5)}))
    lab("run", "toy-one", "--scale", "small")
    assert len(ran) == 4


@pytest.mark.slow
def test_a_failure_stops_no_other_experiment(lab, register):  # noqa: F811
    """It is named, and the exit code tells."""
    register(toy("toy-bad", run=fail), toy("toy-good"))
    result = lab("run", "--all", "--scale", "small", code=1)
    assert "toy-bad: ValueError: no luck" in result.stderr
    assert "error: failed: toy-bad" in result.stderr
    assert "1 of 2 results are in" in result.stderr
    assert "1 of 2 claims hold" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "name experiments or give --all"),
        (["run", "toy-one", "--all"], "name experiments or give --all"),
        (["run", "toy-9"], "no experiment 'toy-9'; there are: toy-one"),
        (["run", "toy-one", "--scale", "large"], "toy-one has no scale 'large'; there are: small, paper"),
        (["report", "--docs", "nowhere"], "nowhere"),
    ],
)
def test_a_wrong_call_is_refused_before_anything_runs(lab, register, arguments, message):  # noqa: F811
    """With exit code 2 and the way out."""
    register(toy("toy-one", run=fail))
    assert message in lab(*arguments, code=2).stderr


def test_all_leaves_out_what_has_no_such_scale(lab, register):  # noqa: F811
    """And says so."""
    register(toy("toy-one"), toy("toy-two", settings={"large": Settings()}))
    result = lab("run", "--all", "--scale", "large")
    assert "no scale large, left out: toy-one" in result.stderr
    assert "1 of 1 results" in result.stderr


def test_list_shows_times_of_earlier_runs(lab, register):  # noqa: F811
    """Else, after a tilde, what is declared or guessed."""
    register(toy("toy-one"))
    assert re.search(r"toy-one +topss-2002 +Table 1: toy-one +small ~5 s, paper ~40 s", lab("list").stdout)
    lab("run", "--all", "--scale", "paper")
    assert "small ~5 s, paper 1 s" in lab("list").stdout


@pytest.mark.slow
def test_report_writes_a_page_or_sections(lab, register, tmp_path):  # noqa: F811
    """Of what has run; the rest is named. Without results there is nothing to report."""
    register(toy("toy-one"), toy("toy-two"))
    assert "`wherecast lab run --all --scale small` makes them" in lab("report", "--scale", "small", code=1).stderr
    lab("run", "toy-one", "--scale", "small")
    result = lab("report", "--scale", "small")
    assert "not run at scale small: toy-two" in result.stderr
    assert (tmp_path / "lab-output" / "report.html").read_text().count("<article") == 1
    lab("report", "--scale", "small", "--out", "x.html")
    assert (tmp_path / "x.html").read_text() == (tmp_path / "lab-output" / "report.html").read_text()
    (tmp_path / "papers").mkdir()
    result = lab("report", "--scale", "small", "--docs", "papers")
    assert "wrote papers/topss.md" in result.stderr
    assert "report.html" not in result.stderr
    assert "### Table 1: toy-one" in (tmp_path / "papers" / "topss.md").read_text()
    assert (tmp_path / "papers" / "figures" / "toy-one-more.svg").exists()


def test_the_bar_shows_place_and_time_left():
    """And the last line of the experiment, without control characters."""
    from rich.console import Console

    console = Console(width=100, file=io.StringIO())
    watch = LabWatch(Forecast({"a": 30.0, "b": 90.0}), 2, silent=True)
    with watch.running("a") as progress:
        progress("a: seed 1\x1b of 2")
        console.print(watch.render())
    text = console.file.getvalue()
    assert "[1/2]" in text
    assert "about 2 min left" in text
    assert "a: seed 1? of 2" in text


def test_start_up_stays_light():
    """Registering the commands imports neither NumPy nor what needs it."""
    code = "import sys, wherecast.cli.app; print([m for m in ('numpy', 'matplotlib', 'pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiments_are_declared_soundly(name):
    """Its name, a known paper, scales small and paper, claims of its own, settings that read alike in every process."""
    experiment = load_experiment(name)
    assert experiment.name == name
    assert experiment.paper in PAPERS
    assert {"small", "paper"} <= experiment.settings.keys()
    assert all((claim.paper, claim.name) == (experiment.paper, name) for claim in experiment.claims)
    assert not any(" at 0x" in repr(settings) for settings in experiment.settings.values())
    assert experiment.seconds.keys() <= experiment.settings.keys()


def test_figures_of_all_experiments_have_names_of_their_own():
    """Their files stand in one folder of the documentation."""
    names = [drawing.name for name in EXPERIMENTS for drawing in load_experiment(name).drawings]
    assert len(set(names)) == len(names)
