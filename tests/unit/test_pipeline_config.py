"""A pipeline's configuration is checked whole, and what is wrong is named by table and key."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wherecast.cli.app import app
from wherecast.spark import config as module
from wherecast.spark.config import ConfigError, read_config
from wherecast.spark.sinks.parquet import Parquet

SMALL = {
    "pipeline": {"index": "index", "checkpoint": "checkpoint"},
    "schema": {"attributes": {"symbol": "string", "price": "double"}},
    "subscriptions": {"path": "subscriptions.parquet"},
    "events": {"source": "files", "path": "events"},
    "sink": {"kind": "parquet", "path": "matches"},
}


def toml(tables):
    """JSON values of one level are TOML values; inner tables are written in line."""

    def value(v):
        if isinstance(v, dict):
            return "{" + ", ".join(f'"{k}" = {value(x)}' for k, x in v.items()) + "}"
        return json.dumps(v)

    return "".join(
        f"[{name}]\n" + "".join(f'"{k}" = {value(v)}\n' for k, v in content.items()) for name, content in tables.items()
    )


@pytest.fixture
def write(tmp_path):
    def write(changes, without=()):
        tables = {name: dict(content) for name, content in SMALL.items() if name not in without}
        for place, value in changes.items():
            table, _, key = place.partition(".")
            tables.setdefault(table, {})
            if key:
                tables[table][key] = value
        path = tmp_path / "pipeline.toml"
        path.write_text(toml({n: {k: v for k, v in c.items() if v is not None} for n, c in tables.items()}))
        return path

    return write


def test_names_of_columns(write):
    """Other names for added columns are checked with the rest."""
    config = read_config(
        write({"pipeline.names": {"error": "why"}, "sink.batch_column": "run", "sink.partition_by": ["day"]})
    )
    assert (config.names, config.sink.batch_column) == ({"error": "why"}, "run")
    assert list(config.sink.partition_by) == ["day"]
    assert read_config(write({})).sink.batch_column == "batch_id"
    with pytest.raises(ConfigError, match=r"pipeline\.names: matching adds no column 'eror'"):
        read_config(write({"pipeline.names": {"eror": "why"}}))


def test_who_writes_parquet(write):
    """Spark, unless the file says that the tasks that match do."""
    assert Parquet.of(read_config(write({})).sink, "").written_by == "spark"
    assert Parquet.of(read_config(write({"sink.written_by": "python"})).sink, "").written_by == "python"
    with pytest.raises(ConfigError, match=r"sink\.written_by is 'java'; there are: spark, python"):
        read_config(write({"sink.written_by": "java"}))


def test_small_one_has_defaults(write, tmp_path):
    """What is left out has the default that the documentation gives."""
    config = read_config(write({}))
    assert (config.output, config.trigger, config.subscribers) == ("pairs", "1 second", False)
    assert (config.plan.strategy, config.plan.servers, config.plan.rebalance) == ("auto", None, None)
    assert (config.limits.layers, config.limits.versions) == (16, 10)
    assert config.subscriptions.sequence == 0
    assert config.changes is None
    assert config.dead_letters is None
    assert config.path("matches") == str(tmp_path / "matches")
    assert config.path("s3://bucket/matches") == "s3://bucket/matches"
    assert config.path("/matches") == "/matches"


def test_places_do_not_depend_on_where_one_stands(write, tmp_path, monkeypatch):
    """A file that is named from its own folder has the places that it has from elsewhere."""
    path = write({"pipeline.checkpoint": "checkpoint/"})
    monkeypatch.chdir(tmp_path)
    for config in (read_config(path), read_config(Path(path.name))):
        assert config.path("matches") == str(tmp_path / "matches")
        assert config.checkpoint_of("events") == str(tmp_path / "checkpoint" / "events")
    assert read_config(write({"pipeline.checkpoint": "s3://b/ck/"})).checkpoint_of("events") == "s3://b/ck/events"


def test_documented_example_is_valid(tmp_path):
    """The example in the module's docstring is a configuration."""
    text = module.__doc__.split("::\n\n", 1)[1].split("\nRelative paths", 1)[0]
    path = tmp_path / "pipeline.toml"
    path.write_text("\n".join(line.removeprefix("    ") for line in text.splitlines()))
    (tmp_path / "schema.json").write_text('{"symbol": "string"}')
    config = read_config(path)
    assert config.subscribers
    assert config.events.columns == "id BIGINT, symbol STRING, price DOUBLE"
    assert config.spark == {"spark.sql.shuffle.partitions": 8}


WRONG = [
    ({"nonsense.x": 1}, (), r"unknown table \[nonsense\]"),
    ({"even.x": 1}, (), r"unknown table \[even\] \(did you mean 'events'\?\)"),
    ({"pipeline.idnex": "x"}, (), r"unknown key 'idnex' in \[pipeline\] \(did you mean 'index'\?\); there are: index,"),
    ({"pipeline.index": None}, (), r"the key 'index' is missing in \[pipeline\]"),
    ({}, ("sink",), r"the table \[sink\] is missing"),
    ({"pipeline.output": "rows"}, (), r"pipeline.output is 'rows'; there are: pairs, lists, counts"),
    (
        {"pipeline.trigger": "soon"},
        (),
        r"pipeline.trigger is 'soon'; expected 'available-now' or an interval such as '5 seconds'",
    ),
    ({"pipeline.subscribers": 1}, (), r"pipeline.subscribers is 1; expected true or false"),
    ({"pipeline.subscribers": True, "pipeline.output": "lists"}, (), r"pipeline.subscribers needs pipeline.output"),
    ({"plan.servers": 0}, (), r"plan.servers is 0; expected 1 or more"),
    ({"plan.servers": "8"}, (), r"plan.servers is '8'; expected a whole number"),
    ({"plan.servers": True}, (), r"plan.servers is True; expected a whole number"),
    ({"plan.rebalance": 0.5}, (), r"plan.rebalance is 0.5; expected 1 or more"),
    ({"plan.strategy": "magic"}, (), r"plan.strategy is 'magic'"),
    ({"limits.layers": 0}, (), r"limits.layers is 0; expected 1 or more"),
    ({"limits.versions": 1}, (), r"limits.versions is 1; expected 2 or more"),
    ({"subscriptions.sequence": -1}, (), r"subscriptions.sequence is -1; expected 0 or more"),
    ({"subscriptions.sequence": 1.5}, (), r"subscriptions.sequence is 1.5; expected a whole number"),
    ({"events.path": None}, (), r"\[events\] of files needs the key 'path'"),
    ({"events.source": "kafka"}, (), r"\[events\] of kafka needs the key 'servers'"),
    ({"events.select": "price"}, (), r"events.select is 'price'; expected a list of strings"),
    ({"changes.source": "rate"}, (), r"changes.source is 'rate'; there are: files, kafka"),
    ({"sink.kind": "delta", "sink.path": None}, (), r"\[sink\] of delta needs the key 'path' or 'table'"),
    ({"sink.kind": "iceberg", "sink.path": "p"}, (), r"\[sink\] of iceberg needs the key 'table'"),
    ({"sink.kind": "jdbc", "sink.path": None}, (), r"\[sink\] of jdbc needs the key 'url'"),
    ({"sink.kind": "jdbc", "sink.url": "jdbc:postgresql:x"}, (), r"\[sink\] of jdbc needs the key 'table'"),
    ({"sink.kind": "foreach"}, (), r"sink.kind is 'foreach'; there are: parquet, kafka, delta, iceberg, jdbc"),
    ({"schema.attributes": None}, (), r"\[schema\] needs either 'file' or 'attributes'"),
    ({"schema.attributes": None, "schema.file": "missing.json"}, (), r"\[schema\]: .*missing.json"),
    ({"schema.attributes": {"price": "dubble"}}, (), r"\[schema\]: .*dubble"),
]


@pytest.mark.parametrize(("changes", "without", "message"), WRONG, ids=[message[:50] for _, _, message in WRONG])
def test_what_is_wrong_is_named(write, changes, without, message):
    """Each mistake is refused in one line that says where it is."""
    with pytest.raises(ConfigError, match=message) as caught:
        read_config(write(changes, without))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("command", ["build", "run", "explain", "status"])
def test_commands_refuse_it_before_spark_starts(write, command, monkeypatch):
    """A wrong configuration, or none, is a wrong call: exit code 2, one line, no session."""
    monkeypatch.setattr("wherecast.spark.pipeline.create_session", lambda *_, **__: pytest.fail("Spark was started"))
    done = CliRunner().invoke(app, ["pipeline", command, str(write({"pipeline.idnex": "x"}))])
    assert done.exit_code == 2
    plain = re.sub(r"\x1b\[[0-9;]*m", "", done.stderr)
    assert plain.count("\n") == 1
    assert "pipeline.toml: unknown key 'idnex' in [pipeline]" in plain
    assert CliRunner().invoke(app, ["pipeline", command, "missing.toml"]).exit_code == 2


@pytest.mark.parametrize("command", [(), ("build",), ("run",), ("explain",), ("status",)])
def test_help(command):
    """Every command explains itself; each has examples."""
    done = CliRunner().invoke(app, ["pipeline", *command, "--help"])
    assert done.exit_code == 0
    assert not command or "Examples:" in done.stdout


def test_no_toml(tmp_path):
    """What is no TOML is named with its place."""
    path = tmp_path / "pipeline.toml"
    path.write_text("[pipeline\n")
    with pytest.raises(ConfigError, match=r"pipeline.toml' is not valid TOML: .*line 1"):
        read_config(path)
    with pytest.raises(ConfigError, match=r"cannot be read: Is a directory"):
        read_config(tmp_path)


def test_status_without_an_index(write):
    """A pipeline that has not been built says so."""
    done = CliRunner().invoke(app, ["pipeline", "status", str(write({}))])
    assert done.exit_code == 0
    assert "not built yet" in done.stdout
    done = CliRunner().invoke(app, ["pipeline", "status", "--json", str(write({}))])
    assert json.loads(done.stdout)["versions"] == []
