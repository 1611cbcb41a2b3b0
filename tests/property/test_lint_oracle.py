"""What lint says of a filter is true of every event."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from tests.examples import examples
from tests.property.naive import NAIVE_FEATURES, evaluate
from tests.property.strategies import Trial, trials
from tests.property.terms import text

from wherecast.engine.engine import Engine
from wherecast.engine.lint import LintFindings, lint


def check(found: LintFindings, matches: Callable[[int, int], bool], events: int) -> None:
    for finding in found:
        for event in range(events):
            here = matches(finding.id, event)
            if finding.code == "never":
                assert not here, finding
            elif finding.code == "always":
                assert here, finding
            elif finding.code == "equal":
                assert here == matches(finding.other, event), finding
            elif finding.code == "covered":
                assert not here or matches(finding.other, event), finding


@pytest.mark.slow
@examples(150)
@given(trials(filters=12, events=12, features=NAIVE_FEATURES))
def test_findings_are_true_of_every_event(trial: Trial) -> None:
    """Never, always, equal and covered, by an evaluator that is too simple to be wrong; for texts and for an engine."""
    texts = {number: text(term) for number, term in enumerate(trial.filters)}
    schema = trial.space.schema
    known = {
        (number, at): evaluate(term, event) is True
        for number, term in enumerate(trial.filters)
        for at, event in enumerate(trial.events)
    }
    engine = Engine(schema)
    engine.subscribe_many(texts)
    for found in (lint(texts, schema), engine.lint()):
        assert "refused" not in found.counts
        check(found, lambda number, at: known[number, at], len(trial.events))


@pytest.mark.slow
@examples(100)
@given(trials(filters=6, events=8, features=NAIVE_FEATURES))
def test_conjunctions_are_covered_by_their_parts(trial: Trial) -> None:
    """A filter and another one is covered by either, or one of them is always or never true; no event says otherwise."""
    texts = [text(term) for term in trial.filters]
    pairs = {f"{i}&{j}": f"({a}) AND ({b})" for i, a in enumerate(texts) for j, b in enumerate(texts) if i < j}
    engine = Engine(trial.space.schema)
    engine.subscribe_many({**{str(i): a for i, a in enumerate(texts)}, **pairs})
    found = engine.lint()
    matches = [set(engine.match(event)) for event in trial.events]
    check(found, lambda number, at: number in matches[at], len(trial.events))
