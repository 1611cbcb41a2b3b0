"""Summaries are covers: whatever happens to them, nothing that was inserted is held back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from wherecast.partition.summary import Bloom, Dictionary, buckets_of

hashes = st.lists(st.integers(0, 2**64 - 1), max_size=40, unique=True).map(lambda h: np.array(h, np.uint64))
extremes = np.array([0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 1], np.uint64)


def random_hashes(seed: int, n: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**64, n, np.uint64)


class TestBloom:
    @examples(60)
    @given(first=hashes, later=hashes, buckets=st.integers(1, 9), bits=st.sampled_from([1, 14, 40]))
    def test_it_holds_what_was_inserted(self, first, later, buckets, bits):
        """Whether at once or later, however small it is, and coarser too."""
        bloom = Bloom.build(first, buckets, bits)
        bloom.insert(later)
        for cover in (bloom, bloom.coarser(), bloom.coarser().coarser(), Bloom.from_arrays(bloom.arrays())):
            assert cover.may_hold(first).all()
            assert cover.may_hold(later).all()

    @examples(60)
    @given(a=hashes, b=hashes, buckets=st.integers(1, 9), bits=st.tuples(*[st.sampled_from([1, 14, 200])] * 2))
    def test_a_merged_cover_holds_both(self, a, b, buckets, bits):
        """Of different sizes as well."""
        merged = Bloom.build(a, buckets, bits[0]).merge(Bloom.build(b, buckets, bits[1]))
        assert merged.may_hold(np.concatenate((a, b))).all()

    def test_folding_is_what_a_smaller_filter_would_be(self):
        """The bits of a folded filter are those of one built at half the size."""
        keys = random_hashes(1, 1000)
        large = Bloom.build(keys, 4, 28)
        small = Bloom(large.ptr // 2, np.zeros(large.words.size // 2, np.uint64))
        small.insert(keys)
        assert np.array_equal(large.coarser().words, small.words)

    @pytest.mark.parametrize(("bits", "limit"), [(8, 0.04), (14, 0.0065), (24, 0.0015)])
    def test_the_estimate_is_what_is_measured(self, bits, limit):
        """On as many others as it takes to see the rate, within a fifth; and more bits let fewer through."""
        keys = random_hashes(2, 1 << 15)  # fills every bucket to the brim of its power of two
        bloom = Bloom.build(keys, 1, bits)
        assert bloom.words.size * 64 >= bits * keys.size
        measured = bloom.may_hold(random_hashes(3, 2_000_000)).mean()
        assert measured == pytest.approx(bloom.false_positive_rate(), rel=0.2)
        assert measured < limit

    def test_the_buckets_of_one_server_hold_its_signatures_only(self):
        """And all servers together are the whole filter again."""
        keys = random_hashes(4, 500)
        bloom = Bloom.build(keys, 10)
        own = buckets_of(keys, 10) < 4
        mine, rest = bloom.take(np.arange(4)), bloom.take(np.arange(4, 10))
        assert np.array_equal(mine.may_hold(keys), own)
        assert mine.bytes_per_bucket().sum() + rest.bytes_per_bucket().sum() == bloom.words.nbytes
        assert np.array_equal(mine.merge(rest).words, bloom.words)

    def test_a_bucket_without_words_gets_one(self):
        """A signature in a bucket that was not taken is covered all the same."""
        bloom = Bloom.build(random_hashes(5, 100), 8).take(np.array([2, 5]))
        late = random_hashes(6, 50)
        bloom.insert(late)
        assert bloom.may_hold(late).all()

    def test_an_empty_filter_holds_nothing(self):
        """Neither one of no signatures nor one of no buckets."""
        none = np.zeros(0, np.uint64)
        assert not Bloom.build(none, 3).may_hold(extremes).any()
        assert not Bloom.build(none, 3).take(np.zeros(0, int)).may_hold(extremes).any()
        assert Bloom.build(none, 3).false_positive_rate() == 0

    @pytest.mark.parametrize(
        ("ptr", "words"), [([0, 2], 3), ([0, 3], 3), ([1, 2], 2), ([0, 4, 2], 2)], ids=["short", "odd", "start", "back"]
    )
    def test_arrays_that_do_not_fit_are_refused(self, ptr, words):
        """A kernel would read past the end."""
        with pytest.raises(ValueError, match="Bloom"):
            Bloom.from_arrays({"ptr": np.array(ptr), "words": np.zeros(words, np.uint64)})

    def test_filters_of_other_buckets_do_not_merge(self):
        """Their words mean something else."""
        with pytest.raises(ValueError, match="3 and 4 buckets"):
            Bloom.build(extremes, 3).merge(Bloom.build(extremes, 4))


class TestDictionary:
    @examples(60)
    @given(
        changes=st.lists(
            st.tuples(st.booleans(), st.sampled_from([0, 1, 2, 3, 2**63, 2**64 - 1]), st.integers(1, 3)), max_size=60
        )
    )
    def test_it_counts_as_a_python_dictionary_does(self, changes):
        """A signature is new with its first subscription and gone with its last; 0 is taken for 1."""
        ours, theirs = Dictionary.empty(), {}
        for adding, drawn, weight in changes:
            signature, weights, key = np.array([drawn], np.uint64), np.array([weight]), max(drawn, 1)
            before = theirs.get(key, 0)
            after = before + weight if adding else max(before - weight, 0)
            changed = (ours.add if adding else ours.take)(signature, weights)
            assert changed.tolist() == [before == 0 if adding else before > 0 == after]
            theirs[key] = after
        alive = {key for key, count in theirs.items() if count}
        assert set(ours.signatures().tolist()) == alive
        assert len(ours) == len(alive)
        assert ours.may_hold(extremes).tolist() == [max(key, 1) in alive for key in extremes.tolist()]

    def test_it_grows_and_forgets(self):
        """Through growth nothing is lost, and room is made by what is gone."""
        keys = random_hashes(7, 10_000)
        book = Dictionary.build(keys)
        assert book.may_hold(keys).all()
        assert not book.may_hold(random_hashes(8, 10_000)).any()
        book.take(keys[100:], np.ones(9_900, np.int64))
        assert len(book) == 100
        for part in np.split(random_hashes(9, 100_000), 100):
            book.insert(part)
            book.take(part, np.ones(part.size, np.int64))
        assert len(book) == 100
        assert book.keys.size <= 1 << 15

    def test_a_signature_that_comes_twice_is_new_once(self):
        """Also within one call."""
        book = Dictionary.empty()
        assert book.add(np.array([5, 5, 6], np.uint64), np.array([1, 2, 3])).tolist() == [True, False, True]
        assert book.take(np.array([5, 5], np.uint64), np.array([2, 1])).tolist() == [False, True]

    def test_merging_adds_counts(self):
        """So that what is left after one side is removed is the other."""
        a, b = Dictionary.build(random_hashes(1, 50)), Dictionary.build(random_hashes(1, 80))
        both = Dictionary.from_arrays(a.merge(b).arrays())
        assert len(both) == 80
        both.take(random_hashes(1, 80), np.ones(80, np.int64))
        assert len(both) == 50
        assert both.false_positive_rate() == 0.0
