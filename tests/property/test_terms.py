"""Filters compiled by their terms are those compiled shape by shape."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.property.naive import NAIVE_FEATURES, check
from tests.property.strategies import Trial, trials
from tests.property.terms import text

import wherecast.language.filters.compile as compile_module
from wherecast.engine.engine import Engine
from wherecast.errors import FilterError
from wherecast.language.events.schema import Schema
from wherecast.language.filters.compile import Compiler
from wherecast.language.filters.written import write_filter
from wherecast.language.syntax.limits import Limits

NEVER = 1 << 60
SCHEMA = Schema.of(
    {
        "a": "integer",
        "b": "integer",
        "c": "bigint",
        "x": "boolean",
        "end": "integer",
        "name": "string",
        "note": "string",
        "price": "double",
        "cost": "double",
        "day": "date",
        "tags": "array<string>",
        "sizes": "array<integer>",
        "quote": {"type": "struct", "fields": {"bid": "double", "ask": "double"}},
    }
)
TERMS = (
    "a = {i}",
    "b = {i}",
    "{i} < b",
    "c <> {i}",
    "a BETWEEN {i} AND 9",
    "b NOT BETWEEN {i} AND 9",
    "a BETWEEN b AND c",
    "c IN ({i}, 2, 5)",
    "a NOT IN ({i}, NULL)",
    "x",
    "x IS NOT TRUE",
    "x = FALSE",
    "name = 'n{i}'",
    "note = 'n{i}'",
    "name LIKE '%n{i}%'",
    "note LIKE '%n{i}%'",
    "name LIKE 'n{i}%'",
    "note ILIKE '%N{i}%' ESCAPE '!'",
    "name RLIKE 'n[0-{i}]'",
    "name NOT LIKE '%n{i}%'",
    "note NOT LIKE '%n{i}%x'",
    "name IS NULL",
    "note IS NOT NULL",
    "price < {i}.5",
    "cost >= -{i}.25",
    "price + cost > {i}",
    "(price + {i}) * 2 > cost",
    "(a = {i} OR b = 2) IS NOT TRUE",
    "day >= DATE '2024-01-0{d}'",
    "CASE WHEN a = {i} AND b = 2 THEN x ELSE FALSE END",
    "array_contains(tags, 't{i}')",
    "exists(sizes, v -> v > {i} AND v < 9)",
    "size(sizes) > {i}",
    "length(name) > {i} /* a AND b */",
    "`end` = {i}",
    "quote.bid > {i}",
    "quote.ask > quote.bid + {i}",
    "TRUE",
    "NULL",
    "1 = {i}",
    "name > note",
)
BROKEN = (
    "nosuch = {i}",
    "a = ",
    "a = 'n{i}'",
    "= {i}",
    "a BETWEEN {i}",
    "name LIKE 'n\\q{i}'",
    "day = '2024-13-01'",
    "a = {i};",
    "a, b",
    "CASE WHEN a = {i}",
    "price",
    "name RLIKE '({i}'",
)


def compile_both(texts: list[str], limits: Limits, *, few: int = NEVER) -> list[list[tuple[object, ...]]]:
    """What becomes of each text, by terms and shape by shape."""
    out = []
    for enough in (1, NEVER):
        with patch.object(compile_module, "ENOUGH_TEXTS", enough), patch.object(compile_module, "FEW_TEXTS", few):
            found = Compiler(SCHEMA, limits).compile_many(texts)
        errors = dict(found.errors)
        out.append([outcome(found.filters, int(f), errors.get(row)) for row, f in enumerate(found.filter_of)])
    return out


def outcome(filters, number: int, error: FilterError | None) -> tuple[object, ...]:
    if error is not None:
        return error.reason, error.message, error.text, error.start, error.end
    return filters.digest(number), write_filter(filters, SCHEMA, number)


@st.composite
def trees(draw, *, broken: bool, depth: int = 3) -> str:
    """Terms under AND, OR, NOT and parentheses, in several spellings."""
    kind = draw(st.integers(0, 5)) if depth else 0
    if kind == 0:
        term = draw(st.sampled_from(TERMS + BROKEN if broken else TERMS))
        i = draw(st.integers(0, 4))
        return term.format(i=i, d=i + 1)
    if kind == 1:
        return draw(st.sampled_from(("NOT ({})", "not(({}))", "NOT NOT ({})", "({})"))).format(
            draw(trees(broken=broken, depth=depth - 1))
        )
    items = draw(st.lists(trees(broken=broken, depth=depth - 1), min_size=2, max_size=3))
    word = draw(st.sampled_from((" AND ", " and\n", " OR ", ") or (", " AND (")))
    joined = word.join(items)
    return f"({joined})" if "(" in word else joined


@examples(150)
@given(st.lists(trees(broken=True), min_size=1, max_size=4), st.sampled_from((64, 64, 3, 1)))
def test_terms_give_what_shapes_give(texts: list[str], clauses: int) -> None:
    """The same digest and text, or the same error in the same place."""
    by_terms, by_shapes = compile_both(texts, Limits(clauses=clauses))
    assert by_terms == by_shapes


@examples(60)
@given(trials(filters=6, events=8, features=NAIVE_FEATURES))
def test_terms_match_what_the_naive_evaluator_says(trial: Trial) -> None:
    """Residuals of several terms are evaluated with their own literals."""
    engine = Engine(trial.space.schema)
    with patch.object(compile_module, "ENOUGH_TEXTS", 1):
        engine.subscribe_many(enumerate(text(t) for t in trial.filters))
    check(engine, dict(enumerate(trial.filters)), trial.events)


@pytest.mark.parametrize(
    "limits",
    [Limits(terms=8), Limits(depth=3), Limits(depth=20), Limits(regexes=1), Limits(clauses=1), Limits(values=2)],
)
def test_limits_hold_for_terms(limits: Limits) -> None:
    """What is too large shape by shape is too large by terms."""
    texts = [
        "a = 1 AND b = 2",
        "a = 1 AND b = 2 AND c = 3",
        "name RLIKE 'a' OR note RLIKE 'b'",
        "(((a = 1 OR ((b = 2)))))",
        "NOT NOT NOT NOT a = 1",
        "a IN (1, 2, 3) AND b = 1",
        "(a = 1 OR b = 2) AND (a = 2 OR c = 3)",
        " AND ".join(["(a = 1 OR b = 2 AND x)"] * 7),
        "(" * 30 + "a = 1" + ")" * 30,
    ]
    by_terms, by_shapes = compile_both(texts, limits)
    assert by_terms == by_shapes


def test_a_large_batch_is_compiled_by_its_terms() -> None:
    """With shapes that do not repeat nothing is compiled as a whole."""
    names = ("a", "b", "c", "price", "cost")
    texts = [
        f"({p} = {n} OR NOT ({q} > {n} AND {r} < 3)) AND {s} <> {n}"
        for n in range(2)
        for p in names
        for q in names
        for r in names
        for s in names
    ]
    compiler = Compiler(SCHEMA)
    with patch.object(Compiler, "_shape", side_effect=AssertionError):
        assert not compiler.compile_many(texts).errors


def test_names_in_another_case_are_refused_where_case_counts() -> None:
    """A term that begins with a name of the wrong case is not taken for another attribute's."""
    texts = [f"a = {i} AND b = {i}" for i in range(40)] + [f"a = {i} OR B > {i}" for i in range(40)]
    with patch.object(compile_module, "FEW_TEXTS", NEVER):
        found = Compiler(SCHEMA, case_sensitive=True).compile_many(texts)
    assert [row for row, _ in found.errors] == list(range(40, 80))
