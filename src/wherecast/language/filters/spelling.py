"""Rules on spelling: what is probably a mistake in the text of one filter, or costs more than it needs to.

Every rule is a row of `SPELLING`. `where` finds places in the expression, once for all filters that share a shape; `say` puts into
words what is wrong there, with the filter's own constants, or says that nothing is. Rules that compare filters with each
other are in `engine.lint`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from wherecast.language.events.schema import Schema
from wherecast.language.events.types import Type
from wherecast.language.expression import (
    FLIPPED,
    Attr,
    Call,
    Cast,
    Compare,
    Const,
    InList,
    Like,
    Node,
    Param,
    is_constant,
)
from wherecast.language.filters.compile import ReadFilter
from wherecast.language.filters.normalize import Clause
from wherecast.language.filters.render import attribute_namer
from wherecast.language.functions.table import FUNCTIONS
from wherecast.language.functions.text import CASES
from wherecast.language.syntax.literals import number_body, unquote
from wherecast.language.syntax.patterns import find_form
from wherecast.language.syntax.skeletons import is_string, locate
from wherecast.language.syntax.words import fold_word, words_of


class Severity(enum.StrEnum):
    """How bad a finding is: certainly not meant, probably not meant or dear, or good to know."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    @property
    def rank(self) -> int:
        """0 is the worst."""
        return list(Severity).index(self)


class Spelled(NamedTuple):
    """One filter as it was written."""

    text: str
    read: ReadFilter
    schema: Schema

    def name(self, node: Node) -> str:
        """An attribute by its name, anything else as "the value"."""
        while isinstance(node, Cast):
            node = node.item
        return attribute_namer(self.schema)(node.index) if isinstance(node, Attr) else "the value"

    def literal(self, param: Param) -> str | None:
        """A literal that is a text, without its quotes."""
        text = self.read.literals[param.slot]
        return unquote(text) if isinstance(text, str) and is_string(text) else None

    def values(self, param: Param, kind: Type) -> list[str] | list[float]:
        """The texts or numbers of a literal or a list of them; none if it is written as another kind than it is compared as."""
        found = self.read.literals[param.slot]
        texts = [found] if isinstance(found, str) else list(found)
        if any(is_string(text) is not (kind is Type.STRING) for text in texts):
            return []
        if kind is Type.STRING:
            return [unquote(text) for text in texts]
        return [float(number_body(text)) * (-1 if param.negative else 1) for text in texts]

    def written(self, param: Param) -> str:
        """A literal exactly as it stands in the text."""
        start, end = locate(self.text, self.read.shape, *self.read.shape.spans[param.slot])
        return self.text[start:end]

    def is_in_double_quotes(self, param: Param) -> bool:
        """Whether a literal is a text in double quotes; few texts have any, and those that have none are not searched."""
        return '"' in self.text and self.written(param).startswith('"')


#: What a rule says: what it means, and what to write.
Words = tuple[str, str]


class SpellingRule(NamedTuple):
    """A rule on one filter as it is written."""

    code: str
    severity: Severity
    where: Callable[[ReadFilter], Iterable[Node]]
    say: Callable[[Node, Spelled], Words | None]


def _nodes(kind: type[Node]) -> Callable[[ReadFilter], Iterable[Node]]:
    return lambda read: (node for node in read.node.walk() if isinstance(node, kind))


def _sides(node: Node) -> Iterator[tuple[Node, Node]]:
    if isinstance(node, Compare) and node.op != "<=>":
        yield from ((node.left, node.right), (node.right, node.left))


def _null_comparison(node: Node, of: Spelled) -> Words | None:
    for side, other in _sides(node):
        if isinstance(side, Const) and side.value is None:
            assert isinstance(node, Compare)
            name, test = of.name(other), "IS NOT NULL" if node.op == "<>" else "IS NULL"
            return f"compares {name} with NULL, which is never true", f"write {name} {test}"
    return None


def _null_in_list(node: Node, _of: Spelled) -> Words | None:
    assert isinstance(node, InList)
    message = "a NULL in the list of IN equals nothing, and NOT IN with it is never true"
    return (message, "write OR a IS NULL instead") if node.has_null else None


def _literals_beside_literals(read: ReadFilter) -> Iterator[Node]:
    for node in read.node.walk():
        yield from (side for side, other in _sides(node) if isinstance(side, Param) and isinstance(other, Param))


def _name_as_text(node: Node, of: Spelled) -> Words | None:
    assert isinstance(node, Param)
    name = of.literal(node)
    if name is None or of.schema.find(name) is None:
        return None
    return f"{of.written(node)} is a text, not an attribute: quotes make a text", f"write `{name}` in backticks"


def _name_in_double_quotes(node: Node, of: Spelled) -> Words | None:
    assert isinstance(node, Param)
    return _name_as_text(node, of) if of.is_in_double_quotes(node) else None


def _double_quotes(node: Node, of: Spelled) -> Words | None:
    assert isinstance(node, Param)
    if not of.is_in_double_quotes(node) or _name_as_text(node, of):
        return None
    written = of.written(node)
    return f"{written} is a text here, but a name in other databases and where Spark is set so", "use single quotes"


def _cast_comparisons(read: ReadFilter) -> Iterator[Node]:
    for node in read.node.walk():
        sides = (
            (node.left, node.right) if isinstance(node, Compare) else (node.item,) if isinstance(node, InList) else ()
        )
        if any(isinstance(side, Cast) and isinstance(side.item, Attr) for side in sides):
            yield node


def _cast(node: Node, of: Spelled) -> Words | None:
    assert isinstance(node, Compare | InList)
    sides = (node.left, node.right) if isinstance(node, Compare) else (node.item,)
    side = next(side for side in sides if isinstance(side, Cast))
    message = f"{of.name(side)} is a {side.item.type} and is compared as a {side.type}: every value is converted"
    return message, f"compare it with a {side.item.type}, or give the attribute the type {side.type}"


def _calls(*names: str) -> Callable[[ReadFilter], Iterable[Node]]:
    return lambda read: (node for node in read.node.walk() if isinstance(node, Call) and node.name in names)


def _topic(node: Node, of: Spelled) -> Words | None:
    assert isinstance(node, Call)
    pattern = of.literal(node.args[1]) if isinstance(node.args[1], Param) else None
    sign = next((sign for sign in "%*?" if pattern is not None and sign in pattern), None)
    if sign is None:
        return None
    return (
        f"{sign} stands for itself in a topic: the wildcards of MATCHES are + and #",
        "write + for a level and # for the rest",
    )


def _keyword(node: Node, of: Spelled) -> Words | None:
    """KEYWORDS of several words is one call for each, all of them at the same place."""
    assert isinstance(node, Call)
    literal = of.literal(node.args[1]) if isinstance(node.args[1], Param) else None
    words = [] if literal is None else words_of(literal)
    if literal is None or len(words) != 1 or fold_word(literal) == words[0]:
        return None
    return (
        f"'{literal}' is looked for as the word '{words[0]}': only letters, digits and _ are part of words",
        f"write '{words[0]}'",
    )


def _comparisons_of_calls(kind: type[Node]) -> Callable[[ReadFilter], Iterable[Node]]:
    """Where what a function gives is compared with literals, and the table says what it can give."""
    return lambda read: (node for node in _nodes(kind)(read) if _compared_call(node) is not None)


def _compared_call(node: Node) -> tuple[Call, tuple[Param, ...]] | None:
    """The call, and the literals of which its value has to be one."""
    call, literals = _compared_with(node)
    if not isinstance(call, Call) or len(call.args) != 1 or is_constant(call) or not literals:
        return None
    if FUNCTIONS[call.name].nearest is None or (isinstance(node, Like) and call.name not in CASES):
        return None
    return call, literals


def _compared_with(node: Node) -> tuple[Node, tuple[Param, ...]]:
    """What is compared, and the literals of which it has to equal or resemble one, if there are any."""
    match node:
        case (
            Compare(op="=" | "<=>", left=item, right=Param() as one)
            | Compare(op="=" | "<=>", left=Param() as one, right=item)
        ):
            return item, (one,)
        case InList(item=item, values=values):
            return item, values
        case Like(kind="like", item=item, pattern=one):
            return item, (one,)
    return node, ()


def _unreachable(node: Node, of: Spelled) -> Words | None:
    """A text with a capital is never the lower case of anything, nor is a pattern with one ever satisfied by it."""
    found = _compared_call(node)
    assert found is not None
    call, params = found
    row = FUNCTIONS[call.name]
    assert row.nearest is not None
    if isinstance(node, Like) and row.nearest(node.escape) != node.escape:
        return None
    for value in (value for param in params for value in of.values(param, call.type)):
        nearest = row.nearest(value)
        if nearest != value:
            verb = "satisfies" if isinstance(node, Like) else "gives"
            advice = f"{row.name}: {row.says}" if nearest is None else f"write {nearest!r}"
            shown = repr(value) if isinstance(value, str) else f"{value:g}"
            return f"{row.name} never {verb} {shown}", advice
    return None


#: What a comparison with a number outside of -1 to 1 means, by operator: beyond 1, beyond -1, and at these ends.
_BEYOND = {">=": "never", ">": "never", "<": "always", "<=": "always"}


def _similarities(read: ReadFilter) -> Iterator[Node]:
    for node in read.node.walk():
        if _compared_similarity(node) is not None:
            yield node


def _compared_similarity(node: Node) -> tuple[str, Param] | None:
    """How a similarity is compared, with which literal."""
    if isinstance(node, Compare):
        left, op, right = node.left, node.op, node.right
        if isinstance(left, Param):
            left, op, right = right, FLIPPED[op], left
        if (
            isinstance(left, Call)
            and left.name in ("similar", "similar_text")
            and isinstance(right, Param)
            and op in _BEYOND
        ):
            return op, right
    return None


def _similarity(node: Node, of: Spelled) -> Words | None:
    found = _compared_similarity(node)
    assert found is not None
    op, param = found
    text = of.read.literals[param.slot]
    try:
        limit = float(number_body(text)) * (-1 if param.negative else 1) if isinstance(text, str) else 0.0
    except ValueError:  # a text that is read as a number
        return None
    if (op in (">=", "<") and limit == -1) or (op in (">", "<=") and limit == 1):
        says = "always" if op in (">=", "<=") else "never"
    elif abs(limit) <= 1:
        return None
    else:
        says = _BEYOND[op] if limit > 1 else "always" if _BEYOND[op] == "never" else "never"
    return (
        f"a similarity is from -1 to 1, so this is {says} true where there is one",
        "compare it with a number such as 0.8",
    )


def _own_residuals(clause: Clause) -> list[Node]:
    """What is evaluated; a comparison of a similarity is indexed."""
    residuals = [r for r in clause.residuals if not is_constant(r.node) and not r.is_whole]
    return [r.node for r in residuals if _compared_similarity(r.node) is None]


def _narrows(clause: Clause) -> bool:
    """Whether some constraint says more than that a value is there."""
    return any(p.op != "all" or p.complement for v in clause.values for p in v.predicates)


def _unindexed(read: ReadFilter) -> Iterable[Node]:
    return dict.fromkeys(n for c in read.clauses if not _narrows(c) for n in _own_residuals(c)[:1])


def _behind_boxes(read: ReadFilter) -> Iterable[Node]:
    return dict.fromkeys(n for c in read.clauses if _narrows(c) for n in _own_residuals(c)[:1])


def _covered_by_boxes(read: ReadFilter) -> Iterable[Node]:
    return [read.node] if any(r.is_whole for c in read.clauses for r in c.residuals) else []


def _pattern(node: Node, of: Spelled) -> Words | None:
    assert isinstance(node, Like)
    pattern = of.literal(node.pattern)
    form = None if pattern is None else find_form(node.kind, pattern)
    if form is None or form.name != "general" or form.prefix:
        return None
    message = f"the pattern {of.written(node.pattern)} has no literal that could be looked up: it is run on every text"
    return message, "write a pattern with a word that every match contains, or add a condition that is indexed"


def _short_literal(node: Node, of: Spelled) -> Words | None:
    assert isinstance(node, Like)
    pattern = of.literal(node.pattern)
    form = None if pattern is None else find_form(node.kind, pattern)
    if form is None or form.name not in ("infix", "suffix", "pieces", "folded") or len(form.literal) > 2:
        return None
    message = f"the pattern {of.written(node.pattern)} is looked up by {form.literal[1:]!r}, which most texts contain"
    return message, "write a longer literal, or begin the pattern with one"


def _fixed(message: str, advice: str) -> Callable[[Node, Spelled], Words | None]:
    """The same words wherever it is, unless it is a pattern that the rule for those speaks of."""
    return lambda node, of: None if isinstance(node, Like) and _pattern(node, of) else (message, advice)


#: One row per rule. `docs/guides/lint.md` shows an example of each.
SPELLING: tuple[SpellingRule, ...] = (
    SpellingRule("null-comparison", Severity.ERROR, _nodes(Compare), _null_comparison),
    SpellingRule("null-in-list", Severity.WARNING, _nodes(InList), _null_in_list),
    SpellingRule("quoted-name", Severity.WARNING, _literals_beside_literals, _name_as_text),
    SpellingRule("quoted-name", Severity.WARNING, _nodes(Param), _name_in_double_quotes),
    SpellingRule("double-quotes", Severity.NOTE, _nodes(Param), _double_quotes),
    SpellingRule("cast", Severity.WARNING, _cast_comparisons, _cast),
    SpellingRule("pattern", Severity.WARNING, _nodes(Like), _pattern),
    SpellingRule("unreachable", Severity.ERROR, _comparisons_of_calls(Compare), _unreachable),
    SpellingRule("unreachable", Severity.ERROR, _comparisons_of_calls(Like), _unreachable),
    SpellingRule("unreachable", Severity.WARNING, _comparisons_of_calls(InList), _unreachable),
    SpellingRule("topic", Severity.WARNING, _calls("topic_matches"), _topic),
    SpellingRule("keyword", Severity.WARNING, _calls("keywords"), _keyword),
    SpellingRule("similarity", Severity.WARNING, _similarities, _similarity),
    SpellingRule("short-literal", Severity.NOTE, _nodes(Like), _short_literal),
    SpellingRule(
        "unindexed", Severity.WARNING, _unindexed,
        _fixed(
            "no constant narrows the events on which this is evaluated",
            "add a condition such as symbol = 'IBM'; expressions that many filters share are computed once per event",
        ),
    ),
    SpellingRule(
        "residual", Severity.NOTE, _behind_boxes,
        _fixed(
            "this is evaluated on the events that satisfy the rest",
            "compare an attribute with a constant where that says the same",
        ),
    ),
    SpellingRule(
        "too-many-clauses", Severity.WARNING, _covered_by_boxes,
        _fixed(
            "the normal form has too many clauses, so the whole filter is evaluated on every event that may satisfy it",
            "split it into several filters, or write ORs of one attribute as IN",
        ),
    ),
)  # fmt: skip


#: Shapes that are remembered.
KEPT_SHAPES = 4_096


class Remark(NamedTuple):
    """What a rule says, and the place in the text: `start` to `end`, exclusive."""

    rule: SpellingRule
    words: Words
    start: int
    end: int


class Reader:
    """Applies the rules to texts that compile; remembers where to look in the shapes that it has seen."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._places: dict[int, tuple[Node, list[tuple[SpellingRule, Node]]]] = {}

    def remarks(self, text: str, read: ReadFilter) -> Iterator[Remark]:
        """What all rules say about one filter."""
        key = id(read.node)
        if key not in self._places:  # the node is kept with its places, so that its number stays its own
            if len(self._places) == KEPT_SHAPES:
                self._places.clear()
            self._places[key] = read.node, [(rule, node) for rule in SPELLING for node in rule.where(read)]
        of = Spelled(text, read, self._schema)
        for rule, node in self._places[key][1]:
            words = rule.say(node, of)
            if words is not None:
                yield Remark(rule, words, *locate(text, read.shape, *node.span))
