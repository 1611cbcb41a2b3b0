"""BLAKE2b with 16 bytes of result, of many messages in one call, as `hashlib` computes it (RFC 7693).

A call of `hashlib` for each filter and each string takes a sixth of the time in which a large batch compiles, most of
it for the objects around 100 bytes. A kernel needs none.
"""

from __future__ import annotations

import hashlib
from functools import cached_property

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Longs
from wherecast.kernels.late import late, late_hot

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]

_BLOCK = 128
#: Fewer messages are quicker one by one, and need no Numba.
_FEW = 64
_IV = np.array(
    [
        0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1,
        0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179,
    ],
    np.uint64,
)  # fmt: skip
_ORDERS = (
    (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
    (14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3),
    (11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4),
    (7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8),
    (9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13),
    (2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9),
    (12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11),
    (13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10),
    (6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5),
    (10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0),
)
IV0, IV1, IV2, IV3, IV4, IV5, IV6, IV7 = _IV
_SIGMA = np.array([_ORDERS[r % 10] for r in range(12)], np.uint64)


class Hash:
    """One use of the hash. A key tells it from other uses: equal messages have different digests there."""

    def __init__(self, key: bytes = b"") -> None:
        self._key = key

    def one(self, message: bytes) -> bytes:
        return hashlib.blake2b(message, digest_size=16, key=self._key).digest()

    def many(self, data: Bytes, first: Longs, end: Longs, parts: int = 1) -> Bytes:
        """(messages, 16): digests of `data[first[i]:end[i]]`, or of so many such parts, one after the other."""
        if first.size < _FEW:
            spans = zip(first.tolist(), end.tolist(), strict=True)
            pieces = [data[a:b].tobytes() for a, b in spans]
            messages = [b"".join(pieces[i : i + parts]) for i in range(0, len(pieces), parts)]
            return np.frombuffer(b"".join(map(self.one, messages)), np.uint8).reshape(-1, 16)
        out = np.empty((first.size // parts, 2), np.uint64)
        room = np.empty(8 + 16, np.uint64)
        block = room[8:].view(np.uint8)
        with np.errstate(over="ignore"):  # sums are taken modulo 2**64; plain Python would warn
            digest_spans.compiled(data, first, end, parts, *self._start, _SIGMA, room, block, out)
        digests = out.view(np.uint8)
        if self._key:  # the key's block is the last one of an empty message
            is_empty = (first == end).reshape(-1, parts).all(axis=1)
            digests[is_empty] = np.frombuffer(self.one(b""), np.uint8)
        return digests

    @cached_property
    def _start(self) -> tuple[Words, int]:
        """The state before a message, and the bytes read so far."""
        state = _IV.copy()
        state[0] ^= np.uint64(0x01010000 ^ (len(self._key) << 8) ^ 16)
        if not self._key:
            return state, 0
        block = np.frombuffer(self._key.ljust(_BLOCK, b"\0"), np.uint64)
        with np.errstate(over="ignore"):
            _compress(state, block, _SIGMA, _BLOCK, False)
        return state, _BLOCK


@late
def digest_spans(
    data: Bytes,
    first: Longs,
    end: Longs,
    parts: int,
    start: Words,
    read: int,
    sigma: Longs,
    room: Words,
    block: Bytes,
    out: Words,
) -> None:
    """Digests of messages of so many spans of the data, each from a state that has read something already.

    `block` is `room` after a state.
    """
    state, words = room[:8], room[8:]
    for i in range(out.shape[0]):
        for k in range(8):
            state[k] = start[k]
        total, filled = read, 0
        for span in range(i * parts, (i + 1) * parts):
            at = first[span]
            while at < end[span]:
                if filled == 128:  # it is not the last one: there is more
                    total += 128
                    _compress(state, words, sigma, total, False)
                    filled = 0
                size = min(128 - filled, end[span] - at)
                _copy(data, np.uint64(at), block, np.uint64(filled), size)
                filled += size
                at += size
        for k in range(np.uint64(filled), np.uint64(128)):
            block[k] = 0
        _compress(state, words, sigma, total + filled, True)
        out[i, 0], out[i, 1] = state[0], state[1]


@late_hot
def _copy(source: Bytes, at: np.uint64, target: Bytes, to: np.uint64, size: int) -> None:
    """Copy bytes. Places are unsigned: a signed one may be counted from the end, and LLVM would take the bytes one by one."""
    for k in range(np.uint64(size)):
        target[to + k] = source[at + k]


@late_hot
def _mix(a: np.uint64, b: np.uint64, c: np.uint64, d: np.uint64, x: np.uint64, y: np.uint64) -> tuple[np.uint64, ...]:
    a = a + b + x
    d ^= a
    d = (d >> np.uint64(32)) | (d << np.uint64(32))
    c = c + d
    b ^= c
    b = (b >> np.uint64(24)) | (b << np.uint64(40))
    a = a + b + y
    d ^= a
    d = (d >> np.uint64(16)) | (d << np.uint64(48))
    c = c + d
    b ^= c
    b = (b >> np.uint64(63)) | (b << np.uint64(1))
    return a, b, c, d


@late_hot
def _compress(h: Words, m: Words, sigma: Longs, total: int, is_last: bool) -> None:
    """One block into a state; `total` bytes have been read with it. The words of the mixed state are locals: registers."""
    v0, v1, v2, v3, v4, v5, v6, v7 = h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7]
    v8, v9, v10, v11 = IV0, IV1, IV2, IV3
    v12, v13, v14, v15 = IV4 ^ np.uint64(total), IV5, IV6, IV7
    if is_last:
        v14 = ~v14
    for r in range(sigma.shape[0]):  # not 12: LLVM would write all rounds out, and take four times as long to compile
        v0, v4, v8, v12 = _mix(v0, v4, v8, v12, m[sigma[r, 0]], m[sigma[r, 1]])
        v1, v5, v9, v13 = _mix(v1, v5, v9, v13, m[sigma[r, 2]], m[sigma[r, 3]])
        v2, v6, v10, v14 = _mix(v2, v6, v10, v14, m[sigma[r, 4]], m[sigma[r, 5]])
        v3, v7, v11, v15 = _mix(v3, v7, v11, v15, m[sigma[r, 6]], m[sigma[r, 7]])
        v0, v5, v10, v15 = _mix(v0, v5, v10, v15, m[sigma[r, 8]], m[sigma[r, 9]])
        v1, v6, v11, v12 = _mix(v1, v6, v11, v12, m[sigma[r, 10]], m[sigma[r, 11]])
        v2, v7, v8, v13 = _mix(v2, v7, v8, v13, m[sigma[r, 12]], m[sigma[r, 13]])
        v3, v4, v9, v14 = _mix(v3, v4, v9, v14, m[sigma[r, 14]], m[sigma[r, 15]])
    h[0] ^= v0 ^ v8
    h[1] ^= v1 ^ v9
    h[2] ^= v2 ^ v10
    h[3] ^= v3 ^ v11
    h[4] ^= v4 ^ v12
    h[5] ^= v5 ^ v13
    h[6] ^= v6 ^ v14
    h[7] ^= v7 ^ v15
