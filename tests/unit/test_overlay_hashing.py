from __future__ import annotations

import datetime as dt
import hashlib
import random

import pytest

from wherecast.errors import LimitError
from wherecast.language.events.keys import NAN_KEY
from wherecast.language.events.schema import Schema
from wherecast.language.events.types import Kind
from wherecast.language.events.values import float_key
from wherecast.overlay.positions import SubIdLayout, between, hashed_value, line_of, ring_key, sha1_id, within
from wherecast.papers.chord.balance import equi_depth

PRICE = Schema.of({"price": {"type": "double", "min": 0, "max": 20, "precision": 0.01}})["price"]


def test_the_subscription_id_of_figure_3():
    """Node 4, subscription 3, 5 attributes, in fields of three bits each."""
    layout = SubIdLayout.of(3, 8, 7)
    assert layout == SubIdLayout(3, 3, 3)
    assert layout.pack(4, 3, 5) == 0b100_011_101
    assert layout.unpack(0b100_011_101) == (4, 3, 5)
    assert (layout.node_of(0b100_011_101), layout.count_of(0b100_011_101)) == (4, 5)


def test_a_million_subscriptions_take_twenty_bits():
    """The example of section 3."""
    assert SubIdLayout.of(160, 1_000_000, 30) == SubIdLayout(160, 20, 5)


def test_too_many_subscriptions_are_refused():
    """The number field does not run over into the node's."""
    with pytest.raises(LimitError, match="at most 8"):
        SubIdLayout.of(3, 8, 7).pack(1, 8, 1)


def test_intervals_wrap():
    """(a, b] and its open sister go round the ring; from a node to itself lies everything else."""
    assert [x for x in range(8) if within(6, x, 1)] == [0, 1, 7]
    assert [x for x in range(8) if between(6, x, 1)] == [0, 7]
    assert [x for x in range(8) if between(3, x, 3)] == [0, 1, 2, 4, 5, 6, 7]
    assert all(within(3, x, 3) for x in range(8))


def test_ids_are_sha1():
    """An id is the first bits of SHA-1; a value is hashed with its attribute."""
    digest = int(hashlib.sha1(b"price").hexdigest(), 16)
    assert sha1_id(b"price", 160) == digest
    assert sha1_id(b"price", 8) == digest >> 152
    assert hashed_value(PRICE, b"NYSE") == int(hashlib.sha1(b"price\0NYSE").hexdigest(), 16)


def test_the_order_preserving_hash_is_the_papers():
    """s0 + (v - min) / (max - min) * 2^m, but for the divisor, which counts max as a value of its own."""
    line = line_of(PRICE, 64, 1)
    assert line.base == sha1_id(b"price", 64)
    assert line.cells == 2001
    for value in (0.0, 0.01, 8.31, 19.99, 20.0):
        assert line.place(float_key(value)) == pytest.approx(value / 20.01 * 2**64, rel=1e-9, abs=1)
    assert line.place(float_key(20.0)) < 2**64


def test_the_hash_never_decreases():
    """On the grid and off it, outside the domain, for infinities and NaN, with a bent line and a narrow one."""
    rng = random.Random(1)
    values = sorted([rng.uniform(-5, 25) for _ in range(500)] + [float("-inf"), float("inf"), -0.0, 1e300])
    keys = [*map(float_key, values), NAN_KEY]
    plain = line_of(PRICE, 64, 1)
    knots = equi_depth(plain, [float_key(min(rng.expovariate(1), 20)) for _ in range(5000)])
    for line in (plain, line_of(PRICE, 64, 1, knots), line_of(PRICE, 64, 10**6), line_of(PRICE, 6, 1)):
        places = [line.place(key) for key in keys]
        assert places == sorted(places)
        assert places[0] >= 0
        assert places[-1] < 1 << line.bits


@pytest.mark.slow
def test_each_cell_is_found_again():
    """The next offset of an offset is the first that some cell has."""
    plain = line_of(PRICE, 16, 1)
    knots = equi_depth(plain, [float_key(v) for v in (1.0, 1.1, 1.2, 5.0)] * 50, arcs=8)
    for line in (plain, line_of(PRICE, 16, 1, knots), line_of(PRICE, 16, 5000)):
        offsets = sorted({line.offset(cell) for cell in range(line.cells)})
        for probe in range(0, offsets[-1] + 1, 7):
            assert line.next_offset(probe) == next(o for o in offsets if o >= probe)
        assert line.next_offset(offsets[-1] + 1) == offsets[-1] + 1


def test_all_integers_are_a_domain():
    """2^64 cells are more than a Python range may have."""
    ends = {"type": "bigint", "min": -(2**63), "max": 2**63 - 1}
    line = line_of(Schema.of({"a": ends})["a"], 64, 1)
    assert [line.place(k) for k in (-(2**63), 0, 2**63 - 1)] == [0, 2**63, 2**64 - 1]
    assert line.next_offset(12345) == 12345


def test_a_small_domain_keeps_to_neighbouring_nodes():
    """Laid out for 1,024 nodes, ten values lie one node's share apart."""
    volume = Schema.of({"volume": {"type": "bigint", "min": 1, "max": 10}})["volume"]
    line = line_of(volume, 64, 1024)
    assert [line.place(v) for v in range(1, 11)] == [n * 2**54 for n in range(10)]


def test_strings_are_ordered_by_their_first_bytes():
    """The order of UTF-8 bytes, as far as seven bytes tell."""
    line = line_of(Schema.of({"s": "string"})["s"], 64, 1)
    texts = sorted(["", "a", "ab", "abc", "b", "é", "日本", "\U0010ffff", "abcdefgh"], key=str.encode)
    places = [line.place(t.encode()) for t in texts]
    assert places == sorted(places)
    assert len(set(places)) == len(places)


def test_no_domain_no_order():
    """A number without min and max has no line; a boolean has one by itself, an enumeration by its values."""
    schema = Schema.of(
        {"a": "bigint", "b": {"type": "bigint", "min": 0}, "c": "boolean", "d": {"type": "bigint", "values": [7, 3]}}
    )
    assert line_of(schema["a"], 64, 1) is None
    assert line_of(schema["b"], 64, 1) is None
    assert line_of(schema["c"], 64, 1).cells == 2
    assert line_of(schema["d"], 64, 1).cells == 5


@pytest.mark.parametrize(
    ("kind", "value", "key"),
    [
        (Kind.BOOLEAN, True, 1),
        (Kind.INTEGER, -5, -5),
        (Kind.FLOAT, 0.0, 0),
        (Kind.FLOAT, float("nan"), NAN_KEY),
        (Kind.STRING, "é", "é".encode()),
        (Kind.DATE, dt.date(1970, 1, 3), 2),
        (Kind.TIMESTAMP, dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.UTC), -1),
    ],
)
def test_keys(kind, value, key):
    """Keys are those that compiled filters use."""
    assert ring_key(value) == key


def test_equi_depth_evens_out_a_crowd():
    """With the knots of a sample, each sixteenth of the ring holds about a sixteenth of the values."""
    rng = random.Random(3)
    values = [float_key(min(rng.expovariate(2), 20)) for _ in range(4000)]
    plain = line_of(PRICE, 64, 1)
    bent = line_of(PRICE, 64, 1, equi_depth(plain, values[:2000]))

    def most(line):
        places = [line.place(v) >> 60 for v in values[2000:]]
        return max(places.count(p) for p in range(16)) / 125

    assert most(plain) > 10
    assert most(bent) < 1.6
