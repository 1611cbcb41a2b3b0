"""The passes of `normalize`, each shown by examples in tests/fixtures/normalize.

A fixture file holds blocks separated by blank lines; a block is `name: text` lines, in the order of the passes:

    filter:     the filter
    limit:      clauses at most (64 where it is not said)
    push_truth: its statement without NOT and NULL logic
    group_sets: the same with the alternatives of one attribute united
    clause:     one line per clause of the normal form
    exact:      no, where the clauses are a cover and the whole filter their residual

A set of values is written {a: tests}, `!` before a test is its complement among the values that are there, `null` adds
NULL. A residual is written [condition is true]. & and | join; `always` and `never` are the empty ones. Literals are shown
as they are written in the filter.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from wherecast.language.events.schema import Schema
from wherecast.language.expression import Param
from wherecast.language.filters.columns import Column, Reading
from wherecast.language.filters.compile import Compiler
from wherecast.language.filters.normalize import (
    All,
    Any_,
    Clause,
    Logic,
    Predicate,
    Residual,
    Truth,
    Values,
    expand,
    group_sets,
    normalize,
    push_truth,
)
from wherecast.language.filters.render import attribute_namer, render, written_literal
from wherecast.language.syntax.skeletons import cut_text

FIXTURES = Path(__file__).parents[1] / "fixtures" / "normalize"
SCHEMA = Schema.of(
    {
        "a": "integer",
        "b": "integer",
        "c": "integer",
        "x": "boolean",
        "y": "boolean",
        "name": "string",
        "tags": "array<string>",
    }
)


def blocks() -> list[tuple[str, dict[str, list[str]]]]:
    found = []
    for path in sorted(FIXTURES.glob("*.txt")):
        lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
        for block in "\n".join(lines).split("\n\n"):
            fields: dict[str, list[str]] = {}
            for line in block.strip().splitlines():
                name, _, text = line.partition(":")
                fields.setdefault(name.strip(), []).append(text.strip())
            if fields:
                found.append((path.stem, fields))
    return found


class Writer:
    """Logic in words, with the literals of one filter."""

    def __init__(self, text: str) -> None:
        self.literals = cut_text(text)[1]
        self.name = attribute_namer(SCHEMA)

    def literal(self, param: Param) -> str:
        """A literal as it is written."""
        return written_literal(param, self.literals[param.slot])

    def column(self, column: Column) -> str:
        """What is taken from an attribute."""
        name = self.name(column.attr)
        return {Reading.LITERALS: f"in {name}", Reading.LOWER_LITERALS: f"in lower({name})"}.get(column.reading, name)

    def test(self, test: Predicate) -> str:
        """A set of values."""
        words = f"{test.op} {test.mark}{', '.join(map(self.literal, test.params))}".strip()
        return ("!" if test.complement else "") + words + (" null" if test.null else "")

    def logic(self, logic: Logic, *, top: bool = True) -> str:
        """Any statement."""
        if isinstance(logic, Values):
            return f"{{{self.column(logic.column)}: {' | '.join(map(self.test, logic.predicates))}}}"
        if isinstance(logic, Residual):
            return f"[{render(logic.node, self.name, self.literal)} is {logic.truth.value}]"
        if not logic.items:
            return "always" if isinstance(logic, All) else "never"
        joint = " & " if isinstance(logic, All) else " | "
        words = joint.join(self.logic(item, top=False) for item in logic.items)
        return words if top else f"({words})"

    def clause(self, clause: Clause) -> str:
        """A clause."""
        return self.logic(All((*clause.values, *clause.residuals)))


BLOCKS = blocks()


@pytest.mark.parametrize(("file", "fields"), BLOCKS, ids=[f"{file}: {f['filter'][0]}" for file, f in BLOCKS])
def test_passes(file, fields):
    """Each pass makes of a filter what its fixture says."""
    (text,) = fields["filter"]
    limit = int(fields.get("limit", ["64"])[0])
    writer = Writer(text)
    node, _ = Compiler(SCHEMA).check(text)
    pushed = push_truth(node)
    grouped = group_sets(pushed)
    clauses, exact = expand(grouped, limit)
    found = {
        "push_truth": [writer.logic(pushed)],
        "group_sets": [writer.logic(grouped)],
        "clause": [writer.clause(c) for c in clauses],
        "exact": ["yes" if exact else "no"],
    }
    wanted = {name: fields[name] for name in found if name in fields}
    assert {name: found[name] for name in wanted} == wanted
    if exact:
        assert normalize(node, limit) == clauses
    else:
        assert all([(r.node, r.truth) for r in c.residuals] == [(node, Truth.TRUE)] for c in normalize(node, limit))


def test_every_pass_has_fixtures():
    """There is a file for every pass."""
    assert {file for file, _ in BLOCKS} == {"push_truth", "group_sets", "expand", "covers"}


def test_truth():
    """NOT swaps true and false; the two weaker statements admit the unknown."""
    assert [t.of_negation for t in Truth] == [Truth.FALSE, Truth.TRUE, Truth.NOT_FALSE, Truth.NOT_TRUE]
    assert [t.admits_unknown for t in Truth] == [False, False, True, True]
    assert push_truth(Compiler(SCHEMA).check("x")[0], Truth.NOT_TRUE) == push_truth(
        Compiler(SCHEMA).check("(NOT x) IS NOT FALSE")[0]
    )


def test_the_limit_always_holds():
    """However a filter multiplies out, it has no more clauses than the limit."""
    text = " AND ".join(f"(a = {i} OR b = {i} OR c > {i})" for i in range(12))
    for limit in (1, 2, 7, 64):
        node, _ = Compiler(SCHEMA).check(text)
        assert 0 < len(normalize(node, limit)) <= limit


def test_empty_logic():
    """Nothing to satisfy is one clause without constraints; nothing to choose from is no clause."""
    assert expand(All(), 8) == ([Clause((), ())], True)
    assert expand(Any_(), 8) == ([], True)
