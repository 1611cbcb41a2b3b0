"""The command line as a whole: what is printed where, and how commands end."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import wherecast
from wherecast.broker.settings import Settings
from wherecast.cli.app import app

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
WHERECAST = [sys.executable, "-c", "from wherecast.cli import main; main()"]
SCHEMA = {"symbol": "string", "price": "double", "volume": "integer", "day": "date", "tags": "array<string>"}


@pytest.fixture
def schema(tmp_path):
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(SCHEMA))
    return path


def run(*args, stdin=None):
    return CliRunner().invoke(app, [str(a) for a in args], input=stdin)


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


# -- the program ------------------------------------------------------------------------------------------------------


def test_version():
    """--version prints the version of the package."""
    assert run("--version").stdout.strip() == f"wherecast {wherecast.__version__}"


COMMANDS = [
    "check",
    "init",
    "lint",
    "match",
    "demo",
    "doctor",
    "warm",
    "serve",
    "space",
    "subscribe",
    "publish",
    "tail",
    "subscriptions",
    "tell",
    "subscribers",
    "deliveries",
    "replay",
]


@pytest.mark.sampled
@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)])
def test_help_has_examples(command):
    """Every command explains itself, with an example."""
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert "Examples:" in result.stdout
    assert "wherecast " in result.stdout


def test_serve_names_every_setting():
    """The help of `serve` has all settings of a broker, and the guides say what each does."""
    names = {field.name for field in dataclasses.fields(Settings)}
    words = re.findall(r"\w+", plain(run("serve", "--help").stdout).partition("They are:")[2].partition("guides")[0])
    assert names - set(words) == set()
    guides = "".join((GUIDES / f"{name}.md").read_text() for name in ("broker", "delivery"))
    assert {name for name in names if f"`{name}`" not in guides} == set()


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("nonsense",),
        ("check",),
        ("check", "TRUE"),
        ("check", "TRUE", "--schema", "missing.json"),
        ("match", "--schema", "missing.json"),
        ("demo",),
        ("demo", "--out", "d", "--events", "0"),
        ("demo", "--out", "d", "--seed", "x"),
        ("replay", "--token", "t"),
        ("replay", "d1", "--all", "--token", "t"),
        ("deliveries", "--dead", "--pending", "--token", "t"),
    ],
)
def test_wrong_call_is_2(args):
    """A wrong call ends with 2 and says so on standard error (no command at all: with the help)."""
    result = run(*args)
    assert result.exit_code == 2
    assert not args or (result.stderr and not result.stdout)


@pytest.mark.slow
def test_start_up_imports_no_heavy_library(schema):
    """Help and check load neither Arrow nor Numba, pandas, Spark or plotting."""
    heavy = "{'pyarrow', 'numba', 'pandas', 'pyspark', 'matplotlib', 'duckdb'}"
    for args in (["--help"], ["check", "symbol = 'IBM' AND price < 120", "--schema", str(schema)]):
        script = (
            f"import sys; from wherecast.cli.app import app; app({args!r}, standalone_mode=False); "
            f"print(sorted({heavy} & set(sys.modules)))"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.slow
def test_an_engine_loads_no_pandas():
    """Its users may have it for other things, and it takes a third of a second to load."""
    script = (
        "import sys; from wherecast import Engine; e = Engine({'a': 'int'}); e.subscribe(1, 'a > 1'); "
        "print(e.match({'a': 2}), 'pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[1]", "False"]


def test_internal_error_is_a_message(monkeypatch, schema):
    """A bug of ours is a message on standard error and exit code 1, not a traceback."""
    monkeypatch.setattr("wherecast.cli.check.inspect_filter", lambda *_: 1 / 0)
    result = run("check", "TRUE", "--schema", schema)
    assert result.exit_code == 1
    assert "error: internal error: ZeroDivisionError" in plain(result.stderr)
    assert "Traceback" not in result.stderr


def test_interrupt_is_130(monkeypatch, schema):
    """Ctrl-C ends with 130."""

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("wherecast.cli.check.inspect_filter", interrupt)
    result = run("check", "TRUE", "--schema", schema)
    assert result.exit_code == 130
    assert plain(result.stderr) == "error: interrupted\n"


# -- check ------------------------------------------------------------------------------------------------------------

PAGES = [
    (
        "symbol = 'IBM' AND price < 120",
        ["symbol = 'IBM' AND price < 120.0", "symbol    {'IBM'}", "price     [-inf, 120.0)"],
    ),
    ("price > 5", ["price     (5.0, NaN]"]),
    ("volume <> 3 AND volume > 0", ["volume    [1, 2] | [4, +inf)"]),
    ("volume IN (3, 1) OR volume IS NULL", ["volume    {NULL} | {1} | {3}"]),
    ("symbol LIKE 'AB%'", ["symbol    ['AB', 'AC')"]),
    ("symbol LIKE 'a%b'", ["symbol    ['a', 'b')", "residual  symbol LIKE 'a%b'", "note: residual"]),
    ("symbol > 'it''s'", ["symbol    ('it''s', +inf)"]),
    ("price * 2 > 5", ["note: price * 2 becomes a column of the index, and its conditions part of the box, once 8"]),
    ("price * 1.50 > volume", ["price     not NULL", "residual  (price * 1.50) > volume"]),
    ("NOT (day < '2024-01-31')", ["day       [DATE '2024-01-31', +inf)"]),
    ("array_contains(tags, 'x')", ["tags      some element in {'x'}"]),
    ("price = 1 OR symbol = 'a'", ["box of clause 1", "box of clause 2", "  OR "]),
    ("price = 1 AND price = 2", ["normal form\n  FALSE", "note: never matches"]),
    ("price IS NULL OR price IS NOT NULL", ["normal form\n  TRUE", "everything", "note: always matches"]),
    ("(price > volume) IS NULL", ["everything", "evaluated on every event"]),
    (" AND ".join(f"(price < {i} OR volume < {i})" for i in range(10)), ["note: covering boxes"]),
]


@pytest.mark.parametrize(("text", "parts"), PAGES, ids=[text[:40] for text, _ in PAGES])
def test_check_shows_meaning(schema, text, parts):
    """Check prints the normal form, the boxes and what is notable."""
    result = run("check", text, "--schema", schema)
    assert result.exit_code == 0
    assert not result.stderr
    for part in parts:
        assert part in result.stdout


ERRORS = [
    ("prise < 3", "unknown attribute 'prise'; did you mean 'price'?", "  prise < 3\n  ^^^^^"),
    ("price < 3 AND sym = 'a'", "unknown attribute 'sym'", "  price < 3 AND sym = 'a'\n                ^^^"),
    ("price < 3\nAND foo = 1", "(at 2:5)", "  AND foo = 1\n      ^^^"),
    ("symbol = '日本' AND foo = 1", "foo", "  symbol = '日本' AND foo = 1\n                      ^^^"),
    ("price < 3\tAND foo = 1", "foo", "  price < 3 AND foo = 1\n                ^^^"),
    ("symbol = 'a\x1b[31m' AND foo = 1", "foo", "  symbol = 'a?[31m' AND foo = 1\n                        ^^^"),
    ("", "the filter is empty", ""),
    ("price < 'x'", "write a number without quotes", "^"),
    ("price <", "", "^"),
    ("(SELECT 1) = 1", "not supported", "^"),
    ("day = '2024-02-30'", "2024-02-30", "^"),
]


@pytest.mark.parametrize(("text", "message", "caret"), ERRORS, ids=[repr(text)[:40] for text, _, _ in ERRORS])
def test_check_points_at_the_error(schema, text, message, caret):
    """A wrong filter gives exit code 1, its message and a caret under the place, all on standard error."""
    result = run("check", text, "--schema", schema)
    assert result.exit_code == 1
    assert not result.stdout
    assert plain(result.stderr).startswith("error: ")
    assert message in result.stderr
    assert caret in result.stderr


def test_long_line_is_cut_around_the_caret(schema):
    """A line that would flood the terminal is cut to the surroundings of the error."""
    text = " OR ".join(["price = 1"] * 100 + ["foo = 1"] + ["price = 2"] * 100)
    result = run("check", text, "--schema", schema)
    line, carets = plain(result.stderr).splitlines()[1:3]
    assert len(line) < 150
    assert line[carets.index("^") : carets.index("^") + 3] == "foo"


def test_check_reads_stdin(schema):
    """`-` is standard input."""
    assert "price < 3.0" in run("check", "-", "--schema", schema, stdin="price < 3\n").stdout


def test_check_json(schema):
    """--json prints clauses, boxes and notes as JSON."""
    result = json.loads(run("check", "price < 120 AND symbol LIKE 'a%b'", "--schema", schema, "--json").stdout)
    assert result["matches"] == "sometimes"
    (clause,) = result["clauses"]
    assert clause["residual"] == "symbol LIKE 'a%b'"
    price = next(b for b in clause["box"] if b["attribute"] == "price")
    assert price["type"] == "float"
    assert price["intervals"] == [{"low": "-inf", "low_closed": True, "high": "120.0", "high_closed": False}]


def test_check_json_error(schema):
    """With --json an error is JSON too, with offsets, and the exit code is still 1."""
    result = run("check", "price < 3 AND foo = 1", "--schema", schema, "--json")
    error = json.loads(result.stdout)["error"]
    assert result.exit_code == 1
    assert (error["reason"], error["start"], error["end"], error["line"], error["column"]) == (
        "unknown-attribute", 14, 17, 1, 15,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("s.txt", "{}", "unknown suffix"),
        ("s.json", "{", "not readable JSON"),
        ("s.json", '{"a": "decimal(39,1)"}', "decimal"),
        ("s.yaml", "a: [", "not readable YAML"),
        ("s.yaml", "- a", "a schema is a mapping"),
        ("s.json", "\udcff", "not UTF-8"),
    ],
)
def test_unreadable_schema_is_2(tmp_path, name, content, message):
    """A schema that cannot be read is a wrong call."""
    path = tmp_path / name
    path.write_bytes(content.encode(errors="surrogateescape"))
    result = run("check", "TRUE", "--schema", path)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not result.stdout


def test_yaml_schema(tmp_path):
    """A YAML schema with domains works like a JSON one."""
    path = tmp_path / "schema.yml"
    path.write_text("price: {type: double, min: 0}\nside: {type: string, values: [buy, sell]}\n")
    assert run("check", "side = 'buy' AND price > 1", "--schema", path).exit_code == 0


# -- the real program -------------------------------------------------------------------------------------------------


@pytest.fixture
def many(tmp_path, schema):
    """Files with a match for every event."""
    subscriptions, events = tmp_path / "subscriptions.csv", tmp_path / "events.parquet"
    subscriptions.write_text("id,filter\n" + "".join(f"s{i},price >= {i}\n" for i in range(200)))
    pq.write_table(pa.table({"price": [float(i % 300) for i in range(2_000)]}), events)
    return ["match", "--schema", str(schema), "--subscriptions", str(subscriptions), "--events", str(events)]


@pytest.mark.slow
def test_output_into_a_pipe(many):
    """Results go to standard output, the summary to standard error, and no progress bar is drawn."""
    done = subprocess.run([*WHERECAST, *many], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[0] == "event,subscription"
    assert lines[1] == "0,s0"
    assert "2,000 events against 200 subscriptions" in done.stderr
    assert "\x1b" not in done.stderr
    assert "matching" not in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="no pseudo-terminals")
def test_progress_on_a_terminal(many, tmp_path):
    """Where standard error is a terminal, a bar moves there; standard output stays clean."""
    import pty

    leader, follower = pty.openpty()
    with (tmp_path / "out.csv").open("wb") as out:
        process = subprocess.Popen(
            [*WHERECAST, *many], stdout=out, stderr=follower, env={**os.environ, "TERM": "xterm"}
        )
    os.close(follower)
    shown = b""
    try:
        while chunk := os.read(leader, 4096):
            shown += chunk
    except OSError:  # how Linux says that the other end was closed
        pass
    os.close(leader)
    assert process.wait() == 0
    assert b"matching" in shown
    assert b"100%" in shown
    assert b"2,000 events against 200 subscriptions" in shown
    assert (tmp_path / "out.csv").read_bytes().startswith(b"event,subscription\n0,s0\n")


@pytest.mark.slow
def test_closed_pipe_is_quiet(many):
    """A reader that goes away ends the program without a word."""
    process = subprocess.Popen([*WHERECAST, *many], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"event,subscription\n"
    process.stdout.close()
    errors = process.stderr.read().decode()
    assert process.wait() == 141
    assert "Traceback" not in errors
    assert "Exception" not in errors
    assert "error" not in errors


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_interrupted_run_leaves_no_file(many, tmp_path):
    """Ctrl-C ends a run with 130 and leaves neither a half result nor a partial file."""
    # Standard output is a pipe that nobody reads, so the run hangs in the middle; --out is not asked for.
    process = subprocess.Popen([*WHERECAST, *many], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130
    assert b"Traceback" not in errors
    assert not list(Path(tmp_path).glob(".*.partial"))


@pytest.mark.slow
def test_help_into_a_closed_pipe():
    """Even help may be cut short."""
    done = subprocess.run(
        f"{sys.executable} -c 'from wherecast.cli import main; main()' --help | head -1",
        shell=True, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
