"""Codes of keys and strings."""

from __future__ import annotations

import random

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given

from wherecast.index.keys import KeyCodes
from wherecast.index.strings import StringCodes, lay_out
from wherecast.index.text_columns import lower_texts
from wherecast.language.events.keys import float_keys, key_floats
from wherecast.language.events.values import key_of

KEYS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-50, 50),
    st.floats(width=64).map(lambda f: int(float_keys(np.array([f]))[0])),
    st.sampled_from([2**63 - 512, 2**62, 2**53, -(2**62), 0x7FF0000000000000, -0x7FF0000000000001]),
)


@given(st.lists(KEYS, max_size=60), st.lists(KEYS, max_size=60))
@example([1, 2, 2**53, 2**63 - 512], [2**62])
def test_code_counts_the_starts_not_above(starts, keys):
    """On every scale of buckets a key's code is one more than the number of starts not above it."""
    sorted_starts = np.unique(np.array(starts, np.int64))
    asked = np.array(keys + starts, np.int64)
    codes = KeyCodes.of(sorted_starts)
    assert codes.encode_keys(asked).tolist() == (np.searchsorted(sorted_starts, asked, "right") + 1).tolist()


def _crowd(count: int) -> np.ndarray:
    """Integers of which most are in one bucket, on every scale."""
    return np.unique(np.concatenate((np.arange(count - 2), [-(2**63), 2**63 - 1])))


@pytest.mark.sampled
@pytest.mark.parametrize("count", [*range(36), 40, 64, 65, 300, 5000])
@pytest.mark.parametrize(
    "make",
    [
        lambda count: np.arange(count) * 7,
        lambda count: np.exp2(np.arange(count) % 62).astype(np.int64) + np.arange(count),
        lambda count: float_keys(np.arange(count) - count / 2),
        lambda count: _crowd(max(count, 2)),
    ],
    ids=["even", "powers", "doubles", "crowd"],
)
def test_blocks_of_keys_have_the_codes_of_single_keys(make, count):
    """However many starts there are and wherever they crowd; NULLs have code 0, few or many of them in a block."""
    starts = np.unique(make(count))
    codes = KeyCodes.of(starts)
    near = np.concatenate(
        (starts, starts - 1, starts + 1, [0, -(2**63), 2**63 - 1, *float_keys(np.array([np.nan, 0.5]))])
    )
    keys = np.resize(near, max(near.size, 700))
    expected = (np.searchsorted(starts, keys, "right") + 1).tolist()
    assert codes.encode_keys(keys).tolist() == expected
    assert [codes.encode_key(key) for key in keys[:50].tolist()] == expected[:50]
    for period in (2, 50):
        valid = np.arange(keys.size) % period == 0
        found = codes.encode(pa.array(keys, mask=~valid).slice(3))
        assert found.tolist() == [code if there else 0 for code, there in zip(expected, valid, strict=True)][3:]


@given(st.lists(st.floats(width=64), min_size=1))
def test_float_keys_are_sparks_order(values):
    """Keys order doubles as Spark does: NaN above everything and equal to itself, -0.0 equal to 0.0."""
    keys = float_keys(np.array(values))
    ordered = sorted(values, key=lambda v: (v != v, 0.0 if v != v else v))
    assert np.sort(keys).tolist() == float_keys(np.array(ordered)).tolist()
    assert [key_of(v) for v in values] == keys.tolist()
    finite = [v for v in values if v == v]
    assert key_floats(float_keys(np.array(finite))).tolist() == finite


@given(st.lists(st.text(max_size=4)), st.lists(st.one_of(st.none(), st.text(max_size=4)), min_size=1), st.booleans())
def test_strings_are_points_or_gaps(constants, values, ordered):
    """A constant has its own code; another string has the code of its gap, or of some gap where order does not matter."""
    strings = sorted(set(constants))
    codes = StringCodes.of(strings, ordered)
    for value, code in zip(values, codes.encode(pa.array(values, pa.string())).tolist(), strict=True):
        if value is None:
            assert code == 0
        elif value in strings:
            assert code == 2 * strings.index(value) + 2
        else:
            assert code == (2 * sum(s < value for s in strings) + 1 if ordered else 1)
    kept = StringCodes.from_arrays(codes.arrays())
    assert kept.strings() == strings
    assert all(
        kept.encode_text(v.encode()) == c
        for v, c in zip(values, codes.encode(pa.array(values, pa.string())), strict=True)
        if v is not None
    )


def test_lower_case_is_pythons_for_every_text():
    """Also beside texts of ASCII only, in slices, and for letters that become two or depend on their neighbours."""
    texts = ["ABC", None, "İstanbul", "ΑΣ", "", "aß", "K", "日本X", None, "plain"]
    for column in (pa.array(texts), pa.array(["x", *texts, "Ä"])[1:-1], pa.array(texts)[:2], pa.array([], pa.string())):
        assert lower_texts(column).to_pylist() == [v and v.lower() for v in column.to_pylist()]


def test_texts_of_every_length_have_their_codes() -> None:
    """Hashes and comparisons take eight bytes at a time; the end, and texts that differ in one byte, count as well."""
    draw = random.Random(5)
    words = sorted({"".join(draw.choices("abß日", k=n)) for n in range(26) for _ in range(20)})
    codes = StringCodes.of(words[::2], ordered=True)
    found = codes.encode(pa.array([*words, None])).tolist()
    assert found == [*range(2, len(words) + 2), 0], "constants and the gaps between them, in turn"
    assert [codes.encode_text(word.encode()) for word in words] == found[:-1]


def test_a_table_of_the_first_hash_is_made_anew() -> None:
    """Snapshots from before hashes took eight bytes at a time do not name their hash."""
    codes = StringCodes.of(["a", "symbol", "x" * 20], ordered=False)
    old = codes.arrays()
    old |= {"facts": old["facts"][:2], "marks": np.zeros_like(old["marks"])}
    values = pa.array(["symbol", "x" * 20, "b", None])
    assert StringCodes.from_arrays(old).encode(values).tolist() == codes.encode(values).tolist()


@pytest.mark.parametrize("form", ["S{:05}", "host-{:07}.example.org", "{:03}", "https://example.org/items/{}/view"])
def test_texts_that_differ_little_are_spread(form):
    """A search in a half-full table meets two or three entries; it met 45 when the last letters did not count."""
    texts = pa.array([form.format(i) for i in range(1000)])
    codes = StringCodes.of(sorted(texts[::4].to_pylist()), ordered=False)
    taken, steps = codes._places >= 0, 0
    for first in (codes.hash(lay_out(texts)) & np.uint64(taken.size - 1)).tolist():
        slot = first
        while taken[slot]:
            slot, steps = (slot + 1) % taken.size, steps + 1
    assert steps / len(texts) < 4
