"""The database matchers find what the scan finds, whatever the clauses and however they came and went."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.property.database_changes import CHANGES, FORMULATIONS, Change, Clause, clauses, events, follow

from wherecast.index.boxes import EventCodes
from wherecast.papers.topss.database import DatabaseMatcher

pytestmark = pytest.mark.slow


@FORMULATIONS
@examples(15)
@given(first=st.lists(clauses(), max_size=12), changes=CHANGES, batch=events())
def test_equals_the_scan(
    formulation: type[DatabaseMatcher], first: list[Clause], changes: list[Change], batch: EventCodes
) -> None:
    """Every clause that boxes can express, through random changes, in both formulations."""
    follow(formulation, first, changes, batch, None)
