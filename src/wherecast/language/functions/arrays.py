"""Functions of arrays and maps. An array is a Python list, with None for a NULL element; a map is a dictionary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from wherecast.language.events.keys import float_keys
from wherecast.language.events.types import FLOATS, INTEGERS, MAX_PRECISION, MOMENTS, NUMBERS, Type, common_number
from wherecast.language.events.zone import Zone
from wherecast.language.expression import Attr, Call, Node, Or, Param, Span, Subscript, digits_of
from wherecast.language.functions.row import (
    ARRAY,
    COLLECTION,
    CONDITION,
    ELEMENT,
    INT,
    MAP,
    SCALAR,
    Describe,
    Evaluate,
    Function,
    all_valid,
    common_type,
    converted,
    element_of,
    fault,
    function,
    nothing,
    retyped,
    row_by_row,
)
from wherecast.language.nullable import Nullable, filler, member_keys

if TYPE_CHECKING:
    from wherecast.language.steps import Register, Steps


def _keys(values: list[Any], array: Node) -> list[Any]:
    """Elements as what Spark's equality and order of them is that of, as `member_keys` has them."""
    element = element_of(array)
    if element is Type.DECIMAL:
        unit = 10 ** (MAX_PRECISION - digits_of(array)[1])
        return [value * unit for value in values]
    return float_keys(np.array(values, np.float64)).tolist() if element in FLOATS else values


# -- what may be looked for -------------------------------------------------------------------------------------------


def _sought(name: str, args: tuple[Node, ...], describe: Describe) -> tuple[Node, Node]:
    """An array and a value, which has the type of its elements."""
    array, value = args
    element = element_of(array)
    if value.type is Type.NULL:
        raise fault(f"{name}(..., NULL) is never true; test IS NULL instead", value.span)
    if element is Type.FLOAT and value.type in NUMBERS:
        # Here, and only here, Spark makes an integer a FLOAT; a decimal is compared as a double.
        kind = Type.DOUBLE if value.type is Type.DECIMAL else Type.FLOAT if value.type in INTEGERS else value.type
        return array, retyped(value, kind)
    is_alike = value.type is element or (element in INTEGERS and value.type in INTEGERS)
    if not is_alike and _common(element, value) is not element:
        hint = " (quote the literal: '...')" if element is Type.STRING and isinstance(value, Param) else ""
        raise fault(f"{name} needs a value of type {element}, found {describe(value)}{hint}", value.span)
    return array, retyped(value, element)


def _common(element: Type, value: Node) -> Type | None:
    if element in NUMBERS and value.type in NUMBERS:
        return common_number(element, value.type)
    if element in MOMENTS and value.type in MOMENTS:
        return max(element, value.type, key=MOMENTS.index)
    is_text = isinstance(value, Param) and value.type is Type.STRING
    return element if is_text and element in MOMENTS else None


def _build_contains(args: tuple[Node, ...], span: Span, describe: Describe) -> Node:
    array, value = args
    if isinstance(array, Call) and array.name == "map_keys":
        return _build_contains_key((array.args[0], value), span, describe)
    return Call(name="array_contains", args=_sought("array_contains", args, describe), span=span)


def _contains(call: Call, args: Sequence[Nullable], zone: Zone) -> Nullable:
    valid = all_valid(args)
    found, known, element = np.zeros(valid.size, bool), valid.copy(), element_of(call.args[0])
    wanted = member_keys(call.args[1], args[1], element, zone)
    for i in np.flatnonzero(valid).tolist():
        items = args[0].values[i]
        present = [v for v in items if v is not None]
        found[i] = wanted[i] in _keys(present, call.args[0])
        known[i] = found[i] or len(present) == len(items)
    return Nullable(found, known)


def _build_position(args: tuple[Node, ...], span: Span, describe: Describe) -> Node:
    return Call(name="array_position", args=_sought("array_position", args, describe), type=Type.BIGINT, span=span)


def _position(call: Call, args: Sequence[Nullable], zone: Zone) -> Nullable:
    valid, element = all_valid(args), element_of(call.args[0])
    out = np.zeros(valid.size, np.int64)
    wanted = member_keys(call.args[1], args[1], element, zone)
    for i in np.flatnonzero(valid).tolist():
        places = [
            n for n, v in enumerate(args[0].values[i], 1) if v is not None and _keys([v], call.args[0])[0] == wanted[i]
        ]
        out[i] = places[0] if places else 0
    return Nullable(out, valid)


def _build_overlap(args: tuple[Node, ...], span: Span, describe: Describe) -> Node:
    """Against a list of literals, it is whether the array contains one of them."""
    array, other = args if not isinstance(args[0], Call) else args[::-1]
    if element_of(array) is not element_of(other) and not isinstance(other, Call):
        raise fault(f"arrays_overlap needs two arrays of one type, found {describe(array)} and {describe(other)}", span)
    if isinstance(array, Attr) and isinstance(other, Call) and all(isinstance(v, Param) for v in other.args):
        tests = tuple(_build_contains((array, value), span, describe) for value in other.args)
        return Or(items=tests, span=span) if len(tests) > 1 else tests[0]
    if element_of(array) is not element_of(other):
        raise fault(f"arrays_overlap needs two arrays of one type, found {describe(array)} and {describe(other)}", span)
    return Call(name="arrays_overlap", args=args, span=span)


def _overlap(call: Call, args: Sequence[Nullable], _zone: Zone) -> Nullable:
    valid = all_valid(args)
    found, known = np.zeros(valid.size, bool), valid.copy()
    for i in np.flatnonzero(valid).tolist():
        a, b = args[0].values[i], args[1].values[i]
        left, right = ([v for v in items if v is not None] for items in (a, b))
        found[i] = not set(_keys(left, call.args[0])).isdisjoint(_keys(right, call.args[1]))
        has_null = len(left) < len(a) or len(right) < len(b)
        known[i] = found[i] or not (a and b and has_null)
    return Nullable(found, known)


# -- elements ---------------------------------------------------------------------------------------------------------


def _of_element(name: str) -> Any:
    def build(args: tuple[Node, ...], span: Span, _describe: Describe) -> Node:
        kind = element_of(args[0])
        digits = digits_of(args[0]) if kind is Type.DECIMAL else (0, 0)
        return Call(name=name, args=args, type=kind, digits=digits, span=span)

    return build


def _element_at(items: list[Any], number: int) -> Any:
    if number == 0 or abs(number) > len(items):
        return None
    return items[number - 1 if number > 0 else number]


def _get(items: list[Any], number: int) -> Any:
    return items[number] if 0 <= number < len(items) else None


def _size(call: Call, args: Sequence[Nullable], zone: Zone) -> Nullable:
    lists = args[0].lists
    return row_by_row(len)(call, args, zone) if lists is None else Nullable(lists.sizes, args[0].valid)


def _size_steps(steps: Steps, call: Call) -> Register:
    array = call.args[0]
    return steps.size(array) if isinstance(array, Attr) else steps.refuse()


def _by_number(one: Callable[[list[Any], int], Any], first: int) -> Evaluate:
    """The element of a number; that of the first one is 0, and none is negative, or it is 1."""
    one_by_one = row_by_row(one)

    def evaluate(call: Call, args: Sequence[Nullable], zone: Zone) -> Nullable:
        lists, number = args[0].lists, args[1]
        if lists is None or lists.keys is not None or not number.is_constant:
            return one_by_one(call, args, zone)
        place = int(number.values[0])
        if place < 0 if first == 0 else place == 0:
            return nothing(call.type, args[0].valid.size)
        return lists.at(place - first if place > 0 else place)

    return evaluate


def _extreme(is_least: bool) -> Any:
    def evaluate(call: Call, args: Sequence[Nullable], _zone: Zone) -> Nullable:
        valid, out = args[0].valid.copy(), filler(call.type, args[0].valid.size)
        for i in np.flatnonzero(valid).tolist():
            present = [v for v in args[0].values[i] if v is not None]
            if present:
                keys = _keys(present, call.args[0])
                out[i] = present[keys.index(min(keys) if is_least else max(keys))]
            else:
                valid[i] = False
        return Nullable(out, valid)

    return evaluate


def _build_array(args: tuple[Node, ...], span: Span, describe: Describe) -> Node:
    kind, digits = common_type(args, describe)
    if kind in (Type.DECIMAL, Type.NULL):
        raise fault(
            "an array of decimals or of NULLs alone is not supported; write 1.5D for a double", span, "unsupported"
        )
    return Call(
        name="array",
        args=tuple(retyped(a, kind) for a in args),
        type=Type.ARRAY,
        element=kind,
        digits=digits,
        span=span,
    )


def _array(call: Call, args: Sequence[Nullable], zone: Zone) -> Nullable:
    read = [converted(n, arg, call.element, (0, 0), zone) for n, arg in zip(call.args, args, strict=True)]
    out = filler(Type.ARRAY, read[0].valid.size)
    for i in range(out.size):
        out[i] = [r.values[i : i + 1].tolist()[0] if r.valid[i] else None for r in read]
    return Nullable(out, np.ones(out.size, bool))


def _join(call: Call, args: Sequence[Nullable], zone: Zone) -> Nullable:
    def joined(items: list[Any], mark: str, null: str | None = None) -> str:
        return mark.join(null if v is None else v for v in items if v is not None or null is not None)  # type: ignore[misc]

    return row_by_row(joined)(call, args, zone)


def _build_join(args: tuple[Node, ...], span: Span, describe: Describe) -> Node:
    if element_of(args[0]) is not Type.STRING:
        raise fault(f"array_join needs an array of strings, found {describe(args[0])}", args[0].span)
    for arg in args[1:]:
        if arg.type is not Type.STRING:
            raise fault(f"array_join needs a string, found {describe(arg)}", arg.span)
    return Call(name="array_join", args=args, type=Type.STRING, span=span)


# -- arrays of arrays --------------------------------------------------------------------------------------------------


def _of_arrays(name: str) -> Any:
    """A function that gives an array of the type of its first argument; a second array must have it, too."""

    def build(args: tuple[Node, ...], span: Span, describe: Describe) -> Node:
        array, *others = args
        for other in others:
            if other.type is Type.ARRAY and element_of(other) is not element_of(array):
                raise fault(f"{name} needs arrays of one type, found {describe(array)} and {describe(other)}", span)
        kind = element_of(array)
        digits = digits_of(array) if kind is Type.DECIMAL else (0, 0)
        return Call(name=name, args=args, type=Type.ARRAY, element=kind, digits=digits, span=span)

    return build


def _marks(items: list[Any], array: Node) -> list[Any]:
    """The keys of elements; NULL has one, too."""
    keys = iter(_keys([v for v in items if v is not None], array))
    return [None if v is None else (next(keys),) for v in items]


def _chosen(choose: Callable[..., bool]) -> Any:
    """The distinct elements of the first array, or of both, for which `choose` holds, given the marks of both."""

    def evaluate(call: Call, args: Sequence[Nullable], _zone: Zone) -> Nullable:
        valid = all_valid(args)
        out = filler(Type.ARRAY, valid.size)
        for i in np.flatnonzero(valid).tolist():
            lists = [arg.values[i] for arg in args]
            marks = [_marks(items, node) for items, node in zip(lists, call.args, strict=True)]
            known = [set(own) for own in marks]
            pool = zip(chain(*marks), chain(*lists), strict=True)
            found: dict[Any, Any] = {}
            for mark, value in pool:
                if mark not in found and choose(mark, *known):
                    found[mark] = value
            out[i] = list(found.values())
        return Nullable(out, valid)

    return evaluate


def _build_remove(args: tuple[Node, ...], span: Span, describe: Describe) -> Node:
    array, value = _sought("array_remove", args, describe)
    return _of_arrays("array_remove")((array, value), span, describe)  # type: ignore[no-any-return]


def _remove(call: Call, args: Sequence[Nullable], zone: Zone) -> Nullable:
    valid, out = all_valid(args), filler(Type.ARRAY, args[0].valid.size)
    wanted = member_keys(call.args[1], args[1], element_of(call.args[0]), zone)
    for i in np.flatnonzero(valid).tolist():
        items = args[0].values[i]
        pairs = zip(items, _marks(items, call.args[0]), strict=True)
        out[i] = [v for v, mark in pairs if mark != (wanted[i],)]
    return Nullable(out, valid)


def _slice(items: list[Any], start: int, count: int) -> list[Any] | None:
    if start == 0 or count < 0:
        return None
    first = start - 1 if start > 0 else len(items) + start
    return items[first : first + count] if first >= 0 else []


def _sort(call: Call, args: Sequence[Nullable], _zone: Zone) -> Nullable:
    """NULLs are the least."""
    valid, out = all_valid(args), filler(Type.ARRAY, args[0].valid.size)
    for i in np.flatnonzero(valid).tolist():
        items = args[0].values[i]
        there = [v for v in items if v is not None]
        order = sorted(range(len(there)), key=_keys(there, call.args[0]).__getitem__)
        ascending = [None] * (len(items) - len(there)) + [there[n] for n in order]
        out[i] = ascending if len(args) < 2 or args[1].values[i] else ascending[::-1]
    return Nullable(out, valid)


# -- maps -------------------------------------------------------------------------------------------------------------


def _key(name: str, of: Node, key: Node, describe: Describe) -> Node:
    """A key as the type that the keys of a map have."""
    assert isinstance(of, Attr), "only attributes are maps"
    is_text = isinstance(key, Param) and key.type is Type.STRING and of.key in MOMENTS
    is_integer = key.type in INTEGERS and of.key in INTEGERS
    # A literal is looked for among the keys, however large; to get at a value, Spark wants a key that cannot be too large.
    is_sought = name == "map_contains_key" and isinstance(key, Param)
    is_integer = is_integer and (is_sought or INTEGERS.index(key.type) <= INTEGERS.index(of.key))
    if not (key.type in (of.key, Type.NULL) or is_text or is_integer):
        hint = " (quote the literal: '...')" if of.key is Type.STRING and isinstance(key, Param) else ""
        raise fault(f"{name} needs a key of type {of.key}, found {describe(key)}{hint}", key.span)
    return retyped(key, of.key)


def value_of_key(of: Node, key: Node, span: Span, describe: Describe) -> Node:
    """`m['key']`: NULL where the map does not have the key."""
    assert isinstance(of, Attr), "only attributes are maps"
    return Subscript(array=of, index=_key("[...]", of, key, describe), type=of.element, digits=of.digits, span=span)


def _build_element_at(args: tuple[Node, ...], span: Span, describe: Describe) -> Node:
    array, number = args
    if array.type is Type.MAP:
        return value_of_key(array, number, span, describe)
    if number.type not in (*INT.types, Type.NULL):
        raise fault(f"element_at needs an int, found {describe(number)}", number.span)
    return _of_element("element_at")(args, span, describe)  # type: ignore[no-any-return]


def _build_contains_key(args: tuple[Node, ...], span: Span, describe: Describe) -> Node:
    of, key = args
    if key.type is Type.NULL:
        raise fault("a map has no NULL key; test IS NULL instead", key.span)
    return Call(name="map_contains_key", args=(of, _key("map_contains_key", of, key, describe)), span=span)


def _build_keys(args: tuple[Node, ...], span: Span, _describe: Describe) -> Node:
    assert isinstance(args[0], Attr), "only attributes are maps"
    return Call(name="map_keys", args=args, type=Type.ARRAY, element=args[0].key, span=span)


def _build_values(args: tuple[Node, ...], span: Span, _describe: Describe) -> Node:
    assert isinstance(args[0], Attr), "only attributes are maps"
    of = args[0]
    return Call(name="map_values", args=args, type=Type.ARRAY, element=of.element, digits=of.digits, span=span)


ARRAY_FUNCTIONS: tuple[Function, ...] = (
    function(
        "array_contains",
        "a, v",
        ARRAY,
        ELEMENT,
        evaluate=_contains,
        build=_build_contains,
        says="unknown if `v` is not found and the array holds NULL",
        example="array_contains(tags, 'news')",
    ),
    function(
        "arrays_overlap",
        "a, b",
        ARRAY,
        ARRAY,
        evaluate=_overlap,
        build=_build_overlap,
        says="whether they share an element; unknown if not and one holds NULL",
        example="arrays_overlap(tags, array('news', 'sports'))",
    ),
    function(
        "array",
        "v[, ...]",
        SCALAR,
        evaluate=_array,
        build=_build_array,
        is_strict=False,
        says="an array of these values",
        example="array_contains(array('IBM', 'SAP'), symbol)",
    ),
    function(
        "size",
        "a",
        COLLECTION,
        result=Type.INT,
        evaluate=_size,
        steps=_size_steps,
        aliases=("cardinality",),
        says="of an array or a map; NULL for NULL",
        example="size(tags) > 1",
    ),
    function(
        "array_size",
        "a",
        ARRAY,
        result=Type.INT,
        evaluate=_size,
        steps=_size_steps,
        says="NULL for a NULL array",
        example="array_size(tags) > 1",
    ),
    function(
        "element_at",
        "a, number",
        COLLECTION,
        SCALAR,
        evaluate=_by_number(_element_at, first=1),
        build=_build_element_at,
        aliases=("try_element_at",),
        says="counted from 1, or from the end if negative; of a map, the value of a key; NULL if there is none",
        example="element_at(tags, -1) = 'news'",
    ),
    function(
        "map_contains_key",
        "m, key",
        MAP,
        ELEMENT,
        evaluate=row_by_row(lambda items, key: key in items),
        build=_build_contains_key,
        says="whether a map has a key",
        example="map_contains_key(labels, 'team')",
    ),
    function(
        "map_keys",
        "m",
        MAP,
        evaluate=row_by_row(list),
        build=_build_keys,
        says="the keys of a map, in their order there",
        example="size(map_keys(labels)) > 1",
    ),
    function(
        "map_values",
        "m",
        MAP,
        evaluate=row_by_row(lambda items: list(items.values())),
        build=_build_values,
        says="the values of a map, in the order of its keys",
        example="array_contains(map_values(labels), 'core')",
    ),
    function(
        "get",
        "a, number",
        ARRAY,
        INT,
        evaluate=_by_number(_get, first=0),
        build=_of_element("get"),
        says="counted from 0; NULL if there is none",
        example="get(tags, 0) = 'news'",
    ),
    function(
        "array_position",
        "a, v",
        ARRAY,
        ELEMENT,
        evaluate=_position,
        build=_build_position,
        says="where `v` first stands, counted from 1; 0 if it does not",
        example="array_position(tags, 'news') = 1",
    ),
    function(
        "array_min",
        "a",
        ARRAY,
        evaluate=_extreme(True),
        build=_of_element("array_min"),
        says="NULL elements do not count",
        example="array_min(sizes) < 3",
    ),
    function(
        "array_max",
        "a",
        ARRAY,
        evaluate=_extreme(False),
        build=_of_element("array_max"),
        says="NULL elements do not count",
        example="array_max(sizes) > 3",
    ),
    function(
        "array_distinct",
        "a",
        ARRAY,
        evaluate=_chosen(lambda _mark, _own: True),
        build=_of_arrays("array_distinct"),
        says="each element once",
        example="size(array_distinct(tags)) = 2",
    ),
    function(
        "array_union",
        "a, b",
        ARRAY,
        ARRAY,
        evaluate=_chosen(lambda _mark, _own, _other: True),
        build=_of_arrays("array_union"),
        says="the elements of both, each once",
        example="size(array_union(tags, array('news'))) = 2",
    ),
    function(
        "array_intersect",
        "a, b",
        ARRAY,
        ARRAY,
        evaluate=_chosen(lambda mark, own, other: mark in own and mark in other),
        build=_of_arrays("array_intersect"),
        says="the elements that are in both, each once",
        example="size(array_intersect(tags, array('news', 'sports'))) = 2",
    ),
    function(
        "array_except",
        "a, b",
        ARRAY,
        ARRAY,
        evaluate=_chosen(lambda mark, own, other: mark in own and mark not in other),
        build=_of_arrays("array_except"),
        says="the elements of `a` that are not in `b`, each once",
        example="size(array_except(tags, array('news'))) = 0",
    ),
    function(
        "array_remove",
        "a, v",
        ARRAY,
        ELEMENT,
        evaluate=_remove,
        build=_build_remove,
        says="without the elements that are `v`",
        example="size(array_remove(tags, 'news')) = 1",
    ),
    function(
        "array_compact",
        "a",
        ARRAY,
        evaluate=row_by_row(lambda items: [v for v in items if v is not None]),
        build=_of_arrays("array_compact"),
        says="without NULLs",
        example="size(array_compact(tags)) = 1",
    ),
    function(
        "slice",
        "a, start, count",
        ARRAY,
        INT,
        INT,
        evaluate=row_by_row(_slice),
        build=_of_arrays("slice"),
        says="`count` elements from number `start` on, which is counted from the end if negative; NULL for number 0",
        example="array_contains(slice(tags, 1, 2), 'news')",
    ),
    function(
        "sort_array",
        "a[, ascending]",
        ARRAY,
        CONDITION,
        evaluate=_sort,
        build=_of_arrays("sort_array"),
        says="in order, NULLs first; or in descending order",
        example="sort_array(tags)[0] = 'news'",
    ),
    function(
        "array_join",
        "a, mark[, null]",
        ARRAY,
        SCALAR,
        SCALAR,
        evaluate=_join,
        build=_build_join,
        says="the texts with the mark between them; NULLs are left out unless there is a text for them",
        example="array_join(tags, ',') = 'news,sports'",
    ),
)
