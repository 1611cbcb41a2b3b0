"""Digests: a short name for the canonical form of a filter.

Strings enter by their own digest, not by their rank, so that a digest does not depend on the batch a filter came with.
A cryptographic hash, because a subscriber who could make two filters collide would receive another's events.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from wherecast.language.canonical import rest_writer
from wherecast.language.filters import Filters
from wherecast.language.keys import KEY_MAX, KEY_MIN
from wherecast.language.schema import Kind, Schema

_ROW = np.dtype([("attr", "<i2"), ("ends", "u1", 2), ("lo", "<u8", 2), ("hi", "<u8", 2)])


def digest_filters(filters: Filters, schema: Schema) -> list[bytes]:
    """16 bytes per filter: the same for two filters exactly if their canonical forms are the same."""
    data, width = _row_bytes(filters, schema), _ROW.itemsize
    at = (filters.row_ptr * width).tolist()
    first = filters.clause_ptr.tolist()
    rests = _rests(filters)
    out = []
    for a, b in pairwise(first):
        if b - a == 1 and a not in rests:
            out.append(_digest(data[at[a] : at[b]], b"box"))
        elif any(_is_whole(filters, c) for c in range(a, b)):
            # The boxes of a cover say nothing that the residual does not.
            out.append(_digest(rests[a], b"whole"))
        else:
            # The number of bytes first, so that no residual can be taken for rows.
            parts = [(data[at[c] : at[c + 1]], rests.get(c, b"")) for c in range(a, b)]
            marks = {_digest(b"%d:%b%b" % (len(box), box, rest), b"clause") for box, rest in parts}
            out.append(_digest(b"".join(sorted(marks)), b"clauses"))
    return out


def _digest(data: bytes, kind: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16, key=kind).digest()


def _row_bytes(filters: Filters, schema: Schema) -> bytes:
    """The rows with digests in place of the ranks of strings."""
    is_string = np.array([a.kind is Kind.STRING for a in schema.attributes] or [False])
    rows = np.zeros(filters.attr.size, _ROW)
    rows["attr"] = filters.attr
    column = np.where(filters.attr < 0, ~filters.attr, filters.attr)
    text = is_string[column] & ~filters.null
    marks = _string_marks(filters.strings)
    for end, values, open_end, bit in (("lo", filters.lo, KEY_MIN, 0), ("hi", filters.hi, KEY_MAX, 1)):
        rows[end][:, 0] = values.view(np.uint64)
        bounded = text & (values != open_end)
        rows["ends"][bounded, bit] = 1 + (values[bounded] & 3)
        rows[end][bounded] = marks[values[bounded] >> 2]
    rows["ends"][filters.null, 0] = 9
    return rows.tobytes()


def _string_marks(strings: list[str]) -> npt.NDArray[np.uint64]:
    marks = b"".join(hashlib.blake2b(s.encode("utf-8", "surrogatepass"), digest_size=16).digest() for s in strings)
    return np.frombuffer(marks, np.uint64).reshape(-1, 2)


def _is_whole(filters: Filters, clause: int) -> bool:
    program = int(filters.program[clause])
    return program >= 0 and filters.programs[program].rests[0].is_whole


def _rests(filters: Filters) -> dict[int, bytes]:
    """The residual of each clause that has one, in canonical words."""
    writers: dict[int, Callable[[int], frozenset[str]]] = {}
    out = {}
    for clause in np.flatnonzero(filters.program >= 0).tolist():
        number = int(filters.program[clause])
        if number not in writers:
            writers[number] = rest_writer(filters.programs[number])
        out[clause] = "\0".join(sorted(writers[number](int(filters.program_row[clause])))).encode()
    return out
