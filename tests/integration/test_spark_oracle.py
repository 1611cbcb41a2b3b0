"""Wherecast answers exactly what Spark SQL answers for `WHERE filter`."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from tests.property.columns import events_table
from tests.property.strategies import Trial, make_trial
from tests.property.terms import Term, text
from wherecast.engine.engine import Engine
from wherecast.errors import FilterError
from wherecast.matchers.registry import MATCHERS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEEDS = range(10)
FILTERS, EVENTS = 60, 40

pytestmark = pytest.mark.spark


class SparkRefusalError(Exception):
    """Spark does not run a text that Wherecast accepts."""


def ask_spark(frame: DataFrame, texts: Sequence[str]) -> list[list[bool]]:
    """For each text, which rows satisfy it: one job for all of them."""
    from pyspark.errors import PySparkException

    try:
        answers = frame.selectExpr(*(f"({t}) IS TRUE AS f{i}" for i, t in enumerate(texts))).toArrow()
    except PySparkException as error:
        if len(texts) == 1:
            raise SparkRefusalError(f"{texts[0]}\n{str(error).splitlines()[0]}") from None
        half = len(texts) // 2
        return ask_spark(frame, texts[:half]) + ask_spark(frame, texts[half:])
    return [answers.column(i).to_pylist() for i in range(len(texts))]


def ask_wherecast(trial: Trial, filters: Sequence[Term], matcher: str = "scan") -> list[list[bool] | None]:
    """For each filter, which events satisfy it; None where it does not compile."""
    engine = Engine(trial.space.schema, matcher=matcher)
    quarantined = engine.subscribe_many([(i, text(f)) for i, f in enumerate(filters)]).quarantined
    matched = [set(ids) for ids in engine.match_batch(trial.events)]
    refused = {q.id for q in quarantined}
    return [None if i in refused else [i in ids for ids in matched] for i in range(len(filters))]


def differences(spark: SparkSession, trial: Trial, matcher: str) -> tuple[int, list[str]]:
    """How many pairs were compared, and what differs, each difference as small as it can be made."""
    frame = spark.createDataFrame(events_table(trial.space, trial.events)).coalesce(1)
    ours = ask_wherecast(trial, trial.filters, matcher)
    compiled = [f for f, answer in zip(trial.filters, ours, strict=True) if answer is not None]
    theirs = ask_spark(frame, [text(f, "spark") for f in compiled])
    wrong = [f for f, o, t in zip(compiled, [o for o in ours if o is not None], theirs, strict=True) if o != t]
    return len(compiled) * len(trial.events), [_smallest(frame, trial, f, matcher) for f in wrong]


def _smallest(frame: DataFrame, trial: Trial, term: Term, matcher: str) -> str:
    """The smallest condition inside a filter about which the two differ, with the first event that shows it."""
    for part in sorted((t for t in term.walk() if t.type == "boolean"), key=lambda t: t.size):
        (ours,) = ask_wherecast(trial, [part], matcher)
        if ours is None:
            continue
        (theirs,) = ask_spark(frame, [text(part, "spark")])
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


def test_the_run_is_large_enough() -> None:
    """All seeds together check at least 20,000 filter x event pairs."""
    assert len(SEEDS) * 0.95 * FILTERS * EVENTS > 20_000


def test_what_is_refused_is_refused_for_a_reason() -> None:
    """A filter that Spark would misread or cannot compare exactly raises FilterError."""
    engine = Engine({"n": "integer"})
    with pytest.raises(FilterError):
        engine.subscribe(1, "n < 99999999999999999999")
