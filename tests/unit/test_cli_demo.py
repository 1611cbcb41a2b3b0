"""`wherecast demo --no-spark`: a workload of its own, matched and shown. With Spark: tests/integration/test_demo.py."""

from __future__ import annotations

import re
import shlex
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from wherecast import Engine, Schema
from wherecast.cli.app import app
from wherecast.cli.demo_acts import SqlSample, busiest, fired_quotes, first_match
from wherecast.cli.demo_market import SCHEMA, WATCHED, AlertMarket, ChangeLog
from wherecast.cli.demo_page import duration
from wherecast.cli.demo_stream import _make_room, _write_workload, live_delays

SMALL = ("--no-spark", "--subscriptions", "500", "--events", "300")


def run(*args):
    return CliRunner().invoke(app, [str(a) for a in args])


def test_demo_and_its_command(tmp_path):
    """The demo writes its files and shows results; the command it prints gives the same matches."""
    out = tmp_path / "new folder"
    result = run("demo", "--out", out, *SMALL)
    assert result.exit_code == 0, result.stderr
    assert {p.name for p in out.iterdir()} == {
        "schema.json", "subscriptions.parquet", "events.parquet", "matches.parquet",
    }  # fmt: skip
    matches = pq.read_table(out / "matches.parquet")
    assert matches.num_rows > 0
    assert f"300 events against 500 subscriptions: {matches.num_rows:,} matches" in result.stderr
    for part in ("subscriptions told most often", "symbols with most matches", "a near miss", "FAIL", "all done in"):
        assert part in result.stdout
    command = re.search(r"^  (wherecast match .*)$", result.stdout, re.MULTILINE)[1]
    (out / "matches.parquet").unlink()
    assert run(*shlex.split(command)[1:]).exit_code == 0
    order = [("event", "ascending"), ("subscription", "ascending")]
    assert pq.read_table(out / "matches.parquet").sort_by(order).equals(matches.sort_by(order))


@pytest.mark.slow
def test_seed_decides(tmp_path):
    """The same seed gives the same files, another seed others."""
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert run("demo", "--out", tmp_path / name, *SMALL, "--seed", seed).exit_code == 0
    tables = [
        [pq.read_table(tmp_path / n / f"{f}.parquet") for f in ("subscriptions", "events", "matches")] for n in "abc"
    ]
    assert all(x.equals(y) for x, y in zip(tables[0], tables[1], strict=True))
    assert not any(x.equals(y) for x, y in zip(tables[0], tables[2], strict=True))


@pytest.mark.slow
def test_again_into_the_same_folder(tmp_path):
    """A second run replaces the files of the first."""
    assert run("demo", "--out", tmp_path, *SMALL).exit_code == 0
    assert run("demo", "--out", tmp_path, *SMALL).exit_code == 0


@pytest.mark.parametrize("name", ["index", "events", "matches", "pipeline.toml"])
def test_what_is_not_of_a_demo_is_left_alone(tmp_path, name):
    """On Spark the demo replaces folders: only those of an earlier demo."""
    if name == "pipeline.toml":
        (tmp_path / name).write_text("# mine\n")
    else:
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine").write_text("x")
    before = sorted(tmp_path.rglob("*"))
    result = run("demo", "--out", tmp_path, *SMALL[1:])
    assert result.exit_code == 2
    plain = re.sub(r"\x1b\[[0-9;]*m", "", result.stderr)
    assert f"'{tmp_path / name}' was not made by a demo" in plain
    assert "--out" in plain
    assert sorted(tmp_path.rglob("*")) == before


def test_what_is_of_a_demo_is_replaced(tmp_path):
    """Folders beside the configuration of an earlier demo go; what else is there stays."""
    for _ in range(2):
        _make_room(tmp_path / "out")
        _write_workload(tmp_path / "out", 20, 10, seed=1)
        assert len(list((tmp_path / "out" / "events").iterdir())) == 10
        for name in ("index", "events"):
            (tmp_path / "out" / name / "old").mkdir(parents=True)
        (tmp_path / "out" / "note").write_text("mine")
    _make_room(tmp_path / "out")
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        "changes", "events", "note", "pipeline.toml", "schema.json", "subscriptions.parquet",
    }  # fmt: skip
    assert not list((tmp_path / "out" / "events").iterdir())


def test_out_must_be_a_folder(tmp_path):
    """A file in the place of the folder is a wrong call."""
    (tmp_path / "file").write_text("x")
    assert run("demo", "--out", tmp_path / "file", *SMALL).exit_code == 2
    result = run("demo", "--out", tmp_path / "file" / "sub", *SMALL)
    assert result.exit_code == 2
    assert "cannot be written" in result.stderr


def test_without_pyspark_it_says_so(tmp_path, monkeypatch):
    """Where Spark is missing the small demo runs, and says what to install."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = run("demo", "--out", tmp_path, *SMALL[1:])
    assert result.exit_code == 0, result.stderr
    assert "PySpark is not installed (pip install 'wherecast[spark]')" in result.stderr
    assert (tmp_path / "matches.parquet").exists()


def test_alerts_and_quotes():
    """Every alert compiles, popular symbols are asked for more, and a third of the quotes is for symbols nobody watches."""
    market = AlertMarket(3)
    subscriptions = market.subscriptions(2_000)
    engine = Engine(SCHEMA)
    assert not engine.subscribe_many(subscriptions.select(["id", "filter"])).quarantined
    quotes = market.quotes(5_000)
    assert quotes.column_names == [a.name for a in Schema.of(SCHEMA)]
    watched = set(market.symbols[:WATCHED])
    assert 0.25 < sum(s not in watched for s in quotes["symbol"].to_pylist()) / 5_000 < 0.4
    assert 0 < engine.match_batch(quotes).total() < 20 * 5_000
    filters = subscriptions["filter"].to_pylist()
    asked = [sum(f"'{symbol}'" in text for text in filters) for symbol in market.symbols[:300]]
    assert sum(asked[:10]) > 3 * max(1, sum(asked[200:210]))
    later = market.quotes(10)
    assert min(later["time"].to_pylist()) > max(quotes["time"].to_pylist())


def test_change_log():
    """Sequence numbers rise without a gap, new ids are new, and deletes carry no filter."""
    log = ChangeLog(AlertMarket(3), 1_000)
    changes = pa.concat_tables([log.write(50), log.write(50)])
    assert changes["sequence"].to_pylist() == list(range(1, 101))
    new = [i for i in changes["id"].to_pylist() if i >= 1_000]
    assert list(dict.fromkeys(new)) == list(range(1_000, log.subscriptions))
    for op, text in zip(changes["op"].to_pylist(), changes["filter"].to_pylist(), strict=True):
        assert (op == "delete") == (text is None)


def test_when_changes_are_live():
    """The delay of changes ends with the first batch whose index has them; changes that none has count for nothing."""
    batches = [
        SimpleNamespace(started_s=float(n), report=SimpleNamespace(version=version))
        for n, version in enumerate([1, 1, 2, 3])
    ]
    written = [(10, 0.5), (20, 1.5), (30, 2.5)]
    assert live_delays(written, batches, {1: 0, 2: 10, 3: 20}) == [1.5, 1.5]


def test_what_is_shown_of_a_run(tmp_path):
    """Quotes with the rules they fired, and the first match of a rule that was edited: with the owner after the edit."""
    market = AlertMarket(3)
    quotes = market.quotes(6)
    for batch, subscriber in enumerate(["user-1", "you"]):
        folder = tmp_path / "matches" / f"batch_id={batch}"
        folder.mkdir(parents=True)
        rows = pa.concat_tables([quotes.slice(0, 1)] * 4 + [quotes.slice(3, 2)])
        rows = rows.append_column("subscription", pa.array([0, 1, 2, 3, 1, 9]))
        rows = rows.append_column("subscriber", pa.array([subscriber, *["user-7"] * 5]))
        pq.write_table(rows.append_column("channel", pa.array(["mail"] * 6)), folder / "part.parquet")
    fired = fired_quotes(tmp_path, 1, {0: "a", 1: "b", 2: "c", 3: "d", 9: None})
    assert [(f.quote["symbol"], len(f.alerts), f.total) for f in fired] == [
        (quotes["symbol"][0].as_py(), 3, 4),
        (quotes["symbol"][3].as_py(), 1, 1),
    ]
    assert fired[0].alerts[0] == (0, "a", "you", "mail")
    batches = [SimpleNamespace(batch=n, started_s=10.0 + n, seconds=0.5) for n in range(2)]
    edit = first_match(tmp_path, batches, 0, "you", "before", "after", written=10.25)
    assert (edit.before, edit.after, edit.seconds) == ("before", "after", 1.25)
    assert edit.quote["symbol"] == quotes["symbol"][0].as_py()
    assert first_match(tmp_path, batches, 0, "her", "", "", 0) is None
    assert busiest([quotes, quotes.slice(2, 1)]) == quotes["symbol"][2].as_py()
    sample = SqlSample(400, 30_000, 3.0, 0.0075, 320)
    assert sample.scaled_s(100_000, 600_000) == pytest.approx(15_000)
    assert [duration(s) for s in (0.5, 15, 600, 15_000, 400_000)] == [
        "0.50 s",
        "15 s",
        "10 minutes",
        "4 hours",
        "5 days",
    ]
