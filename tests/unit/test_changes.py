"""Changes without Spark: which rows are applied, refused, late or replayed, and what an index remembers of them."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wherecast.engine.engine import Engine
from wherecast.language.events.schema import Schema
from wherecast.spark import changes as changes_module
from wherecast.spark.changes import Applied, News, SiftTask, Unapplied, check_changes, commit_changes
from wherecast.spark.index import Index
from wherecast.spark.layers import write_layer
from wherecast.spark.manifest import Manifest
from wherecast.spark.rules import HASH

SCHEMA = Schema.of({"symbol": "string", "price": "double"})
COLUMNS = pa.schema(
    [
        ("sequence", pa.int64()),
        ("op", pa.string()),
        ("id", pa.int64()),
        ("filter", pa.string()),
        ("priority", pa.float32()),
        ("message", pa.string()),
        ("error", pa.string()),
        ("rule", pa.struct([(HASH, pa.int64())])),
    ]
)
FORM = pa.schema([(HASH, pa.int64())])
Change = tuple[Any, ...]


def table(*changes: Change, id_type: pa.DataType | None = None) -> pa.Table:
    """Rows as they are read; what a change does not say is NULL."""
    columns = COLUMNS if id_type is None else COLUMNS.set(2, pa.field("id", id_type))
    rows = [{"priority": 0.0, **dict(zip(columns.names, change, strict=False))} for change in changes]
    rows = [{**row, "rule": {HASH: hash(row.get("filter"))}} for row in rows]
    return pa.Table.from_pylist([{**dict.fromkeys(columns.names), **row} for row in rows], columns)


def check(*changes: Change, sequence: int = 0) -> News:
    return check_changes(table(*changes), SCHEMA, FORM, sequence)


def added(news: News) -> list[int]:
    return sorted(news.members.ids.tolist())


def make_index(path: Path, *rows: tuple[int, str]) -> Index:
    index, engine = Index(path), Engine(SCHEMA)
    engine.subscribe_many(list(rows))
    layer = write_layer(index.store, engine)
    index.commit(Manifest(0, SCHEMA.to_json(), "bigint", None, ((layer,),), ("price",), 0, "", None, compacted=True))
    return index


def apply(index: Index, *changes: Change) -> Applied:
    """Apply rows as `apply_changes` does, in a task that reads them."""

    def read(manifest: Manifest) -> Unapplied:
        batches = table(*changes).to_batches()
        found = pa.Table.from_batches(list(SiftTask(manifest.sequence, manifest.gaps).sift(batches)))
        replayed = sum(filter(None, found["replayed"].to_pylist()))
        return Unapplied(found.filter(found["replayed"].is_null()).drop_columns(["replayed"]), replayed)

    applied = commit_changes(index, read)
    assert applied.applied + applied.refused + applied.late + applied.replayed == len(changes)
    assert len(applied.quarantine) == applied.refused + applied.late
    return applied


def counts(applied: Applied) -> tuple[int, int, int, int]:
    return applied.applied, applied.refused, applied.late, applied.replayed


def held(index: Index) -> list[int]:
    return sorted(index.serve(index.read(), 0).ids().to_pylist())


# -- checking ---------------------------------------------------------------------------------------------------------


def test_the_last_change_of_an_id_counts() -> None:
    """Whatever came before it in the same batch, and in whatever order rows are given."""
    news = check(
        (3, "upsert", 8, "price > 2"), (1, "upsert", 7, "price > 1"), (4, "delete", 7, None), (2, "delete", 8, None)
    )
    assert added(news) == [8]
    assert sorted(news.ids.to_pylist()) == [7, 8]
    assert news.numbers.tolist() == [1, 2, 3, 4]
    assert not len(news.quarantine)


@pytest.mark.parametrize("before", [(1, "upsert", 7, "price > 1"), (1, "delete", 7, None)])
def test_a_refused_change_does_not_hide_the_one_before(before: Change) -> None:
    """As if the log had been cut between the two."""
    alone, followed = check(before), check(before, (2, "upsert", 7, "prise > 1"))
    assert added(followed) == added(alone)
    assert followed.ids.to_pylist() == alone.ids.to_pylist() == [7]
    assert followed.numbers.tolist() == [1]
    assert "unknown attribute 'prise'" in followed.quarantine["reason"][0].as_py()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ((1, "replace", 7, "price > 1"), "op is 'replace', expected upsert or delete"),
        ((1, None, 7, "price > 1"), "the op is missing"),
        ((1, "upsert", None, "price > 1"), "the id is missing"),
        ((None, "upsert", 7, "price > 1"), "the sequence is missing"),
        ((0, "upsert", 7, "price > 1"), "sequence is 0, expected 1 or higher"),
        ((-5, "delete", 7, None), "sequence is -5, expected 1 or higher"),
        ((1, "upsert", 7, "price > 1", 0.0, "{", "topic/0@5: no JSON"), "topic/0@5: no JSON"),
        ((2**63 - 1, "upsert", None, "price > 1"), "the id is missing"),
    ],
)
def test_what_cannot_be_made_is_refused(change: Change, reason: str) -> None:
    """With its reason and all that is known of it; the next one is made all the same, and its number is the last."""
    news = check(change, (2, "upsert", 9, "price > 3"))
    assert news.quarantine.to_pylist() == [
        {
            "sequence": change[0],
            "op": change[1],
            "id": None if change[2] is None else str(change[2]),
            "filter": change[3],
            "message": change[5] if len(change) > 5 else None,
            "reason": reason,
        }
    ]
    assert (added(news), news.ids.to_pylist(), news.numbers.tolist()) == ([9], [9], [2])
    assert (news.refused, news.late, news.replayed) == (1, 0, 0)


def test_ids_pass_the_engines_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """An id that an engine would refuse is refused with the engine's reason."""
    from wherecast.errors import SubscriptionError

    def no_x(id: object) -> None:
        if id == "x":
            raise SubscriptionError("no x")

    monkeypatch.setattr(changes_module, "check_id", no_x)
    rows = table((1, "upsert", "x", "price > 1"), (2, "delete", "y", None), id_type=pa.string())
    news = check_changes(rows, SCHEMA, FORM, 0)
    assert news.quarantine["reason"].to_pylist() == ["no x"]
    assert news.ids.to_pylist() == ["y"]


def test_one_number_for_two_changes() -> None:
    """Neither is applied, because the outcome would depend on their order; the same row twice is applied once."""
    news = check(
        (1, "upsert", 7, "price > 1"),
        (1, "upsert", 8, "price > 1"),
        (2, "upsert", 9, "price > 1"),
        (2, "upsert", 9, "price > 1"),
        (3, "delete", 5, "whatever"),
        (3, "delete", 5, None),
    )
    assert news.quarantine["sequence"].to_pylist() == [1, 1]
    assert "2 different changes have the sequence 1" in news.quarantine["reason"][0].as_py()
    assert (news.numbers.tolist(), news.refused, news.replayed) == ([2, 3], 2, 2)


@pytest.mark.parametrize(
    ("id", "priority", "reason"),
    [("x" * 1001, 0.0, "at most 1,000 characters"), ("a", float("nan"), "a priority is a number"), ("a", 3.5, None)],
)
def test_ids_and_priorities_are_checked(id: str, priority: float, reason: str | None) -> None:
    """As in an engine; a delete has no priority to be wrong."""
    rows = table((1, "upsert", id, "price > 1", priority), (2, "delete", "b", None, float("nan")), id_type=pa.string())
    news = check_changes(rows, SCHEMA, FORM, 0)
    assert [reason in found for found in news.quarantine["reason"].to_pylist()] == ([] if reason is None else [True])
    assert news.ids.to_pylist() == (["a", "b"] if reason is None else ["b"])


def test_no_changes() -> None:
    """Nothing to add, nothing to commit."""
    assert not check().numbers.size
    assert not check((None, "upsert", 7, "price > 1")).numbers.size


# -- applying ---------------------------------------------------------------------------------------------------------


def test_a_refused_row_does_not_freeze_the_index(tmp_path: Path) -> None:
    """Whatever its number is, changes with lower numbers are applied afterwards."""
    index = make_index(tmp_path, (1, "price > 1"))
    assert counts(apply(index, (2**63 - 1, "upsert", 2, "prise > 1"))) == (0, 1, 0, 0)
    assert index.latest() == 1  # nothing to commit
    applied = apply(index, (1, "upsert", 3, "price > 3"), (2**63 - 1, "upsert", 2, "prise > 1"))
    assert counts(applied) == (1, 1, 0, 0)
    assert index.read().sequence == 1
    assert counts(apply(index, (2, "upsert", 4, "price > 4"))) == (1, 0, 0, 0)
    assert held(index) == [1, 3, 4]


def test_a_batch_that_comes_again(tmp_path: Path) -> None:
    """Applied rows are replays then, refused and late ones are refused and late again, and nothing is committed."""
    index = make_index(tmp_path)
    apply(index, (1, "upsert", 1, "price > 1"), (5, "upsert", 5, "price > 5"))
    batch = [
        (6, "upsert", 6, "price > 6"),
        (3, "upsert", 3, "price > 3"),
        (7, "upsert", 7, "prise > 7"),
        (8, "delete", 1, None),
        (5, "upsert", 5, "price > 5"),
    ]
    first = apply(index, *batch)
    assert counts(first) == (2, 1, 1, 1)
    again = apply(index, *batch)
    assert counts(again) == (0, 1, 1, 3)
    assert again.quarantine == first.quarantine
    assert again.manifest.version == first.manifest.version == index.latest()
    assert (again.manifest.sequence, again.manifest.gaps) == (8, ((2, 4), (7, 7)))
    reasons = dict(zip(first.quarantine["sequence"].to_pylist(), first.quarantine["reason"].to_pylist(), strict=True))
    assert reasons[3].startswith("sequence 3 is late")
    assert "prise" in reasons[7]
    assert held(index) == [5, 6]


def test_a_corrected_change_needs_a_new_number(tmp_path: Path) -> None:
    """A number that was refused and passed is late, even with a good filter."""
    index = make_index(tmp_path)
    apply(index, (1, "upsert", 1, "prise > 1"), (2, "upsert", 2, "price > 2"))
    assert counts(apply(index, (1, "upsert", 1, "price > 1"))) == (0, 0, 1, 0)
    assert counts(apply(index, (3, "upsert", 1, "price > 1"))) == (1, 0, 0, 0)


def test_a_delete_of_nothing(tmp_path: Path) -> None:
    """An id that the index does not have is deleted like any other: it is applied, and changes nothing."""
    index = make_index(tmp_path, (1, "price > 1"))
    assert counts(apply(index, (1, "delete", 99, None))) == (1, 0, 0, 0)
    assert held(index) == [1]


def test_two_appliers_lose_nothing_in_silence(tmp_path: Path) -> None:
    """Whoever comes second with lower numbers is told which rows are late; what is applied is all in the index."""
    index = make_index(tmp_path)
    outcomes: list[Applied] = []

    def run(numbers: range) -> None:
        own = Index(tmp_path)
        outcomes.extend(apply(own, (n, "upsert", n, f"price > {n}")) for n in numbers)

    threads = [threading.Thread(target=run, args=(range(start, 13, 2),)) for start in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 12
    late = [n for o in outcomes for n in o.quarantine["sequence"].to_pylist()]
    assert sum(o.applied for o in outcomes) + len(late) == 12
    assert held(index) == sorted(set(range(1, 13)) - set(late))
    missing = {n for first, last in index.read().gaps for n in range(first, last + 1)}
    assert missing == set(late)


def test_changes_beside_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version that is committed meanwhile is not undone: changes are checked again and laid over it."""
    index, other = make_index(tmp_path), Index(tmp_path)
    commit, first = Index.commit, []

    def overtaken(self: Index, manifest: Manifest) -> Manifest:
        if not first:
            first.append(manifest)
            apply(other, (2, "upsert", 2, "price > 2"))
        return commit(self, manifest)

    monkeypatch.setattr(Index, "commit", overtaken)
    applied = apply(index, (1, "upsert", 1, "price > 1"), (3, "upsert", 3, "price > 3"))
    assert counts(applied) == (1, 0, 1, 0)
    assert applied.quarantine["sequence"].to_pylist() == [1]
    assert held(index) == [2, 3]


def test_every_row_that_is_not_applied_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With number, id and reason, up to ten rows of a batch, and the counts of all."""
    index = make_index(tmp_path)
    apply(index, (50, "upsert", 50, "price > 5"))
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="wherecast.spark"):
        apply(index, (7, "upsert", 70, "price > 7"), *((n, "upsert", n, "prise > 1") for n in range(51, 81)))
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(lines) == 11
    assert lines[0].startswith("change not applied: sequence=7 id='70' reason='sequence 7 is late")
    assert "sequence=51 id='51' reason=\"unknown" in lines[1]
    assert "applied=0 refused=30 late=1 replayed=0" in lines[-1]
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="wherecast.spark"):
        apply(index, (90, "upsert", 90, "price > 5"))
    assert [record.levelname for record in caplog.records] == ["INFO"]


# -- numbers ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.sets(st.integers(1, 40), min_size=1), max_size=8))
def test_numbers_are_remembered(sets: list[set[int]]) -> None:
    """A number is a replay if and only if it was applied, whatever the gaps; as a set of numbers would say."""
    sequence, gaps, model = 0, (), set()
    for numbers in sets:
        fresh = np.array(sorted(n for n in numbers if n > sequence), np.int64)
        sequence, gaps = changes_module.extend(sequence, gaps, fresh)
        model.update(fresh.tolist())
        asked = np.arange(-1, 45)
        assert set(asked[changes_module.find_replays(asked, sequence, gaps)].tolist()) == model
        assert sequence == max(model, default=0)


def test_too_many_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest are joined: a replay may be called late then, but no late change is called a replay."""
    monkeypatch.setattr(changes_module, "MOST_GAPS", 3)
    sequence, gaps = changes_module.extend(0, (), np.arange(2, 21, 2))
    assert (sequence, gaps) == (20, ((1, 15), (17, 17), (19, 19)))
    odd = np.arange(1, 20, 2)
    assert not changes_module.find_replays(odd, sequence, gaps).any()


def test_the_largest_numbers() -> None:
    """Numbers of 64 bits do not overflow."""
    top = 2**63 - 1
    sequence, gaps = changes_module.extend(0, (), np.array([1, top], np.int64))
    assert (sequence, gaps) == (top, ((2, top - 1),))
    asked = np.array([-(2**63), -1, 0, 1, 2, top - 1, top], np.int64)
    assert changes_module.find_replays(asked, sequence, gaps).tolist() == [
        False,
        False,
        False,
        True,
        False,
        False,
        True,
    ]
