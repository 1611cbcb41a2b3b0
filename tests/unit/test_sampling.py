"""Which cases of the tests marked `sampled` a run of the fast part tries."""

from __future__ import annotations

import pytest
from tests import examples
from tests.examples import left_to_others


class Case:
    """What is asked of a collected test."""

    def __init__(self, nodeid: str, *marks: str) -> None:
        self.nodeid, self.marks = nodeid, marks

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.marks else None


@pytest.fixture
def fast_profile(monkeypatch):
    monkeypatch.setattr(examples, "is_fast", lambda: True)


def items():
    sampled = [Case(f"tests/a.py::test_a[{n}]", "sampled") for n in range(12)]
    papers = [Case(f"tests/a.py::test_a[paper-{n}]", "sampled", "slow") for n in range(12)]
    return [*sampled, *papers, Case("tests/a.py::test_b[0]"), Case("tests/a.py::test_c[0]", "sampled")]


def test_a_fifth_of_the_cases_is_left(fast_profile):
    """Of twelve cases three are tried. Cases left out as slow do not count, other tests are whole, and each test has a case."""
    cases = items()
    left = left_to_others(cases, "run 1")
    assert len(left) == 9
    assert left < set(cases[:12])


def test_the_processes_of_a_run_agree(fast_profile):
    """Two processes that collect the same tests for one run leave out the same; other runs leave out others."""

    def names(run: str) -> frozenset[str]:
        return frozenset(item.nodeid for item in left_to_others(items(), run))

    assert names("run 1") == names("run 1")
    assert len({names(f"run {n}") for n in range(20)}) > 1


def test_every_case_is_tried_by_make_test(monkeypatch):
    """With any other profile no case is left out."""
    monkeypatch.setattr(examples, "is_fast", lambda: False)
    assert not left_to_others(items(), "run 1")
