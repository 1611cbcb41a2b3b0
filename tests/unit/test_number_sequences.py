"""Numbers of values and of sequences: the kernels that give them to many agree with what is done for a few."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

import wherecast.language.sequences as sequences_module
from wherecast.language.sequences import number_alike, number_sequences, numbered, pointer

_FEW = st.integers(-3, 3) | st.integers(-(2**62), 2**62)


@examples(200)
@given(st.lists(_FEW, max_size=40), st.booleans())
def test_values_are_numbered_in_their_order(values: list[int], by_kernel: bool) -> None:
    """Equal values have one number, and numbers follow the order of the values."""
    with patch.object(sequences_module, "MANY", 1 if by_kernel else 64):
        known, numbers = numbered(np.array(values, np.int64))
    expected, places = np.unique(np.array(values, np.int64), return_inverse=True)
    assert known.tolist() == expected.tolist()
    assert numbers.tolist() == places.tolist()


_SEQUENCES = st.lists(st.lists(st.integers(0, 3), max_size=4), max_size=30)


def _flat(sequences: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    values = [value for each in sequences for value in each]
    return pointer(map(len, sequences), len(sequences)), np.array(values, np.int64)


@examples(200)
@given(_SEQUENCES, st.booleans())
def test_sequences_are_numbered_as_they_first_occur(sequences: list[list[int]], by_kernel: bool) -> None:
    """Equal sequences have one number, and each number is that of its first sequence."""
    with patch.object(sequences_module, "MANY", 1 if by_kernel else 64):
        numbers, first = number_alike(*_flat(sequences))
    known = list(dict.fromkeys(map(tuple, sequences)))
    assert [known[number] for number in numbers.tolist()] == list(map(tuple, sequences))
    assert first.tolist() == [sequences.index(list(each)) for each in known]


@examples(200)
@given(_SEQUENCES, st.booleans())
def test_sequences_of_one_length_are_numbered_in_their_order(sequences: list[list[int]], by_kernel: bool) -> None:
    """Equal sequences have one number; of two of one length, the lesser one has the lesser number."""
    with patch.object(sequences_module, "MANY", 1 if by_kernel else 64):
        numbers, first = number_sequences(*_flat(sequences))
    assert sorted(set(numbers.tolist())) == list(range(first.size))
    assert [sequences[first[number]] for number in numbers.tolist()] == sequences
    for length in range(5):
        own = [(each, number) for each, number in zip(sequences, numbers.tolist(), strict=True) if len(each) == length]
        assert [number for _, number in sorted(own)] == sorted(number for _, number in own)
