"""Lint: every rule finds what it is about, where it is, and nothing else."""

from __future__ import annotations

import datetime as dt
import json
import random
import sys
from functools import cache

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from wherecast import Engine, LintFinding, lint
from wherecast.cli.app import app
from wherecast.engine import coverage
from wherecast.engine.coverage import find_coverage
from wherecast.engine.lint import MEANING
from wherecast.language.events.schema import Schema
from wherecast.language.filters.compile import Compiler
from wherecast.language.filters.spelling import SPELLING
from wherecast.language.functions.moments import MOMENT_FUNCTIONS
from wherecast.language.functions.table import FUNCTIONS
from wherecast.language.syntax.limits import Limits

SCHEMA = {
    "symbol": "string", "price": "double", "high": "double", "low": "double", "volume": "int", "big": "bigint",
    "open": "boolean", "day": "date", "tags": "array<string>", "quote.bid": "double", "v": "vector(2)",
}  # fmt: skip


def codes(text: str, **options: object) -> list[str]:
    return [f.code for f in lint({1: text}, SCHEMA, **options)]


def find(code: str, text: str) -> list[LintFinding]:
    return [f for f in lint({1: text}, SCHEMA) if f.code == code]


#: A filter, the piece of it that the finding is about, and a part of what to do.
BROKEN = {
    "refused": [("prise > 5", "prise", "did you mean"), ("price >", "", ""), ("'price' > 5", "'price' > 5", "")],
    "null-comparison": [
        ("price = NULL", "price = NULL", "write price IS NULL"),
        ("symbol = 'A' AND NULL <> price", "NULL <> price", "write price IS NOT NULL"),
        ("open OR NOT (quote.bid > NULL)", "quote.bid > NULL", "write quote.bid IS NULL"),
        ("price + 1 = NULL", "price + 1 = NULL", "write the value IS NULL"),
    ],
    "null-in-list": [("volume NOT IN (1, NULL)", "volume NOT IN (1, NULL", "IS NULL")],
    "quoted-name": [
        ("'price' = 'IBM'", "'price'", "`price`"),
        ("open AND 'IBM' = 'symbol'", "'symbol'", "`symbol`"),
        ('symbol = "price"', '"price"', "`price`"),
        ('symbol IN ("A")\n OR symbol > "PRICE"', '"PRICE"', "`PRICE`"),
    ],
    "double-quotes": [('symbol = "IBM"', '"IBM"', "single quotes"), ('symbol LIKE "I%"', '"I%"', "single quotes")],
    "cast": [
        ("symbol = 5", "symbol = 5", "compare it with a string"),
        ("open AND symbol IN (1, 2)", "symbol IN (1, 2", "compare it with a string"),
        ("price < symbol", "price < symbol", "type double"),
        ("CAST(volume AS string) = '5'", "CAST(volume AS string) = '5'", "compare it with a int"),
    ],
    "pattern": [
        ("symbol LIKE '_%'", "symbol LIKE '_%'", "a word that every match contains"),
        ("symbol RLIKE '[a-z]+'", "symbol RLIKE '[a-z]+'", "a word that every match contains"),
        ("open AND symbol ILIKE '%_%'", "symbol ILIKE '%_%'", "a word that every match contains"),
    ],
    "short-literal": [("symbol LIKE '%x%'", "symbol LIKE '%x%'", "longer"), ("symbol RLIKE 'x[0-9]'", "symbol RLIKE 'x[0-9]'", "longer")],
    "unreachable": [
        ("lower(symbol) = 'IBM'", "lower(symbol) = 'IBM'", "write 'ibm'"),
        ("open OR 'straße' = upper(symbol)", "'straße' = upper(symbol)", "write 'STRASSE'"),
        ("lower(symbol) LIKE '%Run.exe%'", "lower(symbol) LIKE '%Run.exe%'", "write '%run.exe%'"),
        ("trim(symbol) <=> ' IBM'", "trim(symbol) <=> ' IBM'", "write 'IBM'"),
        ("NOT rtrim(symbol) = 'IBM '", "rtrim(symbol) = 'IBM '", "write 'IBM'"),
        ("lower(symbol) IN ('ibm', 'SAP')", "lower(symbol) IN ('ibm', 'SAP'", "write 'sap'"),
        ("dayofweek(day) = 0", "dayofweek(day) = 0", "never gives 0; dayofweek: 1 is Sunday"),
        ("month(day) IN (0, 1)", "month(day) IN (0, 1", "1 to 12"),
        ("day(day) = -1", "day(day) = -1", "1 to 31"),
        ("day(day) = 31.5", "day(day) = 31.5", "1 to 31"),
        ("hour(day) = 24L", "hour(day) = 24L", "0 to 23"),
    ],
    "topic": [
        ("symbol MATCHES 'a/%'", "symbol MATCHES 'a/%'", "+ for a level"),
        ("open AND symbol NOT MATCHES '*/b'", "symbol NOT MATCHES '*/b'", "# for the rest"),
    ],
    "keyword": [
        ("KEYWORDS(symbol, 'chip', 'export%')", "KEYWORDS(symbol, 'chip', 'export%')", "write 'export'"),
        ("ANY_KEYWORD(symbol, '-chip', 'export')", "ANY_KEYWORD(symbol, '-chip', 'export')", "write 'chip'"),
    ],
    "similarity": [
        ("SIMILAR(v, ARRAY(1, 2)) >= 80", "SIMILAR(v, ARRAY(1, 2)) >= 80", "0.8"),
        ("open AND SIMILAR(v, ARRAY(1, 2)) > 1", "SIMILAR(v, ARRAY(1, 2)) > 1", "0.8"),
        ("1.5 > SIMILAR(v, ARRAY(1, 2))", "1.5 > SIMILAR(v, ARRAY(1, 2))", "0.8"),
        ("SIMILAR(v, ARRAY(1, 2)) >= -1.0", "SIMILAR(v, ARRAY(1, 2)) >= -1.0", "0.8"),
        ("SIMILAR(v, ARRAY(1, 2)) < -1", "SIMILAR(v, ARRAY(1, 2)) < -1", "0.8"),
    ],
    "unindexed": [
        ("SIMILAR(v, ARRAY(1, 2)) > price", "SIMILAR(v, ARRAY(1, 2)) > price", "add a condition"),
        ("high > low", "high > low", "add a condition"),
        ("symbol = 'A' OR high > low", "high > low", "add a condition"),
        ("price IS NOT NULL AND length(symbol) > 3", "length(symbol) > 3", "add a condition"),
        ("symbol NOT LIKE '%abc%'", "symbol NOT LIKE '%abc%'", "add a condition"),
    ],
    "residual": [("symbol = 'A' AND high > low", "high > low", "constant")],
    "redundant": [
        ("price > 5 AND price > 3", "price > 3", "drop it"),
        ("price > 3 AND symbol = 'A' AND price > 5", "price > 3", "drop it"),
        ("volume = 1 OR symbol = 'A' OR volume IN (1, 2)", "volume = 1", "drop it"),
        ("price > 5 AND price > 5", "price > 5", "drop it"),
        ("price > 5 AND price IS NOT NULL", "price", "drop it"),
        ("NOT (price > 5 AND price > 3)", "price > 3", "drop it"),
        ("open AND (symbol = 'A' OR symbol LIKE 'A%')", "symbol = 'A'", "drop it"),
        ("volume BETWEEN 1 AND 5 AND volume > 0", "volume > 0", "drop it"),
        ("day > DATE '2024-01-01' AND day >= DATE '2023-01-01'", "day >= DATE '2023-01-01'", "drop it"),
        ("high > low AND low < high", "low < high", "drop it"),
    ],
    "never": [
        ("price > 5 AND price < 3", "price > 5 AND price < 3", "correct or drop"),
        ("volume = 1 AND volume = 2 OR FALSE", "volume = 1 AND volume = 2 OR FALSE", "correct or drop"),
        ("price IS NULL AND price = 1", "price IS NULL AND price = 1", "correct or drop"),
        ("volume IN (1) AND volume NOT IN (1, NULL)", "volume IN (1) AND volume NOT IN (1, NULL)", "correct or drop"),
    ],
    "always": [
        ("price > 5 OR price <= 5 OR price IS NULL", "price > 5 OR price <= 5 OR price IS NULL", "add a condition"),
        ("TRUE", "TRUE", "add a condition"),
        ("price <=> NULL OR price IS NOT NULL", "price <=> NULL OR price IS NOT NULL", "add a condition"),
    ],
}  # fmt: skip

#: Filters that look like it and are right.
KEPT = {
    "refused": ["price > 5"],
    "null-comparison": ["price <=> NULL", "price IS NULL", "coalesce(price, NULL) IS NULL"],
    "null-in-list": ["volume NOT IN (1, 2)", "volume IN (1) OR volume IS NULL"],
    "quoted-name": ["symbol = 'price'", "symbol IN ('price', 'low')", "'a' = 'b'", "`price` > 5", 'symbol = "IBM"'],
    "double-quotes": ["symbol = 'IBM'", "symbol = 'a \"quoted\" word'", 'symbol = "price"'],
    "cast": ["volume > 1.5", "volume = '5'", "big > volume", "symbol = '5'", "day > '2024-01-01'", "price IN (1, 2.5)"],
    "pattern": ["symbol LIKE 'a_%'", "symbol RLIKE 'abc[0-9]'", "symbol LIKE '%abc'", "symbol LIKE '%'"],
    "short-literal": ["symbol LIKE '%xy%'", "symbol LIKE 'x%'", "symbol RLIKE 'xyz'", "symbol = 'x'"],
    "unreachable": [
        "lower(symbol) = 'ibm'",
        "lower(symbol) <> 'IBM'",
        "lower(symbol) > 'IBM'",
        "symbol = 'IBM'",
        "upper(symbol) LIKE '%İ1%'",
        "lower(symbol) LIKE 'aEb' ESCAPE 'E'",
        "lower(symbol) ILIKE '%IBM%'",
        "trim(symbol) LIKE ' %'",
        "trim('x', symbol) = ' a'",
        "lower('A') = 'A'",
        "dayofweek(day) IN (1, 7)",
        "day(day) = 31.0",
        "month(day) = '13'",
        "hour(day) = 23S",
        "hour(day) = 0.5F",
    ],
    "topic": ["symbol MATCHES 'a/+/#'", "symbol LIKE 'a/%'", "lower(symbol) MATCHES 'a'"],
    "keyword": ["KEYWORDS(symbol, 'chip', 'Straße')", "PHRASE(symbol, 'a-b')", "symbol LIKE '%chip%'"],
    "similarity": ["SIMILAR(v, ARRAY(1, 2)) >= 1", "SIMILAR(v, ARRAY(1, 2)) > -1", "price > 1", "SIMILAR(v, ARRAY(1, 2)) BETWEEN -0.5 AND 0.8"],
    "unindexed": ["SIMILAR(v, ARRAY(1, 2)) > 0.8", "symbol = 'A' AND high > low", "price > 5", "symbol LIKE '%abc%'", "array_contains(tags, 'a')"],
    "residual": ["symbol = 'A' AND price > 5", "symbol LIKE 'abc%'", "high > low", "symbol RLIKE '[a-z]'"],
    "redundant": [
        "price > 5 AND price < 9",
        "price > 5 OR symbol = 'A' OR price < 3",
        "volume BETWEEN 1 AND 5",
        "symbol LIKE 'A%' AND symbol <> 'AB'",
        "price > 5 AND price < 3",
        "price = NULL AND price > 5",
        "array_contains(tags, 'a') AND array_contains(tags, 'b')",
        "high > low AND high > 5",
    ],
    "never": ["price > 5", "price IS NULL", "price = NULL OR price = 1", "array_contains(tags, 'a') AND array_contains(tags, 'b')"],
    "always": ["price > 5 OR price <= 5", "price = price", "open OR NOT open", "open"],
}  # fmt: skip

BETWEEN_FILTERS = {"equal", "covered"}


@pytest.mark.sampled
@pytest.mark.parametrize(("code", "text", "piece", "advice"), [(c, *row) for c, rows in BROKEN.items() for row in rows])
def test_a_rule_finds_what_it_is_about(code, text, piece, advice):
    """Once, at its place, with what to write instead."""
    (found,) = find(code, text)
    assert found.filter == text
    if piece:
        assert text[found.start : found.end] == piece
        line = text.split("\n")[found.place.line - 1]
        assert line[found.place.column - 1 :].startswith(piece.split("\n", maxsplit=1)[0])
        assert found.place.caret().count("^") == len(piece)
    assert advice in f"{found.message}; {found.advice}"


@pytest.mark.sampled
@pytest.mark.parametrize(("code", "text"), [(c, text) for c, texts in KEPT.items() for text in texts])
def test_a_rule_finds_nothing_else(code, text):
    """What looks like it and is right is left alone."""
    assert not find(code, text)


@cache
def all_letters() -> str:
    return "".join(chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000)


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["lower", "upper", "trim", "ltrim", "rtrim"])
def test_what_a_function_of_texts_gives_is_left_alone(name):
    """So a text that it changes is never its result; also of letters whose case depends on their neighbours."""
    nearest = FUNCTIONS[name].nearest
    pairs = [a + b for a in "aΑ σΣς.İ\u0307" for b in "aΑ σΣς.İ\u0307"]
    for text in (all_letters(), " ".join(all_letters()), *pairs):
        assert nearest(nearest(text)) == nearest(text)


@cache
def hours_of_four_years() -> pa.Table:
    start = dt.datetime(2023, 1, 1)  # noqa: DTZ001
    return pa.table({"t": [start + dt.timedelta(hours=n, seconds=n * 61 % 3600) for n in range(4 * 366 * 24)]})


@pytest.mark.sampled
@pytest.mark.parametrize("name", [row.name for row in MOMENT_FUNCTIONS if row.nearest is not None])
def test_every_part_of_a_moment_is_one_that_it_can_be(name):
    """All hours of four years, one of them a leap year, with minutes and seconds that differ."""
    engine = Engine({"t": "timestamp_ntz"})
    engine.subscribe_many({n: f"{name}(t) = {n}" for n in range(-1, 370)})
    found = {id for (id,) in engine.match_batch(hours_of_four_years()).to_lists()}
    assert found == {n for n in range(-1, 370) if FUNCTIONS[name].nearest(n) is not None}


def test_too_many_clauses():
    """A filter whose normal form is a cover is evaluated as a whole."""
    text = " AND ".join(f"(price = {n} OR volume = {n})" for n in range(9))
    assert "too-many-clauses" in codes(text)
    assert "too-many-clauses" not in codes(text, limits=Limits(clauses=1_000))


def test_every_rule_has_examples():
    """A new rule has a positive and a negative example above."""
    assert {rule.code for rule in SPELLING} - {"too-many-clauses"} <= BROKEN.keys()
    assert BROKEN.keys() == KEPT.keys()
    assert len(MEANING) == 3


def test_equal_filters():
    """Whatever their spelling; the later one says which the earlier one is. What never matches is not compared."""
    found = lint([("a", "price > 5 AND open"), ("b", "open AND NOT (price <= 5)"), ("c", "price > 6"), ("d", "open AND price > 5.0")], SCHEMA)  # fmt: skip
    assert [(f.id, f.code, f.other) for f in found] == [("b", "equal", "a"), ("d", "equal", "a")]
    assert codes("FALSE") == ["never"]
    assert [f.code for f in lint({1: "FALSE", 2: "1 = 2"}, SCHEMA)] == ["never", "never"]


#: A filter and one that covers it.
COVERED = [
    ("price > 5", "price > 3"),
    ("price > 5", "price >= 5"),
    ("price > 5 AND open", "price > 5"),
    ("price = 5", "price BETWEEN 1 AND 9"),
    ("price > 5", "price IS NOT NULL"),
    ("price IS NULL", "price IS NULL OR price > 5"),
    ("symbol = 'A'", "symbol IN ('A', 'B')"),
    ("symbol LIKE 'AB%'", "symbol LIKE 'A%'"),
    ("symbol IN ('AA', 'AC')", "symbol LIKE 'A%'"),
    ("price > 5 AND volume = 1", "volume = 1 OR low = 2"),
    ("(price > 5 AND open) OR low = 3", "price > 4 OR low > 2"),
    ("array_contains(tags, 'a')", "tags IS NOT NULL"),
    ("array_contains(tags, 'a') AND array_contains(tags, 'b')", "array_contains(tags, 'b')"),
    ("array_contains(tags, 'a')", "arrays_overlap(tags, array('b', 'a'))"),
    ("symbol LIKE '%abc%' AND open", "symbol LIKE '%abc%'"),
    ("high > low AND price > 5", "high > low"),
    ("high > low AND price > 5", "price > 4"),
    ("high > low AND price > 5 AND length(symbol) > 3", "low < high AND price > 4"),
]
NOT_COVERED = [
    ("price > 3 AND price < 9", "price > 5 AND price < 10"),
    ("price IS NULL", "price > 5"),
    ("price > 5 OR price IS NULL", "price > 4"),
    ("open", "price IS NULL"),
    ("price > 5", "volume > 5"),
    ("price > 5 OR low = 3", "price > 4 AND volume = 1"),
    ("array_contains(tags, 'a')", "array_contains(tags, 'b')"),
    ("tags IS NULL", "array_contains(tags, 'b')"),
    ("symbol LIKE '%abc%'", "symbol LIKE '%abd%'"),
    ("price > 5", "high > low AND price > 4"),
    ("high > low AND price > 5", "high > volume AND price > 4"),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("narrow", "wide"), COVERED)
def test_covered(narrow, wide):
    """The narrow one names the wide one, in any order and among others; the wide one is not covered."""
    others = {"x": "volume = 77", "y": "symbol = 'Q' AND big < 0"}
    for order in ({"n": narrow, **others, "w": wide}, {"w": wide, "n": narrow}):
        found = [f for f in lint(order, SCHEMA) if f.code == "covered"]
        assert [(f.id, f.other) for f in found] == [("n", "w")]


@pytest.mark.parametrize(("one", "other"), NOT_COVERED)
def test_not_covered(one, other):
    """Neither covers the other."""
    assert not [f for f in lint({1: one, 2: other}, SCHEMA) if f.code == "covered"]


def test_what_always_matches_covers_nothing():
    """It would cover all others, and is reported itself."""
    assert [f.code for f in lint({1: "TRUE", 2: "price > 5"}, SCHEMA)] == ["always"]


def naive_coverage(lows: list[int], highs: list[int]) -> set[int]:
    n = range(len(lows))
    return {
        i for i in n if any(lows[j] <= lows[i] and highs[i] <= highs[j] and (lows[i], highs[i]) != (lows[j], highs[j]) for j in n)
    }  # fmt: skip


@pytest.mark.parametrize("first_round", [1, 7, 256])
def test_coverage_in_rounds_equals_all_pairs(monkeypatch, first_round):
    """However the filters are cut into rounds, those are found that comparing all pairs finds."""
    monkeypatch.setattr(coverage, "_FIRST_ROUND", first_round)
    rng = random.Random(first_round)
    pairs = sorted(
        {tuple(sorted((rng.randrange(60), rng.randrange(60)))) for _ in range(150)}, key=lambda _: rng.random()
    )
    lows, highs = map(list, zip(*pairs, strict=True))
    schema = Schema.of(SCHEMA)
    filters = Compiler(schema).compile_many([f"volume BETWEEN {a} AND {b}" for a, b in pairs]).filters
    found = find_coverage(filters, schema)
    assert set((found.by >= 0).nonzero()[0].tolist()) == naive_coverage(lows, highs)
    for inner, outer in enumerate(found.by.tolist()):
        assert outer < 0 or (lows[outer] <= lows[inner] and highs[inner] <= highs[outer])


def test_coverage_is_bounded():
    """Where too many filters overlap, the rest is not compared, and counted; nothing is called covered that is not."""
    schema = Schema.of(SCHEMA)
    filters = Compiler(schema).compile_many([f"volume BETWEEN {n} AND {n + 500}" for n in range(600)]).filters
    found = find_coverage(filters, schema, most_pairs=10_000)
    assert found.is_open.any()
    assert (found.by == -1).all()


def test_nested_filters_take_few_pairs(monkeypatch):
    """Of a thousand nested conditions, one is compared with the others: not a million pairs."""
    taken = []
    plain = coverage._Search._covering
    monkeypatch.setattr(coverage._Search, "_covering", lambda self, a, b: taken.append(a.size) or plain(self, a, b))
    found = lint({n: f"volume > {n}" for n in range(2_000)}, SCHEMA)
    assert found.counts == {"covered": 1_999}
    assert sum(taken) < 100_000


# -- whatever holds filters ----------------------------------------------------------------------------------------------

MIXED = {"a": "price > 5", "b": "price > 6 AND price > 2", "c": "prise > 1", "d": "price = NULL", "e": "high > low"}


def test_findings():
    """By row; counted, filtered by severity, and shown in a notebook."""
    found = lint(MIXED, SCHEMA)
    assert [f.row for f in found] == sorted(f.row for f in found)
    assert found.filters == 5
    assert {f.id for f in found.at_least("error")} == {"c", "d"}
    assert found.counts["refused"] == 1
    assert "5 filters: 3 errors, 2 warnings, 1 note" in str(found)
    page = found._repr_html_()
    assert "redundant" in page
    assert "price &gt; 6 AND price &gt; 2" in page


def test_a_table_is_linted_at_once():
    """Rows are those of the table; a bad id is a finding, too."""
    table = pa.table({"id": ["a", None, "c"], "filter": ["price > 5", "price > 5", None]})
    found = lint(table, SCHEMA)
    assert [(f.row, f.code) for f in found] == [(1, "refused"), (2, "refused")]


def test_an_engine_is_linted():
    """Meaning and costs; the text is the one that the engine gives."""
    engine = Engine(SCHEMA)
    assert len(engine.lint()) == 0
    engine.subscribe_many({**MIXED, "f": "price > 5.0"})
    engine.subscribe("g", "symbol = 'A' AND high > low")
    engine.subscribe("h", "FALSE")
    engine.unsubscribe("d")
    found = {(f.id, f.code) for f in engine.lint()}
    (equal,) = [id for id, code in found if code == "equal"]
    assert equal in ("a", "f")
    costs = {("e", "unindexed"), ("g", "residual")}
    assert found - {(equal, "equal")} == {("b", "covered"), ("g", "covered"), ("h", "never")} | costs
    (residual,) = [f for f in engine.lint() if f.code == "residual"]
    assert residual.filter == engine["g"]
    assert residual.filter[residual.start : residual.end] == "high > low"


# -- the command ---------------------------------------------------------------------------------------------------------


def run(*args: object):
    return CliRunner().invoke(app, ["lint", *map(str, args)])


@pytest.fixture
def schema(tmp_path):
    path = tmp_path / "schema.json"
    path.write_text(json.dumps({"price": "double", "high": "double", "low": "double", "symbol": "string"}))
    return path


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet", "sql"])
def test_all_files_are_read(tmp_path, schema, suffix):
    """The formats of `match`, and a filter in each line."""
    path, texts = tmp_path / f"subs.{suffix}", ["price > 5", "price = NULL"]
    rows = [{"id": f"s{n}", "filter": text} for n, text in enumerate(texts)]
    if suffix == "csv":
        path.write_text("id,filter\n" + "".join(f"{row['id']},{row['filter']}\n" for row in rows))
    elif suffix == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif suffix == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("\n\n".join(texts))
    result = run(path, "-s", schema, "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 1
    assert [(f["id"], f["code"]) for f in found["findings"]] == [
        (3 if suffix == "sql" else "s1", code) for code in ("null-comparison", "never")
    ]
    assert found["findings"][0]["line"] == found["findings"][0]["column"] == 1


@pytest.mark.parametrize(
    ("texts", "options", "code"),
    [
        (["price > 5"], [], 0),
        (["high > low"], [], 1),
        (["high > low"], ["--fail-on", "error"], 0),
        (["price > 5", "price > 6"], [], 0),
        (["price > 5", "price > 6"], ["--fail-on", "note"], 1),
        (["price = NULL"], ["--fail-on", "never"], 0),
        (["price = NULL"], ["--fail-on", "sometimes"], 2),
    ],
)
def test_exit_codes(tmp_path, schema, texts, options, code):
    """0: nothing as bad as --fail-on, 1: something is, 2: called wrongly."""
    path = tmp_path / "subs.txt"
    path.write_text("\n".join(texts))
    assert run(path, "-s", schema, *options).exit_code == code


def test_the_page_shows_the_place(tmp_path, schema):
    """Row, id, severity, rule, advice and a caret line; --show leaves out what is less bad; control characters stay out."""
    path = tmp_path / "subs.csv"
    path.write_text('id,filter\n"\x1b[2J",price > 5 AND price > 3\nx,price > 6\nonly one field\n')
    result = run(path, "-s", schema)
    assert result.exit_code == 1
    assert "row 0, id '\\x1b[2J': warning: redundant: this condition changes nothing" in result.stdout
    assert "\n  price > 5 AND price > 3\n                ^^^^^^^^^" in result.stdout
    assert "covered" in result.stdout
    assert "\x1b[2J" not in result.output
    assert "covered" not in run(path, "-s", schema, "--show", "warning").stdout
    assert "row 2" in result.stderr
