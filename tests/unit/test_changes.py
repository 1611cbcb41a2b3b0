"""Checking changes: which can be made, which count, and why the others are refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from wherecast.language.schema import Schema
from wherecast.spark.changes import News, check_changes

SCHEMA = Schema.of({"symbol": "string", "price": "double"})
COLUMNS = pa.schema(
    [
        ("sequence", pa.int64()),
        ("op", pa.string()),
        ("id", pa.int64()),
        ("filter", pa.string()),
        ("priority", pa.float32()),
    ]
)


def check(*changes: tuple[Any, ...]) -> News:
    columns = [list(column) for column in zip(*((*change, 0.0) for change in changes), strict=True)] or [[]] * 5
    return check_changes(
        pa.table([pa.array(c, f.type) for c, f in zip(columns, COLUMNS, strict=True)], COLUMNS), SCHEMA
    )


def added(news: News) -> list[int]:
    return sorted(news.members.ids.tolist())


def test_the_last_change_of_an_id_counts() -> None:
    """Whatever came before it in the same batch."""
    news = check(
        (1, "upsert", 7, "price > 1"), (2, "delete", 8, None), (3, "upsert", 8, "price > 2"), (4, "delete", 7, None)
    )
    assert added(news) == [8]
    assert sorted(news.ids.to_pylist()) == [7, 8]
    assert news.sequence == 4
    assert not len(news.refused)


@pytest.mark.parametrize("before", [(1, "upsert", 7, "price > 1"), (1, "delete", 7, None)])
def test_a_refused_change_does_not_hide_the_one_before(before: tuple[Any, ...]) -> None:
    """As if the log had been cut between the two."""
    alone, followed = check(before), check(before, (2, "upsert", 7, "prise > 1"))
    assert added(followed) == added(alone)
    assert followed.ids.to_pylist() == alone.ids.to_pylist() == [7]
    assert followed.sequence == 2
    assert "unknown attribute 'prise'" in followed.refused["reason"][0].as_py()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ((1, "replace", 7, "price > 1"), "op is replace, expected upsert or delete"),
        ((1, None, 7, "price > 1"), "the op is missing"),
        ((1, "upsert", None, "price > 1"), "the id is missing"),
        ((None, "upsert", 7, "price > 1"), "the sequence is missing"),
    ],
)
def test_what_cannot_be_made_is_refused(change: tuple[Any, ...], reason: str) -> None:
    """With its reason; the next one is made all the same."""
    news = check(change, (2, "upsert", 9, "price > 3"))
    assert news.refused["reason"].to_pylist() == [reason]
    assert (added(news), news.ids.to_pylist(), news.sequence) == ([9], [9], 2)


@pytest.mark.parametrize(
    ("id", "priority", "reason"),
    [("x" * 1001, 0.0, "at most 1,000 characters"), ("a", float("nan"), "a priority is a number"), ("a", 3.5, None)],
)
def test_ids_and_priorities_are_checked(id: str, priority: float, reason: str | None) -> None:
    """As in an engine; a delete has no priority to be wrong."""
    columns = pa.schema([field.with_type(pa.string()) if field.name == "id" else field for field in COLUMNS])
    rows = [[1, 2], ["upsert", "delete"], [id, "b"], ["price > 1", None], [priority, float("nan")]]
    table = pa.table([pa.array(c, f.type) for c, f in zip(rows, columns, strict=True)], columns)
    news = check_changes(table, SCHEMA)
    assert [reason in found for found in news.refused["reason"].to_pylist()] == ([] if reason is None else [True])
    assert news.ids.to_pylist() == (["a", "b"] if reason is None else ["b"])


def test_no_changes() -> None:
    """Nothing to add, nothing to commit."""
    assert check().sequence is None
    assert check((None, "upsert", 7, "price > 1")).sequence is None
