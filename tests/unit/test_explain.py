"""Explanations: down to the predicate and the literal that hit or missed."""

from __future__ import annotations

from wherecast import Engine
from wherecast.language.syntax.limits import Limits


def test_parts_say_which_literal_is_in_the_text():
    """Several literals of one text are one predicate; its parts tell which of them are there."""
    engine = Engine({"cmd": "string"})
    engine.subscribe(1, "cmd LIKE '%power%' OR cmd LIKE '%curl'")
    (clause,) = engine.explain({"cmd": "run powershell"}, 1).clauses
    (predicate,) = clause.predicates
    assert {part.predicate: part.holds for part in predicate.parts} == {
        "contains(cmd, 'power')": True,
        "endswith(cmd, 'curl')": False,
    }


def test_a_filter_that_is_kept_whole_is_explained_to_its_conditions():
    """Where the normal form has too many clauses, the parts go down to comparisons, with values and unknowns."""
    engine = Engine({"price": "float", "volume": "integer", "cmd": "string"}, limits=Limits(clauses=1))
    engine.subscribe(1, "(price > 1 OR cmd = 'a') AND (price * volume > 100 OR NOT (volume < 9 AND cmd = 'b'))")
    explanation = engine.explain({"price": 2.0, "volume": 6}, 1)
    leaves = {p.predicate: (p.holds, p.value) for clause in explanation.clauses for p in _leaves(clause.predicates)}
    assert leaves["cmd = 'a'"] == (None, None)
    assert leaves["(price * volume) > 100.0D"] == (False, 12.0)
    assert leaves["volume < 9"] == (True, 6)
    assert not explanation.matches
    assert "NULL cmd = 'a'   (is NULL)" in str(explanation)


def _leaves(predicates):
    for predicate in predicates:
        yield from _leaves(predicate.parts) if predicate.parts else [predicate]
