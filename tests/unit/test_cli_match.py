"""`wherecast match`: every format in every place, and what happens to bad input."""

from __future__ import annotations

import csv
import datetime as dt
import gc
import io
import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from wherecast import Engine
from wherecast.cli import csv_rows, events, match
from wherecast.cli.app import app

SCHEMA = {
    "symbol": "string",
    "price": "double",
    "volume": "integer",
    "day": "date",
    "time": "timestamp",
    "halted": "boolean",
    "tags": "array<string>",
    "quote": {"type": "struct", "fields": {"bid": "double", "ask": "double"}},
}
SUBSCRIPTIONS = [
    ("007", "symbol = 'IBM' AND price < 120"),
    ("a,b", "symbol IN ('IBM', 'X,\"Y\"')"),
    ('q"uote', "volume >= 1000 OR price IS NULL"),
    ("dates", "day >= '2024-02-01' AND time < TIMESTAMP '2024-03-01 00:00:00'"),
    ("halted", "halted"),
    ("tags", "array_contains(tags, 'x')"),
    ("spread", "quote.ask - quote.bid > 0.5"),
    ("empty", "symbol = ''"),
    ("nan", "price > 1e300"),
    ("naïve é", "symbol LIKE 'é%'"),
    ("line\nbreak", "symbol = 'two\nlines'"),
]
EVENTS = [
    {"symbol": "IBM", "price": 119.5, "volume": 10, "halted": False, "tags": ["x", "y"]},
    {"symbol": 'X,"Y"', "volume": 10**15},
    {"symbol": "", "price": 1.0, "day": dt.date(2024, 2, 29), "time": dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)},
    {"price": float("nan"), "quote": {"bid": 1.0, "ask": 2.0}},
    {"symbol": "été", "price": float("-inf"), "halted": True, "tags": []},
    {"symbol": "two\nlines", "price": 2.5, "volume": -(2**63), "quote": {"bid": 1.0, "ask": 1.25}},
    {},
]
SUFFIXES = ("csv", "jsonl", "parquet")


def expected():
    engine = Engine(SCHEMA)
    for name, text in SUBSCRIPTIONS:
        engine.subscribe(name, text)
    return sorted((row, name) for row, event in enumerate(EVENTS) for name in engine.match(event))


def write_rows(path, rows, columns):
    """Rows (mappings) as a file of any format; a missing value is an empty field, an absent key or NULL."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows, schema=columns), path)
    elif path.suffix == ".csv":
        path.write_text(csv_text(rows, columns.names), newline="")
    else:
        path.write_text("".join(json.dumps(row, default=lambda v: v.isoformat()) + "\n" for row in rows))
    return path


def csv_text(rows, names):
    flat = [n for name in names for n in (["quote.bid", "quote.ask"] if name == "quote" else [name])]

    def field(row, name):
        value = row.get(name, (row.get("quote") or {}).get(name[6:]) if name.startswith("quote.") else None)
        if value is None:
            return ""
        value = (
            json.dumps(value)
            if isinstance(value, list)
            else value.isoformat()
            if isinstance(value, dt.date)
            else str(value)
        )
        return '"' + value.replace('"', '""') + '"'

    return "".join(",".join(line) + "\n" for line in [flat, *([field(row, n) for n in flat] for row in rows)])


EVENT_COLUMNS = pa.schema(
    [
        ("symbol", pa.string()),
        ("price", pa.float64()),
        ("volume", pa.int64()),
        ("day", pa.date32()),
        ("time", pa.timestamp("us", "UTC")),
        ("halted", pa.bool_()),
        ("tags", pa.list_(pa.string())),
        ("quote", pa.struct([("bid", pa.float64()), ("ask", pa.float64())])),
    ]
)
SUBSCRIPTION_COLUMNS = pa.schema([("id", pa.string()), ("filter", pa.string())])


class Case:
    """Files in a folder and a way to match them."""

    def __init__(self, folder):
        self.folder = folder
        self.schema = folder / "schema.json"
        self.schema.write_text(json.dumps(SCHEMA))
        self.subscriptions = folder / "subscriptions.csv"
        self.events = folder / "events.csv"

    def run(self, *args):
        """Match the files."""
        files = ["--schema", self.schema, "--subscriptions", self.subscriptions, "--events", self.events]
        return CliRunner().invoke(app, ["match", *map(str, files), *map(str, args)])


@pytest.fixture
def case(tmp_path):
    case = Case(tmp_path)
    case.subscriptions.write_text("id,filter\ncheap,price < 10\nbig,volume > 5\n")
    case.events.write_text("price,volume\n1.5,3\n20,9\n,\n2,6\n")
    return case


def pairs(text):
    """The rows of a CSV result as text, in order; within one event the order of subscriptions means nothing."""
    header, *lines = text.splitlines()
    assert header == "event,subscription"
    assert [int(line.split(",")[0]) for line in lines] == sorted(int(line.split(",")[0]) for line in lines)
    return sorted(lines)


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def read_matches(path):
    if path.suffix == ".parquet":
        rows = pq.read_table(path).to_pylist()
    elif path.suffix == ".csv":
        rows = list(csv.DictReader(io.StringIO(path.read_text(), newline="")))
    else:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
    return sorted((int(row["event"]), row["subscription"]) for row in rows)


# -- formats ----------------------------------------------------------------------------------------------------------


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("subscriptions", "events", "out"),
    [(a, b, SUFFIXES[(i + j) % len(SUFFIXES)]) for i, a in enumerate(SUFFIXES) for j, b in enumerate(SUFFIXES)],
)
def test_formats_agree(tmp_path, subscriptions, events, out):
    """Every format in every place, beside every format in each other place, gives what the engine gives."""
    case = Case(tmp_path)
    rows = [{"id": name, "filter": text} for name, text in SUBSCRIPTIONS]
    case.subscriptions = write_rows(tmp_path / f"s.{subscriptions}", rows, SUBSCRIPTION_COLUMNS)
    case.events = write_rows(tmp_path / f"e.{events}", EVENTS, EVENT_COLUMNS)
    result = case.run("--out", tmp_path / f"m.{out}")
    assert result.exit_code == 0, result.stderr
    assert not result.stdout
    assert read_matches(tmp_path / f"m.{out}") == expected()
    assert f"7 events against 11 subscriptions: {len(expected())} matches" in result.stderr


@pytest.mark.parametrize("suffix", [".ndjson", ".json", ".JSONL", ".CSV", ".Parquet"])
def test_other_suffixes(case, tmp_path, suffix):
    """JSON lines have three suffixes, and case does not matter."""
    assert case.run("--out", tmp_path / f"m{suffix}").exit_code == 0
    assert (tmp_path / f"m{suffix}").stat().st_size


def test_default_output_is_csv(case):
    """Without --out matches go to standard output, the summary to standard error."""
    result = case.run()
    assert result.exit_code == 0
    assert pairs(result.stdout) == ["0,cheap", "1,big", "3,big", "3,cheap"]
    assert "4 events against 2 subscriptions: 4 matches" in result.stderr
    assert "events/s" in result.stderr


def test_integer_ids_stay_integers(case, tmp_path):
    """Integer ids of JSON lines and Parquet come back as integers; a mixture does not fit in Parquet."""
    case.subscriptions = tmp_path / "s.jsonl"
    case.subscriptions.write_text('{"id": 7, "filter": "price < 10"}\n{"id": 8, "filter": "volume > 5"}\n')
    case.run("--out", tmp_path / "m.parquet")
    assert pq.read_schema(tmp_path / "m.parquet").field("subscription").type == pa.int64()
    case.subscriptions.write_text('{"id": 7, "filter": "price < 10"}\n{"id": "8", "filter": "volume > 5"}\n')
    before = (tmp_path / "m.parquet").read_bytes()
    result = case.run("--out", tmp_path / "m.parquet")
    assert result.exit_code == 2
    assert "some ids are integers and some are text" in result.stderr
    assert (tmp_path / "m.parquet").read_bytes() == before
    case.run("--out", tmp_path / "m.jsonl")
    ids = [json.loads(line)["subscription"] for line in (tmp_path / "m.jsonl").read_text().splitlines()]
    assert sorted(ids, key=str) == [7, 7, "8", "8"]


def test_csv_ids_come_back_as_written(case):
    """An id that looks like a number keeps its leading zeros."""
    case.subscriptions.write_text("id,filter\n007,price < 10\n1e3,price < 10\n")
    assert pairs(case.run().stdout) == ["0,007", "0,1e3", "3,007", "3,1e3"]


def test_csv_empty_and_quoted_empty(case):
    """An empty field is NULL, a quoted empty field the empty string."""
    case.subscriptions.write_text("id,filter\nnull,symbol IS NULL\nempty,symbol = ''\n")
    case.events.write_text('symbol,price\n,1\n"",1\n')
    assert case.run().stdout == "event,subscription\n0,null\n1,empty\n"


def test_csv_numbers(case):
    """CSV fields are read by type: blanks around numbers, exponents, NaN and infinities, TRUE and false."""
    case.subscriptions.write_text("id,filter\nbig,price > 1e300\none,volume = 1\nhalted,halted\nrunning,NOT halted\n")
    case.events.write_text("price,volume,halted\nNaN, 1 ,TRUE\ninf,,false\n+1.5e301,01,\n-Infinity,-1,\n")
    assert pairs(case.run().stdout) == ["0,big", "0,halted", "0,one", "1,big", "1,running", "2,big", "2,one"]


def test_byte_order_mark_and_windows_lines(case):
    """A byte order mark and CR LF are no data."""
    case.events.write_bytes(b"\xef\xbb\xbfprice,volume\r\n1.5,3\r\n\r\n20,9\r\n")
    assert case.run().stdout == "event,subscription\n0,cheap\n1,big\n"
    case.events = case.folder / "e.jsonl"
    case.events.write_bytes(b'\xef\xbb\xbf{"price": 1.5}\r\n\r\n{"volume": 9}\r\n')
    assert case.run().stdout == "event,subscription\n0,cheap\n1,big\n"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_small_batches_change_nothing(tmp_path, monkeypatch, suffix):
    """Rows are numbered across blocks, chunks and batches."""
    monkeypatch.setattr(csv_rows, "BLOCK_BYTES", 200)
    monkeypatch.setattr(events, "CHUNK_ROWS", 7)
    monkeypatch.setattr(match, "FIRST_BATCH", 2)
    monkeypatch.setattr(match, "PAIRS_PER_BATCH", 10)
    case = Case(tmp_path)
    case.subscriptions.write_text("id,filter\n" + "".join(f"s{i},volume >= {i}\n" for i in range(5)))
    rows = [{"volume": i % 9} for i in range(100)]
    case.events = write_rows(tmp_path / f"e.{suffix}", rows, pa.schema([("volume", pa.int64())]))
    assert case.run("--out", tmp_path / "m.csv").exit_code == 0
    assert read_matches(tmp_path / "m.csv") == sorted(
        (row, f"s{i}") for row, event in enumerate(rows) for i in range(5) if event["volume"] >= i
    )


@pytest.mark.parametrize(
    ("name", "content"),
    [("e.csv", "price,volume\n"), ("e.csv", "price,volume"), ("e.jsonl", ""), ("e.jsonl", "\n\n")],
)
def test_no_events(case, name, content):
    """A file without events has no matches."""
    case.events = case.folder / name
    case.events.write_text(content)
    result = case.run()
    assert (result.exit_code, result.stdout) == (0, "event,subscription\n")


def test_no_subscriptions(case, tmp_path):
    """A file without subscriptions matches nothing, in every output format."""
    case.subscriptions.write_text("id,filter\n")
    for suffix in SUFFIXES:
        result = case.run("--out", tmp_path / f"m.{suffix}")
        assert result.exit_code == 0
        assert read_matches(tmp_path / f"m.{suffix}") == []


def test_missing_attributes_are_noted(case):
    """A file that lacks attributes is matched with NULL there, and that is said."""
    result = case.run()
    assert "note:" in plain(result.stderr)
    assert "symbol, day, time, halted, tags, quote.bid, quote.ask" in result.stderr


def test_unknown_columns_are_ignored(case):
    """Columns that the schema does not know are no error, even if it knows none of them."""
    case.events.write_text("foo,bar\n1,2\n3,4\n")
    case.subscriptions.write_text("id,filter\nnone,price IS NULL\n")
    assert case.run().stdout == "event,subscription\n0,none\n1,none\n"


def test_matchers_agree(case):
    """--matcher chooses the algorithm, not the result."""
    assert pairs(case.run("--matcher", "scan").stdout) == pairs(case.run().stdout)


# -- bad subscriptions --------------------------------------------------------------------------------------------------

BAD_SUBSCRIPTIONS = """id,filter
good,price < 10
typo,price < 10 AND vol > 3
good,price < 20
,price < 20
nothing,
too,many,fields
last,volume > 5
"""


def test_bad_subscriptions_are_reported(case):
    """Bad subscriptions are reported with row, id, reason and caret; the others are used."""
    case.subscriptions.write_text(BAD_SUBSCRIPTIONS)
    result = case.run()
    errors = plain(result.stderr)
    assert result.exit_code == 0
    assert pairs(result.stdout) == ["0,good", "1,last", "3,good", "3,last"]
    assert "row 1, id 'typo': unknown attribute 'vol'" in errors
    assert "  price < 10 AND vol > 3\n                 ^^^\n" in errors
    assert "row 2, id 'good': subscription 'good' exists already" in errors
    assert "row 3, id None: " in errors
    assert "row 4, id 'nothing': the filter is empty" in errors
    assert "row 5: expected 2 fields, found 3; put a filter with commas in double quotes" in errors
    assert errors.index("row 1,") < errors.index("row 2,") < errors.index("row 5:")
    assert "5 bad subscriptions left out" in errors


def test_strict_makes_them_fatal(case, tmp_path):
    """--strict ends with 1 before anything is matched."""
    case.subscriptions.write_text(BAD_SUBSCRIPTIONS)
    result = case.run("--strict", "--out", tmp_path / "m.csv")
    assert result.exit_code == 1
    assert "row 1, id 'typo'" in result.stderr
    assert "error: 5 of 7 subscriptions are bad" in plain(result.stderr)
    assert not (tmp_path / "m.csv").exists()


def test_ten_are_shown(case):
    """Of many bad subscriptions ten are shown and the rest counted."""
    case.subscriptions.write_text("id,filter\n" + "".join(f"s{i},foo = {i}\n" for i in range(25)))
    result = case.run()
    assert result.stderr.count("unknown attribute") == 10
    assert "... and 15 more bad subscriptions" in result.stderr


def test_bad_json_subscriptions(case):
    """A line that is no subscription is reported like a bad one."""
    case.subscriptions = case.folder / "s.jsonl"
    lines = ['{"id": 1, "filter": "price < 10"}', "{", "[1]", '{"id": 2}', '{"id": "\\ud800", "filter": "TRUE"}',
             '{"id": true, "filter": "TRUE"}', '{"id": 3, "filter": 4}', '{"id": 1.5, "filter": "TRUE"}']  # fmt: skip
    case.subscriptions.write_text("\n".join(lines))
    result = case.run()
    assert result.exit_code == 0
    assert result.stdout == "event,subscription\n0,1\n3,1\n"
    for place in ("row 1: the line is not valid JSON", "row 2: expected one JSON object", "row 3: 'filter' is missing",
                  "row 4, id '\\ud800': the id '\\ud800' has half a character", "row 5, id True", "row 6, id 3", "row 7, id 1.5"):  # fmt: skip
        assert place in result.stderr
    assert "7 bad subscriptions" in result.stderr


def test_file_cannot_write_to_the_terminal(case):
    """Control characters of a file are not printed."""
    case.subscriptions.write_text("id,filter\n\x1b[2Jx,foo = '\x1b[2J'\n")
    assert "\x1b[2J" not in case.run().stderr


# -- bad events ---------------------------------------------------------------------------------------------------------

BAD_EVENTS = {
    "e.csv": "price,volume\n1.5,3\nabc,9\n2,6\n3,1.0\n4,0x10\n5,99999999999999999999\n6,7,8\n7,\xff\n8,6\n",
    "e.jsonl": '{"price": 1.5, "volume": 3}\n{"price": "abc"}\n{"price": 2, "volume": 6}\n{"volume": 1.0}\n'
    '{"volume": "0x10"}\n{"volume": 99999999999999999999}\n{"price": 6\n[7]\n{"price": 8, "volume": 6}\n',
}


@pytest.mark.parametrize("name", BAD_EVENTS)
def test_bad_event_ends_the_run(case, tmp_path, name):
    """The first bad event ends the run with 1, and a file that was there stays as it was."""
    case.events = case.folder / name
    case.events.write_bytes(BAD_EVENTS[name].encode("latin-1"))
    (tmp_path / "m.csv").write_text("old")
    result = case.run("--out", tmp_path / "m.csv")
    assert result.exit_code == 1
    assert f"error: {case.events}: event 1, attribute 'price': expected float, got string 'abc'" in plain(result.stderr)
    assert (tmp_path / "m.csv").read_text() == "old"
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("name", BAD_EVENTS)
def test_bad_events_are_skipped(case, name):
    """--on-error skip reports and counts bad events; the rows of the others do not change."""
    case.events = case.folder / name
    case.events.write_bytes(BAD_EVENTS[name].encode("latin-1"))
    result = case.run("--on-error", "skip")
    assert result.exit_code == 0
    assert pairs(result.stdout) == ["0,cheap", "2,big", "2,cheap", "8,big", "8,cheap"]
    for row in (1, 3, 4, 5, 6, 7):
        assert f": event {row}" in result.stderr
    assert "6 bad events skipped" in result.stderr


def test_broken_row_ends_the_run_in_order(case):
    """A row that is no event ends the run at its place, after the events before it were written."""
    case.events.write_text("price,volume\n1.5,3\n2,3,4\nabc,1\n")
    result = case.run()
    assert result.exit_code == 1
    assert result.stdout == "event,subscription\n0,cheap\n"
    assert "event 1: expected 2 fields, found 3; --on-error skip leaves such events out" in result.stderr


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_failed_run_leaves_no_file_and_no_stack_trace(case, suffix, tmp_path):
    """An event that does not fit ends the run; the output that was begun is gone, and Arrow's writer does not complain."""
    case.events = case.folder / "e.jsonl"
    case.events.write_text('{"symbol": "IBM"}\n{"price": "abc"}\n')
    complaints: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.unraisablehook", complaints.append)
        assert case.run("--out", tmp_path / f"m.{suffix}").exit_code == 1
        gc.collect()
    assert complaints == []
    assert not [path for path in tmp_path.iterdir() if ".partial" in path.name or path.name == f"m.{suffix}"]


def test_bad_parquet_column(case):
    """A Parquet column of a wrong type is a bad value in every row."""
    case.events = case.folder / "e.parquet"
    pq.write_table(pa.table({"price": ["a", None, "b"], "volume": [9, 9, 9]}), case.events)
    assert "event 0, attribute 'price'" in case.run().stderr
    result = case.run("--on-error", "skip")
    assert result.stdout == "event,subscription\n1,big\n"
    assert "2 bad events skipped" in result.stderr


# -- bad files and options ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("s.csv", "", "is empty; a CSV file begins with"),
        ("s.csv", "name,filter\na,TRUE\n", "has no column 'id'"),
        ("s.csv", "id,expression\na,TRUE\n", "has no column 'filter'"),
        ("s.csv", "id,id,filter\na,b,TRUE\n", "the column 'id' more than once"),
        ("s.csv", "id,filter\n\xff,TRUE\n", "not UTF-8"),
        ("s.csv", "\xff,filter\n", "not UTF-8"),
        ("s.parquet", "", "cannot be read"),
        ("s.parquet", "PAR1 but not really PAR1", "cannot be read"),
    ],
)
def test_unreadable_subscriptions_are_1(case, name, content, message):
    """A file that does not hold subscriptions is refused."""
    case.subscriptions = case.folder / name
    case.subscriptions.write_bytes(content.encode("latin-1"))
    result = case.run()
    assert result.exit_code == 1
    assert message in result.stderr
    assert not result.stdout


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("e.csv", "", "is empty; a CSV file begins with"),
        ("e.csv", "price,price\n1,2\n", "the column 'price' more than once"),
        ("e.parquet", "no", "cannot be read"),
    ],
)
def test_unreadable_events_are_1(case, name, content, message):
    """A file that does not hold events is refused."""
    case.events = case.folder / name
    case.events.write_text(content)
    result = case.run()
    assert result.exit_code == 1
    assert message in result.stderr


def test_damaged_parquet_is_1(case):
    """A Parquet file whose pages are damaged is refused with its name."""
    case.events = case.folder / "e.parquet"
    pq.write_table(pa.table({"price": [float(i) for i in range(10_000)]}), case.events, compression="zstd")
    data = bytearray(case.events.read_bytes())
    data[20:2000] = bytes(1980)
    case.events.write_bytes(data)
    result = case.run()
    assert result.exit_code == 1
    assert "e.parquet' cannot be read" in result.stderr
    assert "Traceback" not in result.stderr


def test_missing_files_are_2(case):
    """A file that is not there is a wrong call, and so is a folder."""
    case.events = case.folder / "nowhere.csv"
    assert case.run().exit_code == 2
    case.events = case.folder
    assert case.run().exit_code == 2


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--matcher", "magic"), "no matcher 'magic'; there are: scan"),
        (("--out", "m.xlsx"), "unknown suffix '.xlsx'"),
        (("--out", "nowhere/m.csv"), "cannot be written: No such file or directory"),
        (("--on-error", "shrug"), "shrug"),
    ],
)
def test_wrong_options_are_2(case, args, message):
    """A wrong option ends with 2 before anything is done."""
    result = case.run(*args)
    assert result.exit_code == 2
    assert message in plain(result.stderr)
    assert not result.stdout


def test_unknown_suffix_of_input_is_2(case):
    """The suffix names the format, so it must be known."""
    case.events = case.folder / "events.txt"
    case.events.write_text("price\n1\n")
    result = case.run()
    assert result.exit_code == 2
    assert "unknown suffix '.txt'; name it one of .csv, .jsonl, .ndjson, .json, .parquet" in result.stderr


def test_output_is_no_input(case):
    """An input file is never overwritten."""
    before = case.events.read_text()
    result = case.run("--out", case.events)
    assert result.exit_code == 2
    assert "is one of the input files" in result.stderr
    assert case.events.read_text() == before
