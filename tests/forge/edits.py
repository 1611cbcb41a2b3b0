"""Edits of a saved engine, as somebody makes them who knows how to compute its checksums.

An edit changes one thing: a value of an array, an array as a whole, what the manifest says of an array, or a fact.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tests.unit.snapshots import forge, rewrite

from wherecast.index.snapshot import MANIFEST

Manifest = dict[str, Any]

_FACTS = [
    None,
    True,
    -1,
    0,
    1,
    2,
    7,
    1 << 31,
    1 << 63,
    1 << 70,
    1.5,
    "",
    "x",
    "keys",
    "strings",
    "scan",
    "3",
    [],
    {},
    [{}],
]
_FLOATS = [float("nan"), float("inf"), float("-inf"), -1.0, 0.0, 1e308, 1e18, -1e-300]


def edit_snapshot(saved: Path, target: Path, rng: random.Random) -> str:
    """A forged copy of a saved engine; says what was edited."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(saved, target)
    manifest = json.loads((target / MANIFEST).read_bytes())
    edit = rng.choices((_edit_value, _edit_array, _edit_place, _edit_fact), (70, 8, 12, 10))[0]
    return edit(target, manifest, rng)


def _edit_value(target: Path, manifest: Manifest, rng: random.Random) -> str:
    """One value of an array, or one byte of its texts."""
    name, facts = _draw_array(manifest, rng)
    if facts["type"] in ("string", "large_string"):
        return _edit_text(target, name, facts, rng)
    dtype, (offset, size) = np.dtype(facts["type"]), facts["buffers"][0]
    count = size // dtype.itemsize
    at = rng.randrange(count) if rng.random() < 0.8 else rng.choice((0, count - 1))
    drawn = rng.random()
    said = ""

    def change(data: bytearray) -> None:
        nonlocal said
        array = np.frombuffer(data, dtype, count, offset)
        old = array[at]
        array[at] = _draw_value(array, at, manifest, rng, drawn)
        said = f"{name}[{at}] of {facts['shape']}: {old} -> {array[at]}"

    forge(target, facts["file"], change)
    return said


def _draw_value(array: Any, at: int, manifest: Manifest, rng: random.Random, drawn: float) -> Any:
    dtype = array.dtype
    if dtype.kind == "f":
        return np.array(rng.choice(_FLOATS)).astype(dtype)
    if dtype.kind == "b":
        return not array[at]
    info, old = np.iinfo(dtype), int(array[at])
    lengths = [n for facts in manifest["arrays"].values() for n in facts["shape"]]
    near = [old + 1, old - 1, -old, ~old, old * 2, old ^ 1 << rng.randrange(info.bits), old + 4, old - 4]
    far = [info.min, info.max, info.max - 1, -1, 0, 1, -2, 64, 1 << 20, 1 << 31]
    length = rng.choice(lengths) + rng.choice((-1, 0, 1))
    pool = near if drawn < 0.4 else far if drawn < 0.7 else [length] if drawn < 0.85 else [int(rng.choice(array))]
    value = rng.choice(pool)
    return np.array(min(max(value, info.min), info.max), object).astype(dtype)


def _edit_text(target: Path, name: str, facts: Manifest, rng: random.Random) -> str:
    offset, size = rng.choice([b for b in facts["buffers"] if b is not None and b[1]])
    at, byte = offset + rng.randrange(size), rng.choice((0, 1, 32, 45, 48, 105, 115, 127, 128, 255, rng.randrange(256)))
    forge(target, facts["file"], lambda data: data.__setitem__(at, byte))
    return f"{name}: byte {at - offset} of the buffer at {offset} -> {byte}"


def _edit_array(target: Path, manifest: Manifest, rng: random.Random) -> str:
    """All values of an array: equal, reversed, shuffled, or any bytes."""
    name, facts = _draw_array(manifest, rng)
    (offset, size), what = facts["buffers"][-1], rng.choice(("zero", "ones", "reversed", "shuffled", "noise"))
    width = 1 if facts["type"] in ("string", "large_string") else np.dtype(facts["type"]).itemsize

    def change(data: bytearray) -> None:
        items = [bytes(data[i : i + width]) for i in range(offset, offset + size, width)]
        if what == "shuffled":
            rng.shuffle(items)
        made = {"zero": bytes(size), "ones": b"\xff" * size, "noise": rng.randbytes(size)}
        data[offset : offset + size] = made.get(what, b"".join(items[::-1] if what == "reversed" else items))

    forge(target, facts["file"], change)
    return f"{name}: {what}"


def _edit_place(target: Path, manifest: Manifest, rng: random.Random) -> str:
    """What the manifest says of an array: shorter, of another type or shape, another array, or nothing."""
    name, facts = _draw_array(manifest, rng)
    other, _ = _draw_array(manifest, rng)
    edits = dict(_places(facts, rng))
    edits |= {f"is {other}": manifest["arrays"][other], "missing": None}
    what = rng.choice(list(edits))

    def change(forged: Manifest) -> None:
        forged["arrays"][name] = edits[what]
        if what == "missing":
            del forged["arrays"][name]

    rewrite(target, change)
    return f"{name} {facts['type']} {facts['shape']}: {what}"


def _places(facts: Manifest, rng: random.Random) -> Iterator[tuple[str, Manifest]]:
    if facts["type"] in ("string", "large_string"):
        yield "no texts", {**facts, "shape": [0], "buffers": [None, [0, 4 if facts["type"] == "string" else 8], [0, 0]]}
        return
    width, (offset, size) = np.dtype(facts["type"]).itemsize, facts["buffers"][0]
    rows, *columns = facts["shape"]
    per_row = width * (columns[0] if columns else 1)
    for fewer in {0, 1, rows // 2, rows - 1} - {rows}:
        yield f"{fewer} rows", {**facts, "shape": [fewer, *columns], "buffers": [[offset, fewer * per_row]]}
    for kind in ("<i4", "<u4", "<f4", "<i8", "<u8", "<f8", "|i1", "|u1", "|b1", "<i2", ">i4", ">i8", "|V4"):
        each = np.dtype(kind).itemsize
        if kind != facts["type"] and size % each == 0 and rng.random() < 0.3:
            yield f"as {kind}", {**facts, "type": kind, "shape": [size // each]}
            if each == width:
                yield f"as {kind}, same shape", {**facts, "type": kind}
    if columns:
        yield "flat", {**facts, "shape": [rows * columns[0]]}
        yield "turned", {**facts, "shape": [columns[0], rows]}
    else:
        yield "a column", {**facts, "shape": [rows, 1]}


def _edit_fact(target: Path, manifest: Manifest, rng: random.Random) -> str:
    """A fact, or a part of one, or its name."""
    place = rng.choice(list(_leaves(manifest["facts"])))
    value = rng.choice(_FACTS)

    def change(forged: Manifest) -> None:
        at = forged["facts"]
        for key in place[:-1]:
            at = at[key]
        if isinstance(at, dict) and rng.random() < 0.2:
            at[str(value)] = at.pop(place[-1])
        else:
            at[place[-1]] = value

    rewrite(target, change)
    return f"fact {place}: {value!r}"


def _leaves(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if at:
        yield at
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from _leaves(child, (*at, key))


def _draw_array(manifest: Manifest, rng: random.Random) -> tuple[str, Manifest]:
    """An array that holds something."""
    arrays = {n: f for n, f in manifest["arrays"].items() if any(b and b[1] for b in f["buffers"])}
    name = rng.choice(list(arrays))
    return name, arrays[name]


Edit = Callable[[Path, Manifest, random.Random], str]
