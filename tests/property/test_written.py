"""A filter that an engine gives back answers as the one that was registered."""

from __future__ import annotations

from hypothesis import given
from tests.examples import examples
from tests.property.strategies import WIDTH_KINDS, Trial, trials
from tests.property.terms import text

from wherecast.engine.engine import Engine


def _check(trial: Trial) -> None:
    first = Engine(trial.space.schema, matcher="scan")
    for number, term in enumerate(trial.filters):
        first.subscribe(number, text(term))
    written = dict(first.items())
    second = Engine(trial.space.schema, matcher="scan")
    outcome = second.subscribe_many(written)
    assert not outcome.quarantined, [(text(trial.filters[q.row]), written[q.row], q.error) for q in outcome.quarantined]
    matched = [sorted(ids) for ids in first.match_batch(trial.events)]
    assert matched == [sorted(ids) for ids in second.match_batch(trial.events)], written
    again = dict(second.items())
    third = Engine(trial.space.schema, matcher="scan")
    third.subscribe_many(again)
    assert dict(third.items()) == again


@examples(100)
@given(trials(filters=6, events=10))
def test_given_back_filters_answer_alike(trial: Trial) -> None:
    """Registered again, the text is accepted, matches the same events, and comes back as it is."""
    _check(trial)


@examples(60)
@given(trials(filters=6, events=10, kinds=WIDTH_KINDS))
def test_given_back_filters_answer_alike_in_every_width(trial: Trial) -> None:
    """As above, for numbers of 8 to 64 bits."""
    _check(trial)
