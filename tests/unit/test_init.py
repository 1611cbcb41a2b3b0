"""`wherecast init` writes a configuration that is read back as what the samples show."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from wherecast.cli.app import app
from wherecast.spark.config import read_config

EVENTS = """\
{"user": {"name": "a", "age": 3}, "price": 1.5, "at": "2026-01-01T00:00:00Z", "day": "2026-01-01", "tags": ["x"]}
{"user": {"name": "b", "age": null}, "price": 2, "at": "2026-01-02T00:00:00Z", "day": "2026-01-01", "tags": []}
"""
RULES = """\
rule_id,note,condition,owner
1,price,"user.name = 'a' AND price > 1",me
2,price,prise < 1,you
3,price,"array_contains(tags, 'x') AND at > '2026-01-01'",her
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "1.jsonl").write_text(EVENTS)
    (tmp_path / "rules.csv").write_text(RULES)
    return tmp_path


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["init", *arguments])
    assert result.exit_code == code, result.output
    return result.output


def test_json_events_and_csv_rules(folder: Path) -> None:
    """Types, columns and places are found, rules that would be refused are shown, and a file that is there is kept."""
    said = run("events", "rules.csv")
    assert "did you mean 'price'?" in said
    assert "1 rules would be refused" in said
    config = read_config(folder / "pipeline.toml")
    types = {a.name: a.type_name for a in config.schema}
    assert types == {
        "user.name": "string",
        "user.age": "integer",
        "price": "float",
        "at": "timestamp",
        "day": "date",
        "tags": "array<string>",
    }
    rules = config.subscriptions
    assert (rules.id, rules.filter, rules.format, rules.options) == ("rule_id", "condition", "csv", {"header": True})
    assert (config.events.path, config.events.format) == ("events", "json")
    assert config.subscribers
    text = (folder / "pipeline.toml").read_text()
    assert '"user.age" = "integer"  # no rule asks for it' in text
    assert "note, owner" in text
    assert "exists already" in run("events", "rules.csv", code=2)
    run("events", "rules.csv", "--force", "--filter", "note")
    assert read_config(folder / "pipeline.toml").subscriptions.filter == "note"


def test_csv_events_beside_parquet_rules(folder: Path) -> None:
    """Columns of CSV are declared in their order; names that are quoted in TOML, and rules without more columns."""
    (folder / "quotes.csv").write_text("sym bol,price,n,at\nA,1.5,3,2026-01-01 10:00:00\n")
    pq.write_table(pa.table({"id": [1, 1], "filter": ["`sym bol` = 'A'", "n > 2"]}), folder / "rules.parquet")
    said = run("quotes.csv", "rules.parquet", "--out", "deep/er/p.toml")
    assert "the id 1 is there more than once" in said
    config = read_config(folder / "deep/er/p.toml")
    assert config.events.columns == "`sym bol` STRING, `price` DOUBLE, `n` BIGINT, `at` TIMESTAMP"
    assert config.events.options == {"header": True, "pathGlobFilter": "*.csv"}
    assert config.path(str(config.events.path)) == str(folder)
    assert not config.subscribers
    (folder / "more.csv").write_text("id,filter\n1,price > 1\n")
    assert "only 'quotes.csv' is read" in run("quotes.csv", "more.csv")
    assert read_config(folder / "pipeline.toml").events.options["pathGlobFilter"] == "quotes.csv"


def test_what_cannot_be_found_is_asked_for(folder: Path) -> None:
    """Rules without filters or ids, a column that is not there, a folder without files, another suffix."""
    (folder / "odd.csv").write_text("number,text\n1,price > 1\n")
    assert "looks like an id (number, text); name one with --id" in run("events", "odd.csv", code=1)
    (folder / "none.csv").write_text("id,text\n1,hello there\n")
    assert "name one with --filter" in run("events", "none.csv", code=1)
    assert "no column 'x'" in run("events", "rules.csv", "--id", "x", code=2)
    (folder / "empty").mkdir()
    assert "has no files" in run("empty", "rules.csv", code=1)
    (folder / "a.txt").write_text("")
    assert "unknown suffix" in run("a.txt", "rules.csv", code=2)
