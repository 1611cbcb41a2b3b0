from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wherecast.language.filters.compile as compile_module
from wherecast.errors import FilterError
from wherecast.language.events.schema import Schema
from wherecast.language.events.types import Type
from wherecast.language.filters.compile import Compiler
from wherecast.language.syntax.limits import Limits
from wherecast.language.syntax.sql import SlotKind

SCHEMA = Schema.of({"a": "integer", "x": "boolean", "name": "string", "price": "double", "day": "date"})
GOOD = (
    "a = {i}",
    "a = {i}.5",
    "a = {i} AND price < {i}.25",
    "name = 'n{i}'",
    "name LIKE 'n{i}%' OR a > {i}",
    "name LIKE '%{i}'",
    "name LIKE 'n{i}'",
    "a IN ({i}, 2, 3)",
    "a IN ({i}, 2.5)",
    "name IN ('n{i}', 'x')",
    "price > a + {i}",
    "price > a + {i}.5",
    "x",
    "day >= '2024-01-{d:02d}'",
    "TRUE",
)
BAD = (
    "nosuch = {i}",
    "a = 'n{i}'",
    "a = {i} AND",
    "a = {i}.{i}.{i}",
    "day = '2024-13-{d:02d}'",
    "name RLIKE '({i}'",
    "a IN ({i}, 'x')",
    "price LIKE '{i}'",
    "name LIKE 'a\\\\b{i}'",
    "",
)


def text_of(form: str, i: int) -> str:
    return form.format(i=i, d=i % 28 + 1)


texts = st.lists(st.builds(text_of, st.sampled_from(GOOD + BAD), st.integers(0, 5)), max_size=30)


def one_by_one(text: str) -> bytes | tuple[str, str, int]:
    """The digest of a filter compiled alone, or what its error says."""
    try:
        return Compiler(SCHEMA).compile(text).digests
    except FilterError as error:
        return error.reason, error.message, error.start


@given(texts)
def test_a_batch_is_its_texts(batch):
    """A batch gives each text the filter, or the error, that it has when it is compiled alone."""
    compiled = Compiler(SCHEMA).compile_many(batch)
    errors = {row: (e.reason, e.message, e.start) for row, e in compiled.errors}
    found = [errors[r] if f < 0 else compiled.filters.digest(f) for r, f in enumerate(compiled.filter_of)]
    assert found == [one_by_one(text) for text in batch]


@given(texts)
def test_rows_line_up(batch):
    """Every row has a filter or an error, errors come in order of rows, equal texts share a filter."""
    compiled = Compiler(SCHEMA).compile_many(batch)
    rows = [row for row, _ in compiled.errors]
    assert rows == np.flatnonzero(compiled.filter_of < 0).tolist()
    assert all(error.text == batch[row] for row, error in compiled.errors)
    assert compiled.filters.n_filters == len({batch[r] for r in range(len(batch)) if compiled.filter_of[r] >= 0})
    for text in set(batch):
        assert len({int(compiled.filter_of[r]) for r, other in enumerate(batch) if other == text}) == 1


def test_bad_rows_do_not_disturb():
    """Bad rows between good ones, of the same shape and of others, leave the good as they are."""
    good = [f"day = '2024-01-{d:02d}' AND a = {d}" for d in range(1, 29)]
    mixed = [t for g in good for t in (g, "day = '2024-02-31' AND a = 1", "nosuch = 1", "a = ", None, 7)]
    compiled = Compiler(SCHEMA).compile_many(mixed)  # type: ignore[arg-type]
    assert [row for row, _ in compiled.errors] == [r for r in range(len(mixed)) if r % 6]
    alone = Compiler(SCHEMA).compile_many(good)
    assert [compiled.filters.digest(f) for f in compiled.filter_of[::6]] == alone.filters.each_digest()


@pytest.mark.parametrize("form", BAD)
def test_bad_texts_are_refused(form):
    """Alone, and beside a good one."""
    with pytest.raises(FilterError):
        Compiler(SCHEMA).compile(text_of(form, 1))
    assert [row for row, _ in Compiler(SCHEMA).compile_many(["a = 1", text_of(form, 1)]).errors] == [1]


def test_nothing():
    """No texts, no filters, no errors."""
    compiled = Compiler(SCHEMA).compile_many([])
    assert (compiled.filters.n_filters, compiled.filter_of.size, compiled.errors) == (0, 0, [])


def test_one_text_is_a_batch_of_one():
    """`compile` gives what a batch of one text gives, or raises its error."""
    compiler = Compiler(SCHEMA)
    assert compiler.compile("a = 1").digests == compiler.compile_many(["a = 1"]).filters.digests
    with pytest.raises(FilterError) as caught:
        compiler.compile("a = 'x'")
    ((row, error),) = compiler.compile_many(["a = 'x'"]).errors
    assert (row, str(error)) == (0, str(caught.value))


@pytest.mark.parametrize(
    "group",
    [
        ("a = 1 AND price < 2", "price < 2 AND a = 1", "((a = 1)) AND 2 > price", "A=1 and PRICE<2.0"),
        ("a IN (1, 2)", "a = 2 OR a = 1", "a IN (2, 1, 1)", "a BETWEEN 1 AND 2", "NOT (a < 1 OR a > 2 OR a IS NULL)"),
        ("name = 'it''s'", r"name = 'it\'s'", 'name = "it\'s"', "name LIKE 'it''s'", "`name` /* x */ = 'it''s' -- y"),
        ("x", "x = TRUE", "x IS TRUE", "NOT x = FALSE", "x <> FALSE"),
        ("price < 120", "price < 120.0", "price < 1.2e2", "price < 120D"),
    ],
)
def test_spellings(group):
    """Spellings of one condition have one digest."""
    compiler = Compiler(SCHEMA)
    assert len({compiler.compile(text).digests for text in group}) == 1


def test_kinds_of_a_column():
    """Integers, decimals, doubles, strings and lists in the same place each have their own reading."""
    batch = ["a = 1", "a = 1.5", "a = 15e-1", "a = 9223372036854775808", "a = 1L", "a = '1'", "a = 5S"]
    compiled = Compiler(SCHEMA).compile_many(batch)
    assert (compiled.filter_of >= 0).tolist() == [True, True, True, True, True, True, False]
    digests = [compiled.filters.digest(f) for f in compiled.filter_of[:5]]
    assert digests[0] == digests[4]
    lists = Compiler(SCHEMA).compile_many(["a IN (1, 2)", "a IN (1, 2.0)", "a IN ('x', 'y')", "a IN (1, 'x')"])
    assert (lists.filter_of >= 0).tolist() == [True, True, False, False]


def test_check_shows_what_compile_does():
    """`check` gives the expression and the clauses, or the error of `compile`."""
    compiler = Compiler(SCHEMA)
    node, clauses = compiler.check("name LIKE 'a%' AND NOT (a = 1)")
    assert node.items[0].form == "prefix"
    assert len(clauses) == 1
    with pytest.raises(FilterError, match="unknown attribute"):
        compiler.check("nosuch = 1")


@pytest.mark.slow
def test_a_large_shape_is_not_kept():
    """It does not push the small ones out."""
    compiler = Compiler(SCHEMA, Limits(terms=20_000))
    compiler.compile("a = 1")
    compiler.compile(" OR ".join(f"a = {i}" for i in range(2_400)))
    assert list(compiler._variants) == [(("a = ", ""), (SlotKind(Type.BIGINT),))]


def test_the_shapes_that_are_kept_are_bounded(monkeypatch):
    """Those that were not used for the longest time go first."""
    monkeypatch.setattr(compile_module, "_KEPT_CHARACTERS", 512)
    compiler = Compiler(SCHEMA)
    for length in range(1, 100):
        compiler.compile("(" * (length % 20) + "a = 1" + ")" * (length % 20))
        compiler.compile("a <> 1")
        assert sum(len(part) for skeleton, _ in compiler._variants for part in skeleton) == compiler._kept <= 512
    assert "a <> " in {skeleton[0] for skeleton, _ in compiler._variants}
