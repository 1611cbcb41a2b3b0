"""Digests: one for all spellings of a filter, and never one for two filters that differ."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st
from tests.examples import examples, randoms
from tests.property.strategies import FilterMaker, Trial, make_space, trials
from tests.property.terms import COMPARISONS, Term, text

from wherecast.engine.engine import Engine
from wherecast.language.events.schema import Schema
from wherecast.language.filters.compile import Compiler
from wherecast.language.filters.filters import Filters

_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def respell(term: Term, rng: random.Random) -> Term:
    """The same filter, spelled differently: reordered, repeated, negated twice, comparisons turned round."""
    args = [respell(a, rng) for a in term.args] if term.op in ("and", "or", "not", "is") else list(term.args)
    if term.op in ("and", "or"):
        rng.shuffle(args)
        if rng.random() < 0.3:
            args.append(rng.choice(args))
    if term.op in COMPARISONS and rng.random() < 0.5:
        return replace(term, op=_FLIPPED.get(term.op, term.op), args=(args[1], args[0]))
    out = replace(term, args=tuple(args))
    if term.type == "boolean" and rng.random() < 0.15:
        return Term("not", "boolean", (Term("not", "boolean", (out,)),))
    return out


@examples(150)
@given(randoms(), st.integers(0, 2**32))
def test_spellings_of_one_filter_share_a_digest(rng: random.Random, seed: int) -> None:
    """Order, repetition, double negation and the side a constant stands on do not show in a digest."""
    space = make_space(rng)
    term = FilterMaker(rng, space).condition(2)
    other = respell(term, random.Random(seed))
    compiler = Compiler(Schema.of(space.schema))
    one, two = (compiler.compile(text(t)) for t in (term, other))
    # Said twice, a filter may pass the limit of clauses that it kept to when said once.
    assume(_is_cover(one) == _is_cover(two))
    assert one.digests == two.digests, f"{text(term)}\n{text(other)}"


def _is_cover(filters: Filters) -> bool:
    return any(residual.is_whole for program in filters.programs for residual in program.residuals)


@examples(60)
@given(randoms())
def test_a_digest_does_not_depend_on_the_batch(rng: random.Random) -> None:
    """A filter has the same digest alone and among others."""
    space = make_space(rng)
    texts = [text(FilterMaker(rng, space).condition(2)) for _ in range(5)]
    compiler = Compiler(Schema.of(space.schema))
    together = compiler.compile_many(texts)
    for row, one in enumerate(texts):
        assert together.filters.digest(int(together.filter_of[row])) == compiler.compile(one).digests


@examples(30)
@given(trials(filters=6, events=10))
def test_filters_that_answer_differently_have_different_digests(trial: Trial) -> None:
    """Two filters of one digest match the same events."""
    answers: dict[bytes, tuple[str, list[bool]]] = {}
    compiler = Compiler(Schema.of(trial.space.schema))
    for term in trial.filters:
        engine = Engine(trial.space.schema)
        engine.subscribe(1, text(term))
        answer = [bool(ids) for ids in engine.match_batch(trial.events)]
        known = answers.setdefault(compiler.compile(text(term)).digests, (text(term), answer))
        assert known[1] == answer, f"{known[0]}\n{text(term)}"
