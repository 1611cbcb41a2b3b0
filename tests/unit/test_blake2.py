"""Digests of many messages at once."""

from __future__ import annotations

import hashlib
import random

import numpy as np
import pytest

from wherecast.kernels.blake2 import Hash


@pytest.mark.parametrize("key", [b"", b"box", b"k" * 64])
@pytest.mark.parametrize("count", [0, 3, 200])
def test_digests_are_those_of_hashlib(key: bytes, count: int) -> None:
    """Of few messages and of many, of every length around the size of a block."""
    draw = random.Random(count)
    lengths = [0, 1, 7, 8, 36, 72, 108, 127, 128, 129, 255, 256, 257, 1000]
    messages = [draw.randbytes(draw.choice(lengths)) for _ in range(count)]
    end = np.cumsum([len(m) for m in messages], dtype=np.int64)
    first = end - np.array([len(m) for m in messages], np.int64)
    found = Hash(key).many(np.frombuffer(b"".join(messages), np.uint8), first, end)
    assert [row.tobytes() for row in found] == [hashlib.blake2b(m, digest_size=16, key=key).digest() for m in messages]
