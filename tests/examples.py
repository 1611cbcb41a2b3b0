"""How much a random test tries. A test names its usual number; the profile of Hypothesis scales it.

`make test-fast` runs the profile `fast`, a twentieth of it, `make test` the profile `ci`, a third, and HYPOTHESIS_PROFILE=long fifty times as many. Every run draws
new examples, so runs add up.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

T = TypeVar("T")
_USUAL = 100
# Every run tries new examples; a failure prints the blob that repeats it. No deadline: the first call of a kernel compiles it.
settings.register_profile("ci", max_examples=_USUAL // 3, derandomize=False, print_blob=True, deadline=None)
settings.register_profile("fast", parent=settings.get_profile("ci"), max_examples=_USUAL // 20)
settings.register_profile("long", parent=settings.get_profile("ci"), max_examples=_USUAL * 50)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def scaled(usual: int) -> int:
    """How many trials to make of a test whose usual number is `usual`."""
    return max(1, usual * settings.default.max_examples // _USUAL)


def examples(usual: int, **others: Any) -> settings:
    """Settings of a property whose usual number of examples is `usual`; `others` are Hypothesis' own."""
    return settings(max_examples=scaled(usual), **others)


def randoms() -> SearchStrategy[random.Random]:
    """A source of random numbers for a property.

    Hypothesis draws each number, so that it can shrink a failure. With the profile `fast` it draws the seed only: numbers take a tenth of the time
    and have the distribution that they are asked for, and a failure is repeated by its blob as any other.
    """
    return st.randoms(use_true_random=is_fast())


def some(things: Sequence[T], draw: random.Random | None = None) -> list[T]:
    """All of them, in their order; with the profile `fast` a fifth of them, others in every run.

    For cases that each start from nothing, so that a fifth takes a fifth of the time.
    """
    if not is_fast():
        return list(things)
    source = draw or random.Random()
    return [things[n] for n in sorted(source.sample(range(len(things)), -(-len(things) // 5)))]


def left_to_others(items: list[pytest.Item], run: str | None) -> set[pytest.Item]:
    """The cases of tests marked `sampled` that this run of the profile `fast` leaves to others; none with another profile.

    All processes of a run must collect the same tests, so they draw by the name of the run.
    """
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sampled") and not item.get_closest_marker("slow"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    draw = random.Random(run)
    return {item for of_one in cases.values() for item in set(of_one).difference(some(of_one, draw))}


def is_fast() -> bool:
    return settings.default.max_examples < _USUAL // 3


def all_below(n: int) -> list[int]:
    """The numbers below n; with the profile `fast` some of them, drawn at random."""
    return random.sample(range(n), min(scaled(n), n))
