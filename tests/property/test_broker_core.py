"""The broker's core against a model that handles one command at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from wherecast.broker.core import (
    Changed,
    ChangedMany,
    Condition,
    EventsIn,
    FoundMatches,
    MoveSubscription,
    PublishedEvents,
    PublishEvents,
    PutSubscription,
    PutSubscriptions,
    SpaceCounters,
    StoredSubscription,
    SubscriptionState,
    decide,
    ids_of,
)
from wherecast.broker.log_entries import pack_lines, pack_matches, unpack_entry
from wherecast.broker.problems import Problem
from wherecast.errors import EventError

IDS = ["a", "b", "c", "d"]
START = SpaceCounters(0, 0, 0, 0, 0, 0, 6, 12)


def conditions():
    return st.builds(
        Condition, st.sampled_from([None, True, False]), st.none() | st.frozensets(st.integers(1, 20), max_size=3)
    )


def puts():
    return st.builds(
        PutSubscription,
        st.sampled_from(IDS),
        st.sampled_from(["x > 1", "x > 2"]),
        st.none() | st.sampled_from(["ann", "bob"]),
        state=st.sampled_from([SubscriptionState.ACTIVE, SubscriptionState.PAUSED]),
        expires_ms=st.none() | st.integers(0, 3_000),
        clauses=st.integers(1, 4),
        condition=conditions(),
    )


def commands():
    moves = st.builds(MoveSubscription, st.sampled_from(IDS), st.sampled_from(list(SubscriptionState)), conditions())
    events = st.lists(st.integers(0, 9), max_size=4).map(
        lambda xs: PublishEvents(EventsIn([b'{"x":%d}' % x for x in xs], [{"x": x} for x in xs]))
    )
    many = st.lists(puts(), max_size=4).map(lambda ps: PutSubscriptions(list(enumerate(ps))))
    return st.one_of(puts(), moves, events, many)


class Shop:
    """A space in memory: what store and engine do around the core."""

    def __init__(self) -> None:
        self.counters = START
        self.rows: dict[int, StoredSubscription] = {}
        self.log = []

    def find(self, events: Sequence[EventsIn]) -> FoundMatches:
        """Every active subscription matches every event but those with x = 7; x = 9 is too much work."""
        values = [v["x"] for part in events for v in part.values]
        active = [n for n, row in self.rows.items() if row.state is SubscriptionState.ACTIVE]
        pairs = [(i, n) for i, x in enumerate(values) if x not in (7, 9) for n in active]
        errors = [EventError("too much work", row=i) for i, x in enumerate(values) if x == 9]
        rows, numbers = (np.array(side, np.int64) for side in (zip(*pairs, strict=True) if pairs else ([], [])))
        return FoundMatches(rows, numbers, errors)

    def run(self, group, now):
        known = {r.id: r for r in self.rows.values() if r.state is not SubscriptionState.DELETED}
        decision = decide(self.counters, {i: known[i] for i in ids_of(group) if i in known}, group, now, self.find)
        self.rows.update(decision.rows)
        self.counters = decision.counters
        if decision.entry is not None:
            self.log.append(decision.entry)
        return decision


def live(shop: Shop) -> list[StoredSubscription]:
    return [r for r in shop.rows.values() if r.state is not SubscriptionState.DELETED]


@given(st.lists(st.tuples(st.lists(commands(), max_size=6), st.integers(0, 2_000)), max_size=6))
@examples(150)
def test_groups_keep_the_promises_of_a_space(groups):
    """Versions, positions and numbers grow without a gap, ids are unique, counters count, and time never goes back."""
    shop = Shop()
    times = []
    for group, now in groups:
        before = shop.counters
        decision = shop.run(group, now)
        assert len(decision.answers) == len(group)
        if decision.entry is not None:
            assert decision.entry.position == before.head
            assert decision.entry.version == before.version
            assert shop.counters.head == before.head + len(decision.entry.lines)
        else:
            assert shop.counters.head == before.head
        changed = {row.version for row in decision.rows.values()}
        assert changed <= set(range(before.version + 1, shop.counters.version + 1))
        times.append(shop.counters.last_ms)
    assert times == sorted(times)
    rows = live(shop)
    assert len({r.id for r in rows}) == len(rows) == shop.counters.subscriptions
    assert sum(r.clauses for r in rows) == shop.counters.clauses
    assert shop.counters.subscriptions_left == START.subscriptions_left - len(rows) >= 0
    assert shop.counters.clauses_left >= 0
    assert sorted(shop.rows) == list(range(shop.counters.numbers))
    assert [e.position for e in shop.log] == [sum(len(e.lines) for e in shop.log[:i]) for i in range(len(shop.log))]


@given(st.lists(commands(), min_size=1, max_size=8))
@examples(150)
def test_a_group_changes_what_its_commands_change_one_by_one(group):
    """Sharing a commit changes no answer about subscriptions, and no subscription."""
    together, alone = Shop(), Shop()
    answers = together.run(group, 1_000).answers
    one_by_one = [alone.run([command], 1_000).answers[0] for command in group]
    assert together.rows == alone.rows
    assert together.counters == alone.counters
    for command, ours, theirs in zip(group, answers, one_by_one, strict=True):
        if isinstance(command, PublishEvents):
            assert isinstance(ours, PublishedEvents)
            assert (ours.positions, ours.refused) == (theirs.positions, theirs.refused)
        elif isinstance(ours, Problem):
            assert (ours.status, ours.detail) == (theirs.status, theirs.detail)
        elif isinstance(ours, ChangedMany):
            assert (ours.version, ours.created, ours.replaced) == (theirs.version, theirs.created, theirs.replaced)
            assert [r[:2] for r in ours.refused] == [r[:2] for r in theirs.refused]
        else:
            assert isinstance(ours, Changed)
            assert ours == theirs


@given(st.lists(st.lists(st.integers(0, 9), max_size=5), min_size=1, max_size=5), st.integers(0, 3))
@examples(100)
def test_each_publisher_is_told_of_its_own_events(sizes, subscribers):
    """Positions and matches of a publisher are those of its events, and refused events have no place in the log."""
    shop = Shop()
    shop.run([PutSubscription(id, "x > 1") for id in IDS[:subscribers]], 0)
    group = [PublishEvents(EventsIn([b"%d" % x for x in xs], [{"x": x} for x in xs])) for xs in sizes]
    decision = shop.run(group, 0)
    lines = decision.entry.lines if decision.entry is not None else []
    for xs, answer in zip(sizes, decision.answers, strict=True):
        taken = [x for x in xs if x != 9]
        assert [int(lines[p]) for p in answer.positions] == taken
        assert [row for row, _ in answer.refused] == [i for i, x in enumerate(xs) if x == 9]
        assert answer.matches == subscribers * sum(x != 7 for x in taken)
    if decision.entry is not None:
        found = decision.entry.matches_of(None)
        assert found == {row: list(range(subscribers)) for row, x in enumerate(lines) if x != b"7" and subscribers}


@given(
    st.lists(st.binary(min_size=1, max_size=9).filter(lambda b: b"\n" not in b), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 5)), max_size=20),
    st.sets(st.integers(0, 2**40), max_size=5),
)
@examples(100)
def test_an_entry_comes_back_from_the_log_as_it_was(lines, pairs, wanted):
    """What is packed is unpacked the same, and a reader finds its matches as by looking at each."""
    from wherecast.broker.log_entries import LoggedEvents, sort_matches

    pairs = [(n, r % len(lines)) for n, r in dict.fromkeys(pairs)]
    numbers, rows = sort_matches(np.array([n for n, _ in pairs], np.int64), np.array([r for _, r in pairs], np.int64))
    entry = LoggedEvents(5, 3, 9, lines, numbers, rows)
    again = unpack_entry(5, 3, 9, pack_lines(entry), pack_matches(entry))
    assert again.lines == lines
    assert again.numbers.tolist() == numbers.tolist()
    assert again.rows.tolist() == rows.tolist()
    wanted |= {n for n, _ in pairs[:2]}
    expected: dict[int, list[int]] = {}
    for number, row in sorted(zip(numbers.tolist(), rows.tolist(), strict=True)):
        if number in wanted:
            expected.setdefault(row, []).append(number)
    found = again.matches_of(np.array(sorted(wanted), np.int64))
    assert found == expected
    assert list(found) == sorted(found)
