"""Residual programs in a snapshot: as SQL, read back through the same door as a filter.

A program is stored as one JSON text with its length and its residuals: what must hold (`Truth`), the SQL of the expression
and its literals. In the SQL, as in the shape of a filter, a literal is a placeholder: its number, in quotes where a text
stands. The literals tell, by number, the slot, the type, the decimal digits and, for a LIKE pattern, its form. A comparison
that was part of an IN list may be made in a wider type than its two sides ask for; such types stand beside the text.
Opening parses and checks that text against the schema again; nothing is unpickled, and what no filter can say no stored
program can.

Literals follow from the expressions, so their names are not stored. They lie one after the other, program by program, in
the order of `_literal_keys`, in one array per kind: `ints`, `floats`, `vectors`, `texts` and `decimals` (in decimal digits). The
literals of an IN list are the number of members of each row, in `sizes`, and the members themselves.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from itertools import count, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wherecast.errors import FilterError, SnapshotError
from wherecast.index.arrow_file import StoredArray, is_count
from wherecast.index.snapshot import Json
from wherecast.language.casts import cast
from wherecast.language.events.attributes import MAX_VECTOR
from wherecast.language.events.schema import Schema
from wherecast.language.events.types import FLOATS, MAX_PRECISION, MOMENTS, NUMBERS, Digits, Type
from wherecast.language.events.zone import UTC
from wherecast.language.expression import Compare, InList, IntervalLiteral, Like, Negate, Node, Param
from wherecast.language.filters.filters import LiteralValues, Program
from wherecast.language.filters.normalize import Residual, Truth
from wherecast.language.filters.render import render
from wherecast.language.intervals import read_amount
from wherecast.language.nullable import Nullable, decimal_scale
from wherecast.language.syntax.java_regex import rlike_regex
from wherecast.language.syntax.limits import Limits
from wherecast.language.syntax.parser import parse_shape
from wherecast.language.syntax.patterns import like_parts
from wherecast.language.syntax.skeletons import Shape
from wherecast.language.syntax.sql import Checker, SlotKind

#: Every compound operand of a stored text stands in parentheses, and what BETWEEN says once it says twice.
_LIMITS = Limits(depth=2 * Limits().depth + 2, terms=1_000_000, regexes=1_000_000)
_TEXTUAL = {Type.STRING: "", Type.BINARY: "X", **{kind: f"{kind.upper()} " for kind in MOMENTS}}
_QUOTED = frozenset({*_TEXTUAL, Type.VECTOR})
#: Placeholders; names in backticks and the digits of a type are not.
_MARK = re.compile(r"`(?:[^`]|``)*+`|DECIMAL\([0-9]+, [0-9]+\)|'([0-9]{1,6})'|(?<!\w)([0-9]{1,6})(?!\w)")
_DECIMAL = re.compile(r"-?[0-9]{1,100}")
_FORMS = ("general", "exact", "prefix", "any", "suffix", "infix", "pieces", "prefixed", "folded")
_DTYPES = {"ints": np.dtype(np.int64), "floats": np.dtype(np.float64), "sizes": np.dtype(np.int64)}
#: The numbers of vectors; only snapshots that have some have the array.
_VECTORS = "vectors"
_TEXTS = ("texts", "decimals")

LiteralKey = Param | tuple[Param, Type]


class _Literal(NamedTuple):
    """What a placeholder stands for."""

    slot: int
    type: Type
    digits: Digits
    form: str  # of a LIKE pattern


def pack_programs(programs: list[Program], schema: Schema) -> tuple[dict[str, Json], dict[str, StoredArray]]:
    """Programs as facts and arrays, for `unpack_programs`.

    Raises:
        SnapshotError: an expression would not come back as it is.
    """
    reader = _Reader(schema)
    texts = []
    pools: dict[str, list[Any]] = {kind: [] for kind in (*_DTYPES, _VECTORS, *_TEXTS)}
    for program in programs:
        written = [_write_residual(residual, schema, reader) for residual in program.residuals]
        texts.append(json.dumps({"length": program.length, "rests": written}))
        keys = _literal_keys(program.residuals)
        if set(keys) != set(program.literals):
            raise SnapshotError(
                f"program {len(texts) - 1}: its literals are not those of its residuals; nothing was saved"
            )
        for key in keys:
            _pack_literals(key, program.literals[key], pools)
    arrays: dict[str, StoredArray] = {"programs": pa.array(texts, pa.large_string())}
    for kind, dtype in _DTYPES.items():
        arrays[kind] = np.concatenate([np.zeros(0, dtype), *pools[kind]]).astype(dtype)
    if pools[_VECTORS]:
        arrays[_VECTORS] = np.concatenate(pools[_VECTORS])
    arrays |= {kind: pa.array([t for part in pools[kind] for t in part], pa.large_string()) for kind in _TEXTS}
    return {"programs": len(programs)}, arrays


def unpack_programs(facts: Mapping[str, Any], arrays: Mapping[str, StoredArray], schema: Schema) -> list[Program]:
    """The programs that were packed. Numbers are views of the arrays; texts and lists are made anew.

    Raises:
        SnapshotError: the parts do not fit together, or an expression is none of this schema.
    """
    reader, pools = _Reader(schema), _Pools(arrays)
    texts = _texts_of("programs", arrays)
    if facts.get("programs") != len(texts):
        raise SnapshotError(f"{len(texts)} residual programs instead of {facts.get('programs')!r:.20}; {_REMEDY}")
    programs = []
    for number, text in enumerate(texts):
        try:
            length, residuals = _read_program(text, reader)
            literals: LiteralValues = {key: pools.literals(key, length) for key in _literal_keys(residuals)}
            _check_patterns(residuals, literals)
            _check_amounts(residuals, literals)
        except (FilterError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise SnapshotError(f"residual program {number} cannot be read: {error!s:.200}; {_REMEDY}") from None
        programs.append(Program(residuals, literals, length))
    pools.check_used_up()
    return programs


_REMEDY = "the snapshot is damaged or of another schema: restore it or save anew"


# -- expressions ------------------------------------------------------------------------------------------------------


def _write_residual(residual: Residual, schema: Schema, reader: _Reader) -> dict[str, Json]:
    """A residual in words, after a look whether it comes back."""
    forms = {id(n.pattern): n.form for n in residual.node.walk() if isinstance(n, Like)}
    # A sign right before a literal would become a part of it.
    apart = {id(n.item) for n in residual.node.walk() if isinstance(n, Negate)}
    numbers: dict[tuple[_Literal, bool], int] = {}

    def name(index: int) -> str:
        return ".".join("`" + part.replace("`", "``") + "`" for part in schema.attributes[index].path)

    def placeholder(param: Param) -> str:
        known = _Literal(param.slot, param.type, param.digits, forms.get(id(param), "general"))
        number = numbers.setdefault((known, param.negative), len(numbers))
        mark = f"{_TEXTUAL[param.type]}'{number}'" if param.type in _TEXTUAL else str(number)
        mark = f"ARRAY('{number}')" if param.type is Type.VECTOR else mark
        mark = f"-{mark}" if param.negative else mark
        return f"({mark})" if id(param) in apart else mark

    text = render(residual.node, name, placeholder)
    literals = tuple(literal for literal, _ in numbers)
    try:
        pairs = zip(_compares(reader.expression(text, literals)), _compares(residual.node), strict=False)
        wider = tuple((i, want.common) for i, (got, want) in enumerate(pairs) if got.common is not want.common)
        written: dict[str, Json] = {
            "truth": str(residual.truth),
            "is_whole": residual.is_whole,
            "sql": text,
            "literals": [[x.slot, str(x.type), *x.digits, x.form] for x in literals],
            "wider": [[i, str(kind)] for i, kind in wider],
        }
        same = _read_residual(written, reader) == residual
    except (FilterError, ValueError) as error:
        raise SnapshotError(f"the residual {text!r:.200} cannot be stored: {error}; nothing was saved") from None
    if not same:
        raise SnapshotError(
            f"the residual {text!r:.200} cannot be stored: it reads back differently; nothing was saved"
        )
    return written


def _read_program(text: str, reader: _Reader) -> tuple[int, tuple[Residual, ...]]:
    written = json.loads(text)
    length = written["length"]
    if not is_count(length) or length >= 2**31:
        raise ValueError(f"{length!r:.20} is not a number of rows")
    return length, tuple(_read_residual(residual, reader) for residual in written["rests"])


def _read_residual(written: dict[str, Any], reader: _Reader) -> Residual:
    sql, is_whole = written["sql"], written["is_whole"]
    if not isinstance(sql, str) or not isinstance(is_whole, bool):
        raise TypeError("an expression is not a text, or not known to be whole")
    literals = tuple(map(_read_literal, written["literals"]))
    wider = tuple((i, Type(kind)) for i, kind in written["wider"])
    return Residual(reader.expression(sql, literals, wider), Truth(written["truth"]), is_whole)


def _read_literal(written: list[Any]) -> _Literal:
    slot, kind, precision, scale, form = written
    most = MAX_VECTOR if kind == Type.VECTOR else MAX_PRECISION
    digits_fit = is_count(precision) and is_count(scale) and max(precision, scale) <= most
    if not is_count(slot) or slot >= 2**31 or not digits_fit or form not in _FORMS:
        raise ValueError(f"{written!r:.60} is not a literal")
    return _Literal(slot, Type(kind), (precision, scale), form)


class _Reader:
    """Stored texts to expressions of one schema; equal texts are read once."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._known: dict[tuple[object, ...], Node] = {}

    def expression(self, text: str, literals: tuple[_Literal, ...], wider: tuple[tuple[int, Type], ...] = ()) -> Node:
        """Raises FilterError for text that is not a filter of the schema, ValueError for literals and types that do not fit."""
        found = self._known.get((text, literals, wider))
        if found is None:
            found = _restored(self._parsed(text, literals), literals, dict(wider), count())
            self._known[text, literals, wider] = found
        return found

    def _parsed(self, text: str, literals: tuple[_Literal, ...]) -> Node:
        marks = [(m[1] or m[2], m.span()) for m in _MARK.finditer(text) if m.lastindex]
        if any(int(number) >= len(literals) for number, _ in marks):
            raise ValueError(f"{text!r:.100} has more literals than the {len(literals)} that are described")
        tree = parse_shape(Shape(text, tuple(span for _, span in marks)), _LIMITS)
        kinds = tuple(SlotKind(Type.STRING if x.type in _QUOTED else x.type, x.digits) for x in literals)
        return Checker(self._schema, kinds, text, _LIMITS).condition(tree)


def _compares(node: Node) -> Iterator[Compare]:
    """The comparisons of an expression, in the order in which `_restored` meets them."""
    if isinstance(node, Compare):
        yield node
    for child in node.children():
        yield from _compares(child)


def _restored(node: Node, literals: tuple[_Literal, ...], wider: dict[int, Type], compares: Iterator[int]) -> Node:
    """The slots and forms that the placeholders stand for, and the types of comparisons by their number."""
    if isinstance(node, Param):
        return replace(node, slot=literals[node.slot].slot)
    changes: dict[str, Any] = {}
    if isinstance(node, Compare):
        changes["common"] = common = wider.get(next(compares), node.common)
        if not _is_wider(common, node.common):
            raise ValueError(f"a comparison of type {node.common} cannot be made as {common}")
    for field in fields(node):
        value = getattr(node, field.name)
        if isinstance(value, Node):
            changes[field.name] = _restored(value, literals, wider, compares)
        elif isinstance(value, tuple) and value and isinstance(value[0], Node):
            changes[field.name] = tuple(_restored(v, literals, wider, compares) for v in value)
    if isinstance(node, Like):
        changes["form"] = literals[node.pattern.slot].form
    return replace(node, **changes)


def _is_wider(wide: Type, narrow: Type) -> bool:
    if wide in NUMBERS and narrow in NUMBERS:
        return NUMBERS.index(wide) >= NUMBERS.index(narrow)
    if wide in MOMENTS and narrow in MOMENTS:
        return MOMENTS.index(wide) >= MOMENTS.index(narrow)
    return wide is narrow or narrow is Type.NULL


def _check_patterns(residuals: tuple[Residual, ...], literals: LiteralValues) -> None:
    """Patterns were checked when their filters were registered; those of a file are checked again."""
    for like in (n for residual in residuals for n in residual.node.walk() if isinstance(n, Like)):
        for pattern in set(literals[like.pattern].tolist()):
            if like.kind == "rlike":
                rlike_regex(pattern)
            elif "\\" in pattern:
                like_parts(pattern)


def _check_amounts(residuals: tuple[Residual, ...], literals: LiteralValues) -> None:
    """The same for the amounts of intervals."""
    nodes = (n for residual in residuals for n in residual.node.walk() if isinstance(n, IntervalLiteral))
    for node in nodes:
        for amount, unit in zip(node.amounts, node.units, strict=True):
            values = literals[amount]
            scale = decimal_scale(amount)
            operand = Nullable(values, np.ones(values.size, bool))
            texts = cast(operand, amount.type, scale, Type.STRING, (0, 0), UTC).values
            for text in set(texts.tolist()):
                read_amount(unit, text)


# -- literals ---------------------------------------------------------------------------------------------------------


def _literal_keys(residuals: tuple[Residual, ...]) -> list[LiteralKey]:
    """The literals that evaluating residuals needs, in an order that depends on the expressions alone."""
    keys: dict[LiteralKey, None] = {}
    for residual in residuals:
        nodes = list(residual.node.walk())
        listed = {id(v) for n in nodes if isinstance(n, InList) for v in n.values}
        for node in nodes:
            if isinstance(node, InList):
                keys |= dict.fromkeys((value, node.common) for value in node.values)
            elif isinstance(node, Param) and id(node) not in listed:
                keys[node] = None
    return list(keys)


def _kind_of(key: LiteralKey) -> str:
    """Which array holds the values of a literal; the members of a list of doubles are their keys."""
    is_list, kind = (True, key[1]) if isinstance(key, tuple) else (False, key.type)
    if kind is Type.VECTOR:
        return _VECTORS
    if kind in FLOATS:
        return "ints" if is_list else "floats"
    return {Type.STRING: "texts", Type.BINARY: "texts", Type.DECIMAL: "decimals"}.get(kind, "ints")


def _pack_literals(key: LiteralKey, found: npt.NDArray[Any], pools: dict[str, list[Any]]) -> None:
    kind = _kind_of(key)
    if kind == _VECTORS:
        pools[kind].append(found.ravel())
        return
    values: Any = found
    if isinstance(key, tuple):
        rows = [sorted(row) for row in found]
        pools["sizes"].append(np.array([len(row) for row in rows], np.int64))
        values = [value for row in rows for value in row]
    if kind in _DTYPES:
        pools[kind].append(np.asarray(values, _DTYPES[kind]))
    else:
        pools[kind].append([str(value) for value in values])


_NO_VECTORS = np.zeros(0, np.float32)


class _Pools:
    """The arrays of all literals, taken from front to back."""

    def __init__(self, arrays: Mapping[str, StoredArray]) -> None:
        self._pools: dict[str, Any] = {kind: _numbers_of(kind, dtype, arrays) for kind, dtype in _DTYPES.items()}
        self._pools |= {kind: _texts_of(kind, arrays) for kind in _TEXTS}
        has_vectors = _VECTORS in arrays
        self._pools[_VECTORS] = _numbers_of(_VECTORS, np.dtype(np.float32), arrays) if has_vectors else _NO_VECTORS
        self._at = dict.fromkeys(self._pools, 0)

    def literals(self, key: LiteralKey, length: int) -> npt.NDArray[Any]:
        """The next literal, one value per row; ValueError if there is not so much left."""
        kind = _kind_of(key)
        if kind == _VECTORS and isinstance(key, Param):
            vectors: npt.NDArray[Any] = self._take(kind, length * key.digits[0]).reshape(length, key.digits[0])
            if not (np.isfinite(vectors).all() and vectors.any(axis=1).all()):
                raise ValueError("a vector is zero, or has a number that is not finite")
            return vectors
        if not isinstance(key, tuple):
            values = self._take(kind, length)
            return values if isinstance(values, np.ndarray) else _objects(_plain(kind, values), length)
        sizes = self._take("sizes", length)
        total = float(sizes.sum(dtype=np.float64))
        if not (sizes >= 0).all() or total > len(self._pools[kind]):
            raise ValueError("an IN list has more members than are there")
        members = self._take(kind, int(total))
        plain = members.tolist() if isinstance(members, np.ndarray) else list(_plain(kind, members))
        ends = np.concatenate(([0], np.cumsum(sizes))).tolist()
        return _objects((frozenset(plain[a:b]) for a, b in pairwise(ends)), length)

    def _take(self, kind: str, count: int) -> Any:
        at = self._at[kind]
        taken = self._pools[kind][at : at + count]
        if len(taken) != count:
            raise ValueError(f"{count} {kind} wanted, {len(taken)} left")
        self._at[kind] = at + count
        return taken

    def check_used_up(self) -> None:
        for kind, pool in self._pools.items():
            if self._at[kind] != len(pool):
                raise SnapshotError(f"{len(pool) - self._at[kind]} {kind} belong to no residual program; {_REMEDY}")


def _plain(kind: str, texts: list[str]) -> Iterator[str | int]:
    for text in texts:
        if kind == "decimals" and not _DECIMAL.fullmatch(text):
            raise ValueError(f"{text!r:.40} is not a decimal")
        yield int(text) if kind == "decimals" else text


def _objects(values: Iterator[Any], length: int) -> npt.NDArray[np.object_]:
    return np.fromiter(values, object, length)


def _found(name: str, arrays: Mapping[str, StoredArray]) -> StoredArray:
    try:
        return arrays[name]
    except KeyError:
        raise SnapshotError(f"the array {name!r} of the residual programs is missing; {_REMEDY}") from None


def _numbers_of(name: str, dtype: np.dtype[Any], arrays: Mapping[str, StoredArray]) -> npt.NDArray[Any]:
    array = _found(name, arrays)
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.ndim != 1:
        raise SnapshotError(f"the array {name!r} of the residual programs has another type than {dtype}; {_REMEDY}")
    return array


def _texts_of(name: str, arrays: Mapping[str, StoredArray]) -> list[str]:
    array = _found(name, arrays)
    if not isinstance(array, pa.Array) or array.type != pa.large_string() or array.null_count:
        raise SnapshotError(f"the array {name!r} of the residual programs holds no texts; {_REMEDY}")
    return array.to_pylist()  # type: ignore[no-any-return]
