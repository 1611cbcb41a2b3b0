"""`wherecast demo`: a workload of its own, matched and shown."""

from __future__ import annotations

import re
import shlex

import pyarrow.parquet as pq
from typer.testing import CliRunner

from wherecast import Schema
from wherecast.cli.app import app
from wherecast.cli.stocks import SCHEMA, StockMarket

SMALL = ("--subscriptions", "500", "--events", "300")


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


def test_seed_decides(tmp_path):
    """The same seed gives the same files, another seed others."""
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert run("demo", "--out", tmp_path / name, *SMALL, "--seed", seed).exit_code == 0
    tables = [
        [pq.read_table(tmp_path / n / f"{f}.parquet") for f in ("subscriptions", "events", "matches")] for n in "abc"
    ]
    assert all(x.equals(y) for x, y in zip(tables[0], tables[1], strict=True))
    assert not any(x.equals(y) for x, y in zip(tables[0], tables[2], strict=True))


def test_again_into_the_same_folder(tmp_path):
    """A second run replaces the files of the first."""
    assert run("demo", "--out", tmp_path, *SMALL).exit_code == 0
    assert run("demo", "--out", tmp_path, *SMALL).exit_code == 0


def test_out_must_be_a_folder(tmp_path):
    """A file in the place of the folder is a wrong call."""
    (tmp_path / "file").write_text("x")
    assert run("demo", "--out", tmp_path / "file", *SMALL).exit_code == 2
    result = run("demo", "--out", tmp_path / "file" / "sub", *SMALL)
    assert result.exit_code == 2
    assert "cannot be written" in result.stderr


def test_workload_fits_its_schema():
    """Quotes have the attributes of the schema, and popular symbols are asked for more."""
    market = StockMarket(3)
    quotes = market.quotes(2_000)
    assert quotes.column_names == [a.name for a in Schema.of(SCHEMA)]
    filters = market.subscriptions(2_000)["filter"].to_pylist()
    asked = [sum(f"'{symbol}'" in text for text in filters) for symbol in market.symbols]
    assert asked[0] > 10 * max(1, asked[200])
