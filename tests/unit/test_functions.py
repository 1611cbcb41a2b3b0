"""The table of functions: what follows from its rows."""

import datetime as dt
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.examples import scaled

from wherecast import Engine, FilterError, Limits
from wherecast.index.programs import pack_programs, unpack_programs
from wherecast.index.residuals import attribute_values
from wherecast.language.evaluate import holds
from wherecast.language.events.events import EventBatch
from wherecast.language.events.schema import Schema
from wherecast.language.filters.compile import Compiler
from wherecast.language.filters.normalize import Truth
from wherecast.language.filters.written import write_filter
from wherecast.language.functions.fdlibm import cbrt, exp, log, log10, power
from wherecast.language.functions.page import rewrite
from wherecast.language.functions.refused import REFUSED, refusal
from wherecast.language.functions.table import COMPUTING, FAMILIES, FUNCTIONS
from wherecast.language.syntax.cutting import SlotTexts
from wherecast.language.syntax.literals import Literals, ProgramScope
from wherecast.language.syntax.skeletons import cut_text

FIELDS = {
    "symbol": "string",
    "price": "double",
    "volume": "integer",
    "halted": "boolean",
    "day": "date",
    "time": "timestamp",
    "tags": "array<string>",
    "sizes": "array<integer>",
    "labels": "map<string,string>",
    "quote": {"type": "struct", "fields": {"bid": "double", "ask": "double"}},
    "odd name": "string",
    "embedding": "vector(3)",
    "from": "string",
}
SCHEMA = Schema.of(FIELDS)
ROWS = [row for rows in FAMILIES.values() for row in rows]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_rows_are_complete(row):
    """A row's example compiles and calls the function, its names are its own, and it computes or rewrites."""
    assert row.example
    names = (row.name, *row.aliases)
    assert any(f"{name}(" in row.example for name in names)
    assert all(FUNCTIONS[name] is row for name in names)
    assert row.evaluate is not None or row.build is not None
    assert Compiler(SCHEMA).compile(row.example).clause_ptr.size == 2


@pytest.mark.sampled
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_call_comes_back_from_a_snapshot_and_from_text(row):
    """A filter is stored, and written as text, so that the same residuals and the same filter come back."""
    forms = [form.format(row.example) for form in ("{}", "NOT ({})", "({}) IS NULL", "({}) OR volume > price")]
    filters, rows, errors = Compiler(SCHEMA).compile_many(forms)
    assert not errors
    facts, arrays = pack_programs(filters.programs, SCHEMA)
    again = unpack_programs(facts, arrays, SCHEMA)
    assert [p.residuals for p in again] == [p.residuals for p in filters.programs]
    texts = [write_filter(filters, SCHEMA, row) for row in rows.tolist()]
    rewritten, rows, errors = Compiler(SCHEMA).compile_many(texts)
    assert not errors
    assert [write_filter(rewritten, SCHEMA, row) for row in rows.tolist()] == texts


def test_the_page_is_up_to_date():
    """docs/language.md has the tables that `make docs` writes."""
    page = (Path(__file__).parents[2] / "docs" / "language.md").read_text("utf-8")
    assert rewrite(page) == page


def test_what_is_refused_is_not_in_the_table():
    """A function is either a row or refused, and each refusal says why."""
    for group in REFUSED:
        for name in group.names:
            assert name not in FUNCTIONS
            assert name.upper() in refusal(name)


# -- intervals --------------------------------------------------------------------------------------------------------


def _by_evaluation(text, schema, events):
    """Which events satisfy a comparison, by evaluating it."""
    node, _ = Compiler(schema).check(text)
    literals = Literals([SlotTexts.of([value]) for value in cut_text(text)[1]], 1, schema.zone).take([node])
    rows = np.zeros(len(events), np.int64)
    scope = ProgramScope(literals, rows, lambda i: attribute_values(events, i), schema.zone)
    return holds(node, Truth.TRUE, scope).tolist()


ODD_DOUBLES = [0.0, -0.0, 0.5, -0.5, 1.0, 2.999, 3.0, 3.5, -3.0, -3.5, 2.0**53, 2.0**53 + 2, 2.0**63, -(2.0**63), 1e300]
ODD_INTEGERS = [0, 1, -1, 3, -3, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 1970, 2024]


def _columns(rng, zone):
    """Instants around midnights, also those at which clocks change, and numbers at the ends of their ranges."""
    days = [rng.randrange(-400_000, 800_000) for _ in range(40)] + [12_721, 13_085, 13_086, 19_812, 20_023, 0]
    near = [day * 86_400 + shift for day in days for shift in (-7201, -1, 0, 59, 3599, 3600, 9000, 9059, 12_660)]
    times = [1_000_000 * second + rng.randrange(-1, 2) for second in near]
    n = len(times)
    doubles = [*ODD_DOUBLES, float("nan"), float("inf"), float("-inf")]
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "w": pa.array(times, pa.timestamp("us")),
            "d": pa.array([t // 86_400_000_000 for t in times], pa.int32()).cast(pa.date32()),
            "x": pa.array([doubles[i % len(doubles)] if i % 7 else None for i in range(n)]),
            "k": pa.array([ODD_INTEGERS[i % len(ODD_INTEGERS)] for i in range(n)]),
        }
    ), days


@pytest.mark.sampled
@pytest.mark.parametrize(
    "zone",
    [
        *("UTC", "Europe/Berlin"),
        *(pytest.param(z, marks=pytest.mark.slow) for z in ("America/St_Johns", "America/Sao_Paulo", "+05:30")),
    ],
)
def test_comparisons_of_monotone_functions_are_intervals(zone):
    """year(t) = 2024, to_date(t) < d, floor(x) >= 3: no residual is left, and the interval says what evaluation says."""
    rng = random.Random(zone)
    schema = Schema.of(
        {"ts": "timestamp", "w": "timestamp_ntz", "d": "date", "x": "double", "k": "bigint"}, time_zone=zone
    )
    table, days = _columns(rng, zone)
    events = EventBatch.read(schema, table)
    engine, texts = Engine(schema), []
    for op in ("=", "<>", "<", "<=", ">", ">=", "<=>"):
        texts += [f"year({c}) {op} {rng.choice([1970, 2006, 2024, 5, 99999, -7])}" for c in ("ts", "w", "d")]
        for day in rng.sample(days, 6) + days[-6:]:
            date = dt.date(1970, 1, 1) + dt.timedelta(days=day)
            texts += [f"to_date({c}) {op} DATE '{date}'" for c in ("ts", "w", "d")]
        texts += [f"{f}({c}) {op} {n}" for f in ("floor", "ceil") for c in ("x", "k") for n in ODD_INTEGERS]
    texts = random.sample(texts, max(150, min(len(texts), scaled(len(texts)))))  # the fast profile takes some
    texts += ["year(ts) IN (1970, 2024)", "NOT (year(d) > 2000)", "floor(x) BETWEEN 0 AND 3", "NOT (ceil(x) > 3)"]
    for text in texts:
        clauses = Compiler(schema).check(text)[1]
        assert not any(clause.residuals for clause in clauses) or "<>" in text, text
    texts += ["NOT floor(x) IN (0, 3)", "floor(x) IN (0, 3)", "(floor(x) > 3) IS NULL", "NOT floor(x) <=> 3"]
    engine.subscribe_many(list(enumerate(texts)))
    found = [set(ids) for ids in engine.match_batch(table)]
    wrong = [
        text for i, text in enumerate(texts) if [i in ids for ids in found] != _by_evaluation(text, schema, events)
    ]
    assert not wrong


# -- work -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("regexp_extract(symbol, '(?=a)') = ''", "are supported of"),
        ("regexp_extract(symbol, 'a|b$', 0) = ''", "alternatives"),
        ("regexp_replace(symbol, 'a*', '') = ''", "empty text"),
        ("regexp_replace(symbol, 'a', '$1') = ''", "the pattern has 0 groups"),
        ("regexp_replace(symbol, symbol, '') = ''", "a string literal"),
        ("substring(symbol, volume) = ''", "substring needs an int"),
        ("round(volume * 1.5, 1) / 3 > 1", "round last"),
        ("coalesce(symbol, 1) = 'x'", "one type"),
        ("substring(symbol) = ''", "substring takes 2 to 3 arguments"),
        ("greatest(price) > 1", "greatest takes 2 arguments or more"),
        ("now() > time", "nothing but its event"),
        ("rand() < 0.5", "nothing but its event"),
        ("explode(tags) = 'x'", "one event"),
        ("row_number() = 1", "one event"),
        ("current_user() = 'x'", "nothing but its event"),
        ("soundex(symbol) = 'x'", "not supported yet"),
    ],
)
def test_refusals_say_why(text, message):
    """What a function does not take is refused with the reason."""
    with pytest.raises(FilterError, match=message):
        Compiler(SCHEMA).compile(text)


def test_patterns_of_functions_have_a_limit():
    """The limit of patterns holds for those of functions."""
    with pytest.raises(FilterError, match="at most 10"):
        Compiler(SCHEMA, replace(Limits(), pattern=10)).compile("regexp_extract(symbol, '(aaaaaaaaaaaa)') = ''")


def test_digits_of_literals_matter_only_to_functions_that_compute():
    """`lower(a) = 'x' AND b = 1` is one shape for all numbers; `substring(a, 1)` is not."""
    assert "substring" in COMPUTING
    assert "lower" not in COMPUTING


def test_java_functions_are_exact():
    """Each line of the fixture: x, y and StrictMath's pow(x, y), exp(x), log(x), log10(x), cbrt(x), as bits of doubles."""
    lines = (Path(__file__).parents[1] / "fixtures" / "strictmath.txt").read_text().splitlines()
    bits = np.array([[int(text, 16) for text in line.split()] for line in lines], np.uint64).T.copy()
    x, y, powers, exps, logs, logs10, roots = (column.view(np.float64) for column in bits)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(power(x, y), powers)
        np.testing.assert_array_equal(exp(x), exps)
        np.testing.assert_array_equal(cbrt(x), roots)
        np.testing.assert_array_equal(log(x[x >= 0]), logs[x >= 0])
        np.testing.assert_array_equal(log10(x[x >= 0]), logs10[x >= 0])


def test_large_doubles_are_rounded_as_their_decimals() -> None:
    """A tie is seen where the last bit of a product is worth more than a tie's distance."""
    engine = Engine({"x": "double"})
    engine.subscribe_many({"even": "bround(x, 2) = -4494920010230.56D", "away": "round(x, 2) = -4494920010230.57D"})
    assert sorted(engine.match({"x": -4494920010230.565})) == ["away", "even"]


@pytest.mark.parametrize(
    ("form", "text", "moment"),
    [
        ("dd.MM.yyyy", "29.02.2024", "2024-02-29T00:00:00"),
        ("dd.MM.yyyy", "29.02.2023", None),
        ("dd.MM.yyyy", "1.2.2024", None),
        ("d.M.yyyy", "1.2.2024", "2024-02-01T00:00:00"),
        ("yyyyMMddHHmmss.SSS", "20240131235959.12", "2024-01-31T23:59:59.12"),
        ("yyyy-MM-dd'T'HH:mm:ssXXX", "2024-01-31t12:00:00-01:30", "2024-01-31T13:30:00"),
        ("yyyy-MM-dd'T'HH:mm:ssXXX", "2024-01-31T12:00:00+19:00", None),
        ("dd MMM yyyy", "31 jan 2024", "2024-01-31T00:00:00"),
        ("HH:mm", "23:59", "1970-01-01T23:59:00"),
        ("HH:mm", "24:00", None),
        ("yyyy", "12024", None),
        ("yyyy", "+12024", None),  # Spark knows it, an event does not
    ],
)
def test_texts_are_read_by_a_format(form: str, text: str, moment: str | None) -> None:
    """The whole text must match, and the moment must exist; what the format leaves out is the beginning of 1970."""
    quoted = form.replace("'", "\\'")
    engine = Engine({"s": "string", "t": "timestamp"})
    engine.subscribe("equal", f"to_timestamp(s, '{quoted}') = t")
    engine.subscribe("unknown", f"to_timestamp(s, '{quoted}') IS NULL")
    event = {"s": text, "t": f"{moment or '1970-01-01T00:00:00'}Z"}
    wanted = [] if text == "+12024" else ["unknown" if moment is None else "equal"]
    assert engine.match(event) == wanted
    assert engine.match_batch([event] * 40).to_lists() == [wanted] * 40


def test_moments_are_written_by_a_format() -> None:
    """Letters stand for parts of the wall clock in the schema's zone."""
    engine = Engine(Schema.of({"t": "timestamp", "n": "integer"}, time_zone="Europe/Berlin"))
    engine.subscribe("t", "date_format(t, \"dd.MM.yy H:mm:ss.SSS 'Uhr' XXX\") = '01.02.24 0:30:00.250 Uhr +01:00'")
    engine.subscribe("n", "from_unixtime(n) = '1970-01-01 01:00:05'")
    assert sorted(engine.match({"t": "2024-01-31T23:30:00.25Z", "n": 5})) == ["n", "t"]


@pytest.mark.parametrize(
    "form", ["EEE", "yyyy-MM-dd hh:mm a", "[yyyy]", "yyyyM", "yyyy yyyy", "---", "SSS", "HHmmssSSS"]
)
def test_formats_that_are_refused(form: str) -> None:
    """What cannot be exact is refused, with the letters that can."""
    with pytest.raises(FilterError, match="format"):
        Engine({"s": "string"}).subscribe("a", f"to_date(s, '{form}') IS NULL")


REGEX_CALLS = [
    "regexp_replace(s, '{}+', 'z') = 'z1'", "regexp_extract(s, '({}+)1', 1) = '{}'", "regexp_count(s, '{}') = 1",
    "regexp_instr(s, '{}1') = 1", "regexp_substr(s, '{}+') = '{}'",
]  # fmt: skip


@pytest.mark.parametrize("call", REGEX_CALLS)
def test_patterns_of_many_filters(call):
    """Filters that differ in their patterns are evaluated together, also for a batch of Arrow."""
    engine = Engine({"s": "string"})
    engine.subscribe_many({letter: call.replace("{}", letter) for letter in "abcde"})
    events = pa.table({"s": ["a1", "b1", "c1", "x1", None] * 20})
    assert engine.match_batch(events).to_lists() == [["a"], ["b"], ["c"], [], []] * 20


def test_old_offsets_are_written_without_seconds():
    """Local mean time of St. John's was 3:30:52 behind; like Java, a format shows the minutes that are whole."""
    schema = Schema.of({"ts": "timestamp"}).in_time_zone("America/St_Johns")
    engine = Engine(schema)
    engine.subscribe("old", "date_format(ts, 'XXX') = '-03:30'")
    assert engine.match({"ts": "1800-01-02T00:00:00Z"}) == ["old"]
