"""`wherecast partition`: plan, evaluate and show, over files of every format."""

from __future__ import annotations

import csv
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from wherecast.cli.app import app
from wherecast.partition.plan import Plan

SCHEMA = {"symbol": "string", "price": "double"}
SUBSCRIPTIONS = [{"id": i, "filter": f"symbol = 'S{i % 40}' AND price > {i}"} for i in range(400)]
EVENTS = [{"symbol": f"S{i % 80}", "price": float(i)} for i in range(800)]
FIELDS = (
    "strategy", "servers", "events", "imbalance", "traffic_imbalance", "dropped", "servers_per_event",
    "false_positives", "unmatched", "replication", "summary_bytes", "us_per_event",
)  # fmt: skip
COUNTED = ("dropped", "servers_per_event", "false_positives", "replication", "summary_bytes", "us_per_event")


def write(path, rows):
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    return path


@pytest.fixture
def files(tmp_path):
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    for suffix in ("csv", "jsonl", "parquet"):
        write(tmp_path / f"subs.{suffix}", SUBSCRIPTIONS)
        write(tmp_path / f"events.{suffix}", EVENTS)
    return tmp_path


def run(*arguments: object, code: int = 0):
    result = CliRunner().invoke(app, ["partition", *map(str, arguments)])
    assert result.exit_code == code, result.output + result.stderr
    return result


def plan(files, *more: object, suffix: str = "csv", code: int = 0):
    return run(
        "plan", "-s", files / "schema.json", "--subscriptions", files / f"subs.{suffix}", "--servers", 4,
        "--out", files / "plan", *more, code=code,
    )  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("strategy", ["auto", "broadcast", "event-space", "filter-set"])
def test_plan_and_evaluate(files, strategy, suffix):
    """Every strategy, every format; the figures are there and make sense."""
    result = plan(files, "--strategy", strategy, suffix=suffix)
    assert "over 4 servers" in result.stdout or "on 4 servers" in result.stdout
    assert "expected on events made of the filters' constants" in result.stdout
    opened = Plan.open(files / "plan")
    assert strategy in ("auto", opened.strategy)
    arguments = ("evaluate", files / "plan", "--events", files / f"events.{suffix}", "--json")
    figures = json.loads(run(*arguments, "--subscriptions", files / f"subs.{suffix}").stdout)
    assert tuple(figures) == FIELDS
    assert figures["events"] == 800
    assert all(figures[name] >= 0 for name in COUNTED)
    assert 0 <= figures["dropped"] < 1
    assert 0 < figures["servers_per_event"] <= 4
    if opened.strategy != "filter-set":
        assert json.loads(run(*arguments).stdout) | {"us_per_event": 0, "unmatched": 0} == figures | {
            "us_per_event": 0,
            "unmatched": 0,
        }


def test_event_space_drops_half(files):
    """Half of the symbols nobody asks for; a sample tells so before, and evaluating tells so after."""
    said = plan(files, "--strategy", "event-space", "--by", "symbol", "--events", files / "events.csv", "--json")
    before = json.loads(said.stdout)
    assert before["routing_attributes"] == ["symbol"]
    (cost,) = before["considered"]
    figures = json.loads(run("evaluate", files / "plan", "--events", files / "events.csv", "--json").stdout)
    assert figures["dropped"] == cost["dropped"] == pytest.approx(0.5, abs=0.05)
    assert figures["unmatched"] is None
    text = run("evaluate", files / "plan", "--events", files / "events.csv").stdout
    assert [line.split()[0] for line in text.splitlines()] == list(FIELDS)


def test_bad_rows_are_reported_and_left_out(files):
    """Of subscriptions and of events; the others are planned and routed."""
    write(files / "subs.csv", [{"id": 7, "filter": "prise < 3"}, *SUBSCRIPTIONS])
    result = plan(files, "--strategy", "event-space")
    assert "row 0, id '7': unknown attribute 'prise'; did you mean 'price'?" in result.stderr
    assert "400 subscriptions" in result.stdout
    rows = [{"id": None, "filter": "price < 3"}, {"id": "x" * 2000, "filter": "price < 3"}, {"id": 1, "filter": ["x"]}]
    write(files / "subs.jsonl", [*rows, *SUBSCRIPTIONS])
    result = plan(files, "--strategy", "event-space", suffix="jsonl")
    for place in ("row 0, id None: the id is missing", "at most 1,000 characters", "a filter is a text, found list"):
        assert place in result.stderr
    assert "400 subscriptions" in result.stdout
    (files / "events.jsonl").write_text('{"symbol": "S1"}\n{"symbol": 5}\nnonsense\n')
    result = run("evaluate", files / "plan", "--events", files / "events.jsonl", "--json")
    assert json.loads(result.stdout)["events"] == 1
    assert "2 bad events" in result.stderr


def test_show(files):
    """A row per server with a bar, and the pictures asked for."""
    plan(files, "--strategy", "event-space")
    result = run("show", files / "plan", "--out", files / "load.html", "--out", files / "load.png")
    bars = [line for line in result.stdout.splitlines() if "█" in line]
    assert [line.split()[0] for line in bars] == ["0", "1", "2", "3"]
    assert "largest / smallest load" in result.stdout
    assert (files / "load.html").read_text().startswith("<!DOCTYPE html>")
    assert (files / "load.png").stat().st_size > 1000
    assert f"picture: {files / 'load.html'}" in result.stderr


@pytest.mark.parametrize("strategy", ["broadcast", "filter-set"])
def test_show_writes_beside_the_plan_by_default(files, strategy):
    """Also for strategies without buckets to move."""
    plan(files, "--strategy", strategy)
    result = run("show", files / "plan")
    assert (files / "plan.html").exists()
    assert "after" not in result.stdout
    assert Plan.open(files / "plan").strategy == strategy


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--by", "symbl", "--strategy", "event-space"), 2, "unknown attribute 'symbl'; did you mean 'symbol'?"),
        (("--strategy", "best"), 2, "Invalid value"),
        (("--servers", 0), 2, "Invalid value"),
    ],
)
def test_what_cannot_be_planned(files, arguments, code, message):
    """Errors say what to do."""
    assert message in plan(files, *arguments, code=code).stderr


def test_what_is_no_plan(files):
    """A directory without one, and files without anything good."""
    (files / "empty").mkdir()
    shown = run("show", files / "empty", code=1)
    assert "no snapshot here" in shown.stderr
    plan(files)
    (files / "none.jsonl").write_text("")
    assert "has no events" in run("evaluate", files / "plan", "--events", files / "none.jsonl", code=1).stderr
    write(files / "subs.csv", [{"id": 1, "filter": "prise < 3"}])
    assert "nothing to plan" in plan(files, code=1).stderr
    unknown = run("show", files / "plan", "--out", files / "load.gif", code=1)
    assert "unknown suffix '.gif'; name it one of .png" in unknown.stderr
