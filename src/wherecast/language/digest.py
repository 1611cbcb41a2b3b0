"""Digests: a short name for the canonical form of a filter.

Strings enter by their own digest, not by their rank, so that a digest does not depend on the batch a filter came with.
A cryptographic hash, because a subscriber who could make two filters collide would receive another's events.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from wherecast.language.expression import InList, Param
from wherecast.language.filters import Filters, Program
from wherecast.language.keys import KEY_MAX, KEY_MIN
from wherecast.language.render import attribute_namer, render
from wherecast.language.schema import Kind, Schema

_ROW = np.dtype([("clause", "<i4"), ("attr", "<i2"), ("ends", "u1", 2), ("lo", "<u8", 2), ("hi", "<u8", 2)])


def digest_filters(filters: Filters, schema: Schema) -> list[bytes]:
    """16 bytes per filter: the same for two filters exactly if their canonical forms are the same."""
    is_string = np.array([a.kind is Kind.STRING for a in schema.attributes] or [False])
    residual_texts = _residual_texts(filters, schema)
    rows = np.zeros(filters.attr.size, _ROW)
    clauses = np.diff(filters.clause_ptr)
    owner = np.repeat(np.arange(filters.row_ptr.size - 1), np.diff(filters.row_ptr))
    rows["clause"] = (owner - np.repeat(filters.clause_ptr[:-1], clauses)[owner]) if owner.size else 0
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
    data, width = rows.tobytes(), _ROW.itemsize
    first = (filters.row_ptr[filters.clause_ptr] * width).tolist()
    counts = clauses.tolist()
    out = [
        hashlib.blake2b(data[a:b], digest_size=16, key=b"%d" % c).digest()
        for a, b, c in zip(first, first[1:], counts, strict=False)
    ]
    for f in sorted({int(np.searchsorted(filters.clause_ptr, c, "right")) - 1 for c in residual_texts}):
        texts = [residual_texts.get(c, "") for c in range(filters.clause_ptr[f], filters.clause_ptr[f + 1])]
        out[f] = hashlib.blake2b("\0".join(texts).encode(), digest_size=16, key=out[f]).digest()
    return out


def _string_marks(strings: list[str]) -> npt.NDArray[np.uint64]:
    marks = b"".join(hashlib.blake2b(s.encode("utf-8", "surrogatepass"), digest_size=16).digest() for s in strings)
    return np.frombuffer(marks, np.uint64).reshape(-1, 2)


def _residual_texts(filters: Filters, schema: Schema) -> dict[int, str]:
    """The residual of each clause in canonical words: the shape with numbered slots, then the literals."""
    texts: dict[int, str] = {}
    shapes: dict[int, tuple[str, list[object]]] = {}
    for clause in np.flatnonzero(filters.program >= 0).tolist():
        number = int(filters.program[clause])
        if number not in shapes:
            shapes[number] = _program_text(filters.programs[number], schema)
        words, keys = shapes[number]
        columns = filters.programs[number].columns
        row = int(filters.program_row[clause])
        values = [_plain(columns[k][row]) for k in keys]  # type: ignore[index]
        texts[clause] = f"{words}|{values!r}"
    return texts


def _plain(value: object) -> object:
    return sorted(value, key=repr) if isinstance(value, frozenset) else value


def _program_text(program: Program, schema: Schema) -> tuple[str, list[object]]:
    numbers: dict[int, int] = {}
    keys: list[object] = []
    members = {v: n.common for r in program.rests for n in r.node.walk() if isinstance(n, InList) for v in n.values}

    def literal(param: Param) -> str:
        if param.slot not in numbers:
            numbers[param.slot] = len(numbers)
            keys.append((param, members[param]) if param in members else param)
        return f"?{numbers[param.slot]}:{param.type}"

    words = [f"{render(r.node, attribute_namer(schema), literal)} IS {r.truth}" for r in program.rests]
    return " AND ".join(words), keys
