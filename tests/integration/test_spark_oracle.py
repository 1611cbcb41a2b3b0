"""Wherecast answers exactly what Spark SQL answers for `WHERE filter`."""

from __future__ import annotations

import datetime as dt
import json
import random
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.examples import scaled
from tests.oracle.ask import ask_spark, holds
from tests.property.columns import events_table
from tests.property.strategies import KIND_NAMES, MAP_KINDS, REGEXES, STRINGS, WIDTH_KINDS, Space, Trial, make_trial
from tests.property.terms import Term, quote, text

from wherecast.engine.engine import Engine
from wherecast.errors import FilterError
from wherecast.language.syntax.java_regex import rlike_regex
from wherecast.matchers.registry import MATCHERS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEEDS = range(10)
FILTERS, EVENTS = 60, 40
#: Trials with numbers of every width; the long profile draws fifty times as many.
WIDTH_SEEDS = range(scaled(5))

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("compiling_spark")]


def ask_wherecast(trial: Trial, filters: Sequence[Term], matcher: str = "scan") -> list[list[bool] | None]:
    """For each filter, which events satisfy it; None where it does not compile."""
    engine = Engine(trial.space.schema, matcher=matcher)
    quarantined = engine.subscribe_many([(i, text(f)) for i, f in enumerate(filters)]).quarantined
    matched = [set(ids) for ids in engine.match_batch(trial.events)]
    refused = {q.id for q in quarantined}
    return [None if i in refused else [i in ids for ids in matched] for i in range(len(filters))]


def differences(spark: SparkSession, trial: Trial, matcher: str) -> tuple[int, list[str]]:
    """How many pairs were compared, and what differs, each difference as small as it can be made."""
    table = events_table(trial.space, trial.events)
    ours = ask_wherecast(trial, trial.filters, matcher)
    compiled = [f for f, answer in zip(trial.filters, ours, strict=True) if answer is not None]
    theirs = ask_spark(spark, table, [holds(text(f, "spark")) for f in compiled])
    wrong = [f for f, o, t in zip(compiled, [o for o in ours if o is not None], theirs, strict=True) if o != t]
    return len(compiled) * len(trial.events), [_smallest(spark, trial, f, matcher) for f in wrong]


def _smallest(spark: SparkSession, trial: Trial, term: Term, matcher: str) -> str:
    """The smallest condition inside a filter about which the two differ, with the first event that shows it."""
    table = events_table(trial.space, trial.events)
    for part in sorted((t for t in term.walk() if t.type == "boolean"), key=lambda t: t.size):
        (ours,) = ask_wherecast(trial, [part], matcher)
        if ours is None:
            continue
        (theirs,) = ask_spark(spark, table, [holds(text(part, "spark"))])
        if not isinstance(theirs, list):
            return f"{text(part)}: Spark refuses it: {str(theirs).splitlines()[0]}"
        for event, o, t in zip(trial.events, ours, theirs, strict=True):
            if o != t:
                return (
                    f"{text(part)}\n  as Spark has it: {text(part, 'spark')}\n  event: {_used(event, part)}\n"
                    f"  Wherecast: {o}, Spark: {t}\n  schema: {trial.space.schema}"
                )
    return f"{text(term)}: differs only as a whole"


def _used(event: dict[str, Any], term: Term) -> dict[str, Any]:
    names = {t.value for t in term.walk() if t.op == "column"}
    return {name: value for name, value in event.items() if name in names}


@pytest.mark.parametrize("seed", SEEDS)
def test_every_filter_means_what_spark_says(spark: SparkSession, seed: int) -> None:
    """All operators, NULLs, NaN, infinities, unicode, 64-bit extremes, dates and arrays: the answers are Spark's."""
    rng = random.Random(seed)
    trial = make_trial(rng, FILTERS, EVENTS, attributes=rng.randint(4, 6))
    pairs, different = differences(spark, trial, list(MATCHERS)[seed % len(MATCHERS)])
    assert not different, "\n\n".join(different[:5])
    assert pairs > 0.95 * FILTERS * EVENTS, "too few of the random filters compile"


def test_numbers_of_every_width_compute_as_in_spark(spark: SparkSession) -> None:
    """TINYINT, SMALLINT, INT, BIGINT, FLOAT and DOUBLE at the ends of their ranges: results and overflow are Spark's."""
    checked, different = 0, []
    for seed in WIDTH_SEEDS:
        rng = random.Random(seed)
        trial = make_trial(rng, FILTERS, EVENTS, attributes=6, kinds=WIDTH_KINDS)
        pairs, found = differences(spark, trial, "scan")
        checked, different = checked + pairs, different + found
    assert not different, f"{len(different)} filters differ\n\n" + "\n\n".join(different[:5])
    assert checked > 0.95 * len(WIDTH_SEEDS) * FILTERS * EVENTS, "too few of the random filters compile"


def test_later_types_mean_what_spark_says(spark: SparkSession) -> None:
    """Decimals of both widths, bytes, wall clocks, arrays of them and maps."""
    trial = make_trial(random.Random(7), FILTERS, EVENTS, attributes=10, kinds=MAP_KINDS)
    pairs, different = differences(spark, trial, "adaptive")
    assert not different, "\n\n".join(different[:5])
    assert pairs > 0.95 * FILTERS * EVENTS, "too few of the random filters compile"


def test_the_run_is_large_enough() -> None:
    """All seeds together check at least 20,000 filter x event pairs."""
    assert len(SEEDS) * 0.95 * FILTERS * EVENTS > 20_000


_SQL_TYPES = {kind: sql for sql, kind in KIND_NAMES.items()}
_READ = {"date": dt.date.fromisoformat, "timestamp": dt.datetime.fromisoformat}


def _read_table(path: Path) -> tuple[Space, list[dict[str, Any]], list[dict[str, Any]]]:
    """A case table as a space, its events with dates read, and its cases."""
    table = json.loads(path.read_text("utf-8"))
    types = {
        name: f"array<{_SQL_TYPES[kind[6:-1]]}>" if kind.startswith("array<") else _SQL_TYPES[kind]
        for name, kind in table["schema"].items()
    }
    events = [{n: _READ.get(types[n], lambda v: v)(v) for n, v in event.items()} for event in table["events"]]
    return Space(types, {}), events, table["cases"]


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[1] / "cases").glob("*.json")), ids=lambda p: p.stem)
def test_the_case_tables_are_true(spark: SparkSession, path: Path) -> None:
    """What the tables of tests/cases expect is what Spark answers."""
    space, events, cases = _read_table(path)
    answers = ask_spark(
        spark, events_table(space, events), [holds(case.get("spark", case["filter"])) for case in cases]
    )
    for case, answer in zip(cases, answers, strict=True):
        assert isinstance(answer, list), f"{case['filter']}: Spark refuses it: {answer}"
        assert [row for row, held in enumerate(answer) if held] == case["matches"], case["filter"]


_ALIKE = (
    "",
    "a",
    "A",
    "\n",
    "a\n",
    "a\r\n",
    "\r",
    "a\rb",
    "a\u2028",
    "ab ab",
    "K",
    "\u212a",
    "-",
    "^",
    "]",
    "a1_",
    "é",
)


def test_every_regular_expression_finds_what_java_finds(spark: SparkSession) -> None:
    """RLIKE agrees with Java on line ends, classes, (?i), groups and repetitions."""
    texts = [*STRINGS, *_ALIKE]
    answers = ask_spark(spark, pa.table({"t": texts}), [f"t RLIKE {quote(pattern)}" for pattern in REGEXES])
    for pattern, answer in zip(REGEXES, answers, strict=True):
        assert [rlike_regex(pattern).is_found(t) for t in texts] == answer, pattern


def test_case_mapping_is_spark_s(spark: SparkSession) -> None:
    """Lower and upper case map every character as Spark does, but for the few whose mapping is newer than Python's Unicode."""
    characters = [chr(c) for c in range(0x20000) if not 0xD800 <= c < 0xE000 and unicodedata.category(chr(c)) != "Cn"]
    frame = spark.createDataFrame(pa.table({"c": characters})).coalesce(1)
    answers = frame.selectExpr("lower(c)", "upper(c)").toArrow()
    lowered, raised = (answers.column(i).to_pylist() for i in range(2))
    newer = [c for c, low, up in zip(characters, lowered, raised, strict=True) if (low, up) != (c.lower(), c.upper())]
    assert all(unicodedata.category(m) == "Cn" for c in newer for m in raised[characters.index(c)]), newer


@pytest.mark.parametrize(
    "text_",
    [
        "n < 99999999999999999999",  # Spark: true, even where n is NULL
        "n BETWEEN 0 AND 99999999999999999999",
        "n = 1.0000000000000000000000001",  # Spark rounds the number to 18 digits, and finds 1
        "n IN (2, 1.0000000000000000000000001)",
        "s RLIKE 'a{'",
        "s RLIKE '(?P<x>a)'",
        "s RLIKE '(a$|b)c'",
        "s LIKE 'a\\\\b'",
    ],
)
def test_what_spark_gets_wrong_or_refuses_is_refused(text_: str) -> None:
    """A filter that Spark refuses, or answers in a way that no subscriber means, does not compile."""
    with pytest.raises(FilterError):
        Engine({"n": "integer", "s": "string"}).subscribe(1, text_)
