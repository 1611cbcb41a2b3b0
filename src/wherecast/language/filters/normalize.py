"""Normal form: an expression as a short list of clauses over sets of columns.

Theory of operation
-------------------
Three-valued logic is removed first. For an expression e and an event, "e is true", "e is false", "e is not true" and
"e is not false" are plain two-valued statements, and each is built from the same statements about e's parts: NOT swaps
true and false, "a AND b is not true" is "a is not true or b is not true", and so on. At the leaves, a comparison of an
attribute with a constant is a set of values, its falsity the complement among the values that are there, and the two
weaker statements add NULL. What asks for a literal in a text or for an element of an array is a set of elements, one of
which must be there. So after `push_truth` nothing is left but AND, OR, sets of one column and residuals (all else:
`high > low`, a function call, a negated LIKE), each residual behind the sets that it implies: a text that matches
`%a%b%` contains `a`.

Then `group_sets` unites the alternatives of one column, and `expand` multiplies out to a disjunction of clauses. Where
that would pass the limit, an OR is replaced by a cover, the hull of its alternatives, and the whole expression becomes
the residual of every clause: any filter compiles, at bounded cost.

The result depends on a filter's shape only, not on its constants: it is computed once per shape. What depends on
constants (an empty intersection, one clause inside another) is settled in `bind`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from wherecast.language.events.types import FLOATS, INTEGERS, MOMENTS, Type
from wherecast.language.expression import (
    FLIPPED,
    And,
    Arith,
    Attr,
    Call,
    CaseWhen,
    Cast,
    Compare,
    Const,
    Elapsed,
    Element,
    InList,
    IntervalLiteral,
    Invert,
    IsNull,
    IsTruth,
    Like,
    Negate,
    Node,
    Not,
    Or,
    Param,
    Quantified,
    Shift,
    Subscript,
    attributes_of,
)
from wherecast.language.filters.columns import (
    ANYWHERE,
    AT_END,
    AT_START,
    SETS_OF_CALLS,
    WHOLE,
    Column,
    Reading,
)
from wherecast.language.functions.table import FUNCTIONS


class Truth(enum.StrEnum):
    """A two-valued statement about a three-valued expression."""

    TRUE = "true"
    FALSE = "false"
    NOT_TRUE = "not true"
    NOT_FALSE = "not false"

    @property
    def of_negation(self) -> Truth:
        """What it says about e when said of NOT e."""
        return _SWAPPED[self]

    @property
    def admits_unknown(self) -> bool:
        return self in (Truth.NOT_TRUE, Truth.NOT_FALSE)


_SWAPPED = {
    Truth.TRUE: Truth.FALSE,
    Truth.FALSE: Truth.TRUE,
    Truth.NOT_TRUE: Truth.NOT_FALSE,
    Truth.NOT_FALSE: Truth.NOT_TRUE,
}


@dataclass(frozen=True, slots=True)
class Predicate:
    """A set of values of one column, or of elements of which it must have one (`is_element`).

    `op` is one of = < <= > >= in prefix contains overlaps (with literals; the last two are = and in for elements), `all`
    (every value that is there) or `true`; of one element also a lower and an upper bound, `>= <`, or none: any element.
    `complement` takes it among the values that are there; `null` adds NULL.
    """

    column: Column
    op: str
    params: tuple[Param, ...] = ()
    common: Type = Type.NULL
    complement: bool = False
    null: bool = False
    through: str = ""  # the function of the column that is compared; the set is what it maps there
    pattern: str = ""  # like, ilike or rlike: the literal is such a pattern, and means what its form says
    mark: str = ""  # where a literal must stand in the text (see `columns`), if it is not a pattern
    is_some: bool = False  # of an array: some element is in the set

    @property
    def is_full(self) -> bool:
        return self.op == "all" and not self.complement and self.null

    @property
    def is_element(self) -> bool:
        return self.op in ("contains", "overlaps") or self.is_some or self.column.reading is not Reading.VALUE


@dataclass(frozen=True, slots=True)
class Residual:
    """A residual: `node` must have the given truth. `is_whole`: it is the whole filter, and the boxes a cover of it."""

    node: Node
    truth: Truth
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class Values:
    """A union of sets of one column."""

    column: Column
    predicates: tuple[Predicate, ...]

    @property
    def is_elements(self) -> bool:
        """Whether it asks for elements, of which one must be there; either all of its predicates do or none."""
        return self.predicates[0].is_element


def _values(predicate: Predicate) -> Values:
    return Values(predicate.column, (predicate,))


@dataclass(frozen=True, slots=True)
class All:
    """A conjunction; empty: always."""

    items: tuple[Logic, ...] = ()


@dataclass(frozen=True, slots=True)
class Any_:  # noqa: N801 - the other half of All; Any is Python's
    """A disjunction; empty: never."""

    items: tuple[Logic, ...] = ()


Logic = Values | Residual | All | Any_


class Clause(NamedTuple):
    """A conjunction: the value sets of each column are intersected, the residuals all hold."""

    values: tuple[Values, ...]
    residuals: tuple[Residual, ...]


ALWAYS, NEVER = All(), Any_()


# -- pass 1: three-valued logic out, value sets in ------------------------------------------------------------------


def push_truth(node: Node, truth: Truth = Truth.TRUE) -> Logic:
    """The statement "`node` is `truth`" without NOT and without NULL logic."""
    if isinstance(node, Not):
        return push_truth(node.item, truth.of_negation)
    if isinstance(node, (And, Or)):
        # "not false" distributes over AND as "true" does; "not true" as "false" does.
        positive = truth in (Truth.TRUE, Truth.NOT_FALSE)
        items = tuple(push_truth(item, truth) for item in node.items)
        return All(items) if isinstance(node, And) == positive else Any_(items)
    if isinstance(node, Const):
        return _constant(node.value, truth)
    if isinstance(node, IsNull):
        return _is_null(node, truth)
    if isinstance(node, IsTruth):
        return _is_truth(node, truth)
    if isinstance(node, CaseWhen) and _is_simple(node):
        return _case(node, truth)
    if isinstance(node, Quantified) and not node.is_all and isinstance(node.body, Or) and truth is Truth.TRUE:
        return Any_(tuple(push_truth(replace(node, body=item), truth) for item in node.body.items))
    predicate = find_predicate(node)
    if predicate is not None and predicate.through and not FUNCTIONS[predicate.through].is_total:
        return _of_partial(node, truth)
    if predicate is not None:
        return _of_predicate(node, predicate, truth)
    return _residual(node, truth)


def _constant(value: bool | None, truth: Truth) -> Logic:
    holds = {
        Truth.TRUE: value is True,
        Truth.FALSE: value is False,
        Truth.NOT_TRUE: value is not True,
        Truth.NOT_FALSE: value is not False,
    }
    return ALWAYS if holds[truth] else NEVER


_MOST_CASES = 4


def _is_simple(node: CaseWhen) -> bool:
    """Whether a CASE that is a condition can be taken apart: each condition is repeated in the cases after it."""
    return len(node.conditions) <= _MOST_CASES and not any(
        isinstance(n, CaseWhen) for item in (*node.conditions, *node.values) for n in item.walk()
    )


def _case(node: CaseWhen, truth: Truth) -> Logic:
    """The value of one case has the truth, its condition is true and those before it are not."""
    cases: list[Logic] = []
    before: list[Logic] = []
    for condition, value in zip((*node.conditions, None), node.values, strict=True):
        here = [push_truth(condition, Truth.TRUE)] if condition is not None else []
        cases.append(All((*before, *here, push_truth(value, truth))))
        if condition is not None:
            before.append(push_truth(condition, Truth.NOT_TRUE))
    return Any_(tuple(cases))


def _is_null(node: IsNull, truth: Truth) -> Logic:
    wanted = truth in (Truth.TRUE, Truth.NOT_FALSE)
    item = node.item
    if isinstance(item, Attr):
        column = Column(item.index)
        return _values(Predicate(column, "all", complement=True, null=True) if wanted else Predicate(column, "all"))
    if item.type in (Type.BOOLEAN, Type.NULL) and not isinstance(item, Param):
        unknown = All((push_truth(item, Truth.NOT_TRUE), push_truth(item, Truth.NOT_FALSE)))
        return unknown if wanted else Any_((push_truth(item, Truth.TRUE), push_truth(item, Truth.FALSE)))
    return Residual(node, Truth.TRUE if wanted else Truth.FALSE)


def _is_truth(node: IsTruth, truth: Truth) -> Logic:
    wanted = truth in (Truth.TRUE, Truth.NOT_FALSE)
    if node.truth:
        return push_truth(node.item, Truth.TRUE if wanted else Truth.NOT_TRUE)
    return push_truth(node.item, Truth.FALSE if wanted else Truth.NOT_FALSE)


def find_predicate(node: Node) -> Predicate | None:
    """The set of values for which `node` is true, if it speaks of one column and constants only."""
    if isinstance(node, Attr) and node.type is Type.BOOLEAN:
        return Predicate(Column(node.index), "true")
    if isinstance(node, Compare):
        return _comparison_predicate(node)
    if isinstance(node, InList):
        if isinstance(node.item, Attr):
            return Predicate(Column(node.item.index), "in", node.values, node.common)
        if isinstance(node.item, Call) and _has_preimage(node.item, node.common, node.values):
            return _through(node.item, "in", node.values, node.common)
        column = literals_of(node.item)
        return None if column is None else Predicate(column, "in", node.values, node.common, mark=WHOLE)
    if isinstance(node, Quantified):
        return _element_predicate(node)
    if isinstance(node, Like):
        return _like_predicate(node)
    if isinstance(node, Call) and isinstance(node.args[-1], Param):
        return _call_predicate(node, node.args[-1])
    return None


def literals_of(node: Node, *, in_lower_case: bool = False) -> Column | None:
    """The column of the literals in a text, if it is an attribute or one in lower case."""
    while isinstance(node, Call) and (node.name == "lower" or (in_lower_case and node.name == "upper")):
        # Spark drops what is inside of lower: lower(upper(a)) is lower(a).
        node, in_lower_case = node.args[0], True
    if not isinstance(node, Attr) or node.type is not Type.STRING:
        return None
    return Column(node.index, Reading.LOWER_LITERALS if in_lower_case else Reading.LITERALS)


def _like_predicate(node: Like) -> Predicate | None:
    if isinstance(node.item, Attr) and node.form == "any":
        return Predicate(Column(node.item.index), "all")
    if isinstance(node.item, Attr) and node.kind == "like" and node.form in ("exact", "prefix"):
        op = "=" if node.form == "exact" else "prefix"
        return Predicate(Column(node.item.index), op, (node.pattern,), Type.STRING, pattern="like")
    column = literals_of(node.item, in_lower_case=node.kind == "ilike")
    if column is None or node.form not in ("exact", "prefix", "suffix", "infix"):
        return None
    return Predicate(column, "contains", (node.pattern,), Type.STRING, pattern=node.kind)


def _element_predicate(node: Quantified) -> Predicate | None:
    """`exists(a, x -> x = 1)` asks for an element, as do IN, `<` and the like, and `exists(a, x -> x BETWEEN 1 AND 5)`."""
    array, body = node.array, node.body
    if node.is_all or not isinstance(array, Attr):
        return None
    if isinstance(body, InList) and isinstance(body.item, Element) and body.common is array.element:
        return Predicate(Column(array.index), "overlaps", body.values, body.common)
    if isinstance(body, Not) and isinstance(body.item, IsNull) and isinstance(body.item.item, Element):
        return Predicate(Column(array.index), "", (), array.element, is_some=True)
    bounds = [_element_bound(item, array.element) for item in (body.items if isinstance(body, And) else (body,))]
    ops = [op for op, _ in bounds]
    if ops == ["="]:
        return Predicate(Column(array.index), "contains", (bounds[0][1],), array.element)
    if ops and all(ops) and len({op[0] for op in ops}) == len(ops) and "=" not in ops:
        bounds.sort(key=lambda bound: bound[0], reverse=True)  # the lower one first
        op, params = " ".join(op for op, _ in bounds), tuple(param for _, param in bounds)
        return Predicate(Column(array.index), op, params, array.element, is_some=True)
    return None


def _element_bound(node: Node, element: Type) -> tuple[str, Param]:
    """`x < 5` of the variable of a lambda, as an operator and a literal; without an operator if it is something else."""
    nothing = ("", Param(slot=0))
    if not isinstance(node, Compare) or node.common is not element or node.op not in ("=", "<", "<=", ">", ">="):
        return nothing
    if isinstance(node.left, Element) and isinstance(node.right, Param):
        return node.op, node.right
    if isinstance(node.right, Element) and isinstance(node.left, Param):
        return FLIPPED[node.op], node.left
    return nothing


_MARKS = {"startswith": AT_START, "endswith": AT_END, "contains": ANYWHERE}


def _call_predicate(node: Call, wanted: Param) -> Predicate | None:
    item = node.args[0]
    if isinstance(item, Attr) and node.name == "startswith":
        return Predicate(Column(item.index), "prefix", (wanted,), Type.STRING)
    if isinstance(item, Attr) and node.name == "array_contains":
        return Predicate(Column(item.index), "contains", (wanted,), item.element)
    if isinstance(item, Attr) and node.name == "map_contains_key":
        return Predicate(Column(item.index), "contains", (wanted,), item.key)
    if isinstance(item, Attr) and node.name in SETS_OF_CALLS:
        return Predicate(Column(item.index, SETS_OF_CALLS[node.name]), "contains", (wanted,), Type.STRING)
    column = literals_of(item) if node.name in _MARKS else None
    return None if column is None else Predicate(column, "contains", (wanted,), Type.STRING, mark=_MARKS[node.name])


def _comparison_predicate(node: Compare) -> Predicate | None:
    left, op, right = node.left, node.op, node.right
    if isinstance(left, (Param, Const)):
        left, op, right = right, FLIPPED[op], left
    if isinstance(right, Param) and isinstance(left, Call) and _has_preimage(left, node.common, (right,)):
        return _through(left, "=" if op in ("<=>", "<>") else op, (right,), node.common, complement=op == "<>")
    if isinstance(right, Param) and op in ("=", "<=>") and isinstance(left, Call):
        column = literals_of(left)
        return None if column is None else Predicate(column, "contains", (right,), Type.STRING, mark=WHOLE)
    if not isinstance(left, Attr) or left.type is Type.ARRAY:
        return None
    column = Column(left.index)
    if isinstance(right, Const):
        if right.value is None:
            return Predicate(column, "all", complement=True, null=True) if op == "<=>" else None
        if op in ("=", "<=>", "<>"):
            return Predicate(column, "true", complement=(right.value is False) != (op == "<>"))
        return None
    if isinstance(right, Param):
        return Predicate(column, "=" if op in ("<=>", "<>") else op, (right,), node.common, complement=op == "<>")
    return None


def _has_preimage(call: Call, common: Type, params: tuple[Param, ...]) -> bool:
    """Whether the arguments for which a call compares with literals are known sets of one attribute's values."""
    row = FUNCTIONS[call.name]
    return (
        row.preimage is not None
        and len(call.args) == 1
        and isinstance(call.args[0], Attr)
        and call.args[0].type in KEYED
        and call.type in KEYED
        and (common is call.type or {common, call.type} <= set(INTEGERS))
        and all(param.type is common or param.type in INTEGERS for param in params)
    )


def _through(
    call: Call, op: str, params: tuple[Param, ...], common: Type, *, complement: bool = False
) -> Predicate | None:
    item = call.args[0]
    assert isinstance(item, Attr)
    return Predicate(Column(item.index), op, params, common, complement=complement, through=call.name)


def _of_predicate(node: Node, predicate: Predicate, truth: Truth) -> Logic:
    if predicate.is_element and truth is not Truth.TRUE:
        # "None of these is there" is not "another one is there": leave it to the evaluator.
        return _residual(node, truth)
    never_unknown = isinstance(node, Compare) and node.op == "<=>"
    if isinstance(node, InList) and node.has_null and truth in (Truth.FALSE, Truth.NOT_FALSE):
        return NEVER if truth is Truth.FALSE else ALWAYS  # with a NULL in the list, "no" is unknown
    if truth in (Truth.FALSE, Truth.NOT_TRUE):
        predicate = replace(predicate, complement=not predicate.complement)
        null = never_unknown != predicate.null if never_unknown else truth is Truth.NOT_TRUE
    else:
        null = predicate.null if never_unknown else truth is Truth.NOT_FALSE
    return _values(replace(predicate, null=null))


#: Types whose values have keys of their own (see `keys`).
KEYED = (*INTEGERS, *FLOATS, *MOMENTS)


def _of_partial(node: Node, truth: Truth) -> Logic:
    """A comparison of a function that may be NULL where its argument is not: the complement says too much."""
    node, truth = plain_truth(node, truth)
    predicate = find_predicate(node)
    assert predicate is not None
    return _values(predicate) if truth is Truth.TRUE and not predicate.complement else _residual(node, truth)


_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def plain_truth(node: Node, truth: Truth) -> tuple[Node, Truth]:
    """The same statement in the one of its forms that others are compared by: `a < b` is false where `a >= b` is true."""
    if isinstance(node, Compare) and node.op == "<=>":  # never unknown
        return node, Truth.TRUE if truth in (Truth.TRUE, Truth.NOT_FALSE) else Truth.FALSE
    if isinstance(node, Compare) and truth in (Truth.FALSE, Truth.NOT_TRUE):
        return replace(node, op=_OPPOSITE[node.op]), truth.of_negation
    return node, truth


def _residual(node: Node, truth: Truth) -> Logic:
    """A residual behind the boxes it implies."""
    node, truth = plain_truth(node, truth)
    if isinstance(node, Compare) and node.op != "<=>" and _is_null_const(node.left, node.right):
        return ALWAYS if truth.admits_unknown else NEVER
    rest = Residual(node, truth)
    if truth.admits_unknown or (isinstance(node, Compare) and node.op == "<=>"):
        return rest
    implied = _implied(node) if truth is Truth.TRUE and isinstance(node, (Like, Call)) else []
    if not implied and _is_strict(node):
        keys = [n for n in node.walk() if isinstance(n, Subscript) and isinstance(n.index, Param)]
        implied = [
            Predicate(Column(n.array.index), "contains", (n.index,), n.array.key)
            for n in keys
            if isinstance(n.array, Attr) and isinstance(n.index, Param) and n.array.type is Type.MAP
        ]
        asked = {predicate.column.attr for predicate in implied}
        implied += [Predicate(Column(a), "all") for a in sorted(attributes_of(node) - asked)]
    return All((*map(_values, implied), rest))


def _implied(node: Like | Call) -> list[Predicate]:
    """What a text that matches a pattern has for certain: the literal before the first wildcard, and another one.

    A text that has a phrase has its longest word.
    """
    implied: list[Predicate] = []
    if isinstance(node, Call):
        item = node.args[0] if node.name == "phrase" else None
        if isinstance(item, Attr) and isinstance(node.args[1], Param):
            implied.append(Predicate(Column(item.index, Reading.WORDS), "contains", (node.args[1],), Type.STRING))
        return implied
    if node.kind == "like" and node.form in ("prefixed", "general") and isinstance(node.item, Attr):
        # Where there is no such literal, every text begins with it.
        implied.append(Predicate(Column(node.item.index), "prefix", (node.pattern,), Type.STRING, pattern="like"))
    column = literals_of(node.item, in_lower_case=node.kind == "ilike" or node.form == "folded")
    if column is not None and node.form in ("pieces", "prefixed", "folded"):
        implied.append(Predicate(column, "contains", (node.pattern,), Type.STRING, pattern=node.kind))
    return implied


def _is_null_const(*nodes: Node) -> bool:
    return any(isinstance(n, Const) and n.value is None for n in nodes)


def _is_strict(node: Node) -> bool:
    """Whether the node is NULL as soon as one of its attributes is."""
    return all(
        isinstance(n, _STRICT)
        and getattr(n, "op", "") != "<=>"
        and (not isinstance(n, Call) or FUNCTIONS[n.name].is_strict)
        for n in node.walk()
    )


_LEAVES = (Attr, Param, Const)
_STRICT = (
    *_LEAVES,
    Compare,
    Like,
    InList,
    Arith,
    Negate,
    Invert,
    Call,
    Cast,
    Subscript,
    IntervalLiteral,
    Shift,
    Elapsed,
)


# -- pass 2: alternatives of one column become one set ---------------------------------------------------------------


def group_sets(logic: Logic) -> Logic:
    """Flatten nested connectives and unite the alternatives of one column into one set."""
    if isinstance(logic, All):
        return _flat(All, (group_sets(item) for item in logic.items), NEVER)
    if isinstance(logic, Any_):
        flat = _flat(Any_, (group_sets(item) for item in logic.items), ALWAYS)
        return _united(flat) if isinstance(flat, Any_) else flat
    if isinstance(logic, Values) and any(predicate.is_full for predicate in logic.predicates):
        return ALWAYS
    return logic


def _flat(kind: type[All | Any_], items: Iterable[Logic], zero: Logic) -> Logic:
    out: dict[Logic, None] = {}
    for item in items:
        if item == zero:
            return zero
        for part in item.items if isinstance(item, kind) else (item,):
            out[part] = None
    return next(iter(out)) if len(out) == 1 else kind(tuple(out))


def _united(logic: Any_) -> Logic:
    together: dict[tuple[Column, bool], list[Predicate]] = {}
    others: list[Logic] = []
    for item in logic.items:
        if isinstance(item, Values):  # "is there" and "has an element" stay apart
            together.setdefault((item.column, item.is_elements), []).extend(item.predicates)
        else:
            others.append(item)
    sets = [Values(column, tuple(dict.fromkeys(predicates))) for (column, _), predicates in together.items()]
    items: tuple[Logic, ...] = (*sets, *others)
    return items[0] if len(items) == 1 else Any_(items)


# -- pass 3: a disjunction of clauses -------------------------------------------------------------------------------


def expand(logic: Logic, limit: int) -> tuple[list[Clause], bool]:
    """Multiply out to at most `limit` clauses. False: they are a cover, wider than the expression."""
    if isinstance(logic, Values):
        return [Clause((logic,), ())], True
    if isinstance(logic, Residual):
        return [Clause((), (logic,))], True
    if isinstance(logic, Any_):
        return _expand_any(logic, limit)
    return _expand_all(logic, limit)


def _expand_any(logic: Any_, limit: int) -> tuple[list[Clause], bool]:
    clauses: list[Clause] = []
    exact = True
    for item in logic.items:
        more, ok = expand(item, limit)
        clauses += more
        exact = exact and ok
    clauses = list(dict.fromkeys(clauses))
    if len(clauses) > limit:
        return _cover(clauses, limit), False
    return clauses, exact


def _expand_all(logic: All, limit: int) -> tuple[list[Clause], bool]:
    expanded = [expand(item, limit) for item in logic.items]
    exact = all(ok for more, ok in expanded if len(more) == 1)
    clauses = [_joined(*(more[0] for more, _ in expanded if len(more) == 1))]
    for more, ok in sorted((e for e in expanded if len(e[0]) != 1), key=lambda e: len(e[0])):
        fits = len(clauses) * len(more) <= limit
        exact = exact and ok and fits
        factors = more if fits else _cover(more, max(1, limit // len(clauses)))
        clauses = [_joined(a, b) for a in clauses for b in factors]
    return list(dict.fromkeys(clauses)), exact


def _joined(*clauses: Clause) -> Clause:
    return Clause(
        tuple(dict.fromkeys(v for c in clauses for v in c.values)),
        tuple(dict.fromkeys(r for c in clauses for r in c.residuals)),
    )


def _cover(clauses: Sequence[Clause], limit: int) -> list[Clause]:
    """At most `limit` clauses that together hold wherever one of the given does."""
    ordered = sorted(clauses, key=lambda c: sorted({v.column for v in c.values}))  # alike ones make the tighter hulls
    size = -(-len(ordered) // limit)
    return [_hull(ordered[i : i + size]) for i in range(0, len(ordered), size)]


def _hull(clauses: Sequence[Clause]) -> Clause:
    """One clause around several: a column stays constrained only if each of them constrains it."""
    columns = set.intersection(*({v.column for v in c.values} for c in clauses))
    values = []
    for column in sorted(columns):
        # Of several sets on one column any one is a cover of their intersection.
        chosen = [next(v for v in c.values if v.column == column) for c in clauses]
        if len({v.is_elements for v in chosen}) == 1:
            values.append(Values(column, tuple(dict.fromkeys(p for v in chosen for p in v.predicates))))
    return Clause(tuple(values), ())


def multiply_out(node: Node, limit: int) -> tuple[list[Clause], bool]:
    """All passes in order: clauses where the filter is true, and whether they say it all or are a cover."""
    return expand(group_sets(push_truth(node)), limit)


def normalize(node: Node, limit: int) -> list[Clause]:
    """The clauses of a filter; an empty list never matches."""
    clauses, exact = multiply_out(node, limit)
    if exact:
        return clauses
    whole = (Residual(node, Truth.TRUE, is_whole=True),)
    return list(dict.fromkeys(Clause(clause.values, whole) for clause in clauses))
