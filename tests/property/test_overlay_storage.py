from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import randoms

from wherecast.language.events.schema import Schema
from wherecast.overlay.messages import Entry, Piece, Record, Span
from wherecast.overlay.placement import METADATA, RingPlacement
from wherecast.overlay.settings import RingSettings
from wherecast.overlay.storage import Lists, clip, lay

pytestmark = pytest.mark.slow

SIZE = 32


@st.composite
def piles(draw):
    """Pieces whose versions and places decide their values, as those of one subscription do."""
    spots = draw(st.lists(st.tuples(st.integers(0, SIZE - 1), st.integers(0, SIZE - 1), st.integers(1, 4)), max_size=6))
    return [Piece(min(a, b), max(a, b), v, None if v == 3 else (Span(v, None),)) for a, b, v in spots]


def naive(pile):
    """Offset by offset, the highest version."""
    best = {}
    for piece in pile:
        for offset in range(piece.first, piece.last + 1):
            if offset not in best or best[offset][0] < piece.version:
                best[offset] = (piece.version, piece.value)
    return best


def laid(pile):
    pieces = ()
    for piece in pile:
        pieces = lay(pieces, piece)
    return pieces


@given(piles())
def test_the_highest_version_stays(pile):
    """At every offset; pieces stay apart, in order, and as few as can be."""
    pieces = laid(pile)
    assert naive(pieces) == naive(pile)
    for a, b in pairwise(pieces):
        assert a.last < b.first
        assert a.last + 1 < b.first or (a.version, a.value) != (b.version, b.value)


@given(piles(), randoms())
def test_order_and_repeats_do_not_matter(pile, rng):
    """Pieces join to the same whatever their order, however often they come."""
    again = pile + pile[:2]
    rng.shuffle(again)
    assert laid(again) == laid(pile)


@given(piles(), st.integers(0, SIZE - 1), st.integers(0, SIZE - 1))
def test_a_clip_is_what_lies_inside(pile, a, b):
    """Cut pieces say the same inside, and nothing outside."""
    first, last = min(a, b), max(a, b)
    wanted = {o: v for o, v in naive(pile).items() if first <= o <= last}
    assert naive(clip(laid(pile), [(first, last)])) == wanted


PLACEMENT = RingPlacement(Schema.of({"v": {"type": "bigint", "min": 0, "max": 31}}), RingSettings(bits=5))


def lists_of(pile):
    lists = Lists(PLACEMENT)
    for piece in pile:
        lists.put(Entry(0, 77, (piece,)))
    return lists


@given(piles(), piles(), st.integers(0, 31), st.integers(0, 31))
def test_digests_agree_when_what_lives_agrees(one, two, start, end):
    """Zone by zone; graves do not count."""
    a, b = lists_of(one), lists_of(two)

    def living(lists):
        entries = lists.entries(start, end)
        return {(o, v) for e in entries for o, v in naive(e.pieces).items() if v[1] is not None}

    assert (a.digest(start, end) == b.digest(start, end)) == (living(a) == living(b))


@given(piles(), st.integers(0, 31))
def test_two_halves_of_the_ring_are_the_ring(pile, middle):
    """Entries of two zones that make up the ring, put together, are all entries."""
    lists = lists_of(pile)
    other = Lists(PLACEMENT)
    for entry in (*lists.entries(3, middle), *lists.entries(middle, 3)):
        other.put(entry)
    assert other.entries(0, 0) == lists.entries(0, 0)


@given(piles())
def test_forgetting_everything(pile):
    """Nothing is kept where there is no zone to keep; everything where the zone is the ring."""
    lists = lists_of(pile)
    before = lists.entries(0, 0)
    lists.keep([(9, 9)])
    assert lists.entries(0, 0) == before
    lists.keep([])
    assert lists.entries(0, 0) == ()
    assert len(lists) == 0


def test_graves_are_cleared_in_time():
    """A deleted clause is remembered for as many rounds as asked for, and its record is gone at once."""
    lists = Lists(PLACEMENT)
    lists.put(Entry(METADATA, 5, (Piece(3, 3, 1, Record("me", 9)),)))
    assert lists.record(5) == Record("me", 9)
    lists.put(Entry(METADATA, 5, (Piece(3, 3, 2, None),)))
    assert lists.record(5) is None
    assert len(lists) == 0
    for _ in range(3):
        lists.clear_graves(3)
        assert lists.held(METADATA, 5, 3) is not None
    lists.clear_graves(3)
    assert lists.held(METADATA, 5, 3) is None
