"""Lint: what is probably not meant in a set of filters, and what costs more than it needs to.

A rule is a row: of `SPELLING` (see `language.filters.spelling`) if it looks at one filter as it was written, of `MEANING` if it looks
at what all filters mean: those that never or always match, that are equal to or covered by another. Equal digests mean
equal filters, so a condition is redundant if the filter without it has the same digest.

Findings are certain, not complete: a filter that is said never to match never does, but one may never match and pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wherecast.engine.checks import SubscriptionId
from wherecast.engine.coverage import find_coverage
from wherecast.engine.ids import id_at, join_ids
from wherecast.engine.segment import Members, digested
from wherecast.engine.sequences import find_key
from wherecast.engine.subscriptions import SubscriptionSource, compile_parts, read_subscriptions, without_patterns
from wherecast.errors import FilterError
from wherecast.kernels.arrays import Bools, Longs
from wherecast.language.events.html import html_table
from wherecast.language.events.schema import Schema
from wherecast.language.expression import And, IsTruth, Node, Not, Or, attributes_of
from wherecast.language.filters.compile import Compiler, ReadFilter
from wherecast.language.filters.filters import Filters, concat_filters, take_filters
from wherecast.language.filters.render import attribute_namer, render, written_literal
from wherecast.language.filters.spelling import KEPT_SHAPES, Reader, Severity, Words
from wherecast.language.filters.written import write_filter
from wherecast.language.syntax.sequence import StepText, read_sequence
from wherecast.language.syntax.skeletons import locate
from wherecast.progress import progress as steps
from wherecast.progress import shown

if TYPE_CHECKING:
    from wherecast.language.events.schema import SchemaSource
    from wherecast.language.syntax.limits import Limits

#: Findings that a notebook shows.
_SHOWN = 50


@dataclass(frozen=True, slots=True)
class LintFinding:
    """What a rule says about a subscription, and where in its filter.

    `start` and `end` are offsets in `filter` (end exclusive); `other` is the id of another subscription, where the finding is
    about two.
    """

    row: int
    id: object
    code: str
    severity: Severity
    message: str
    advice: str
    filter: str
    start: int
    end: int
    other: object = None

    @property
    def place(self) -> FilterError:
        """The place as errors have it: `line`, `column` and `caret()`."""
        return FilterError(self.code, self.message, text=self.filter, start=self.start, end=self.end)

    def __str__(self) -> str:
        place = self.place
        return f"{self.id!r}: {self.severity} {self.code} at {place.line}:{place.column}: {self.message}; {self.advice}"

    def to_dict(self) -> dict[str, object]:
        """All fields, and line and column, as JSON has them."""
        return {**asdict(self), "severity": self.severity.value, "line": self.place.line, "column": self.place.column}


class LintFindings(Sequence[LintFinding]):
    """All findings, by row."""

    def __init__(self, found: Iterable[LintFinding], filters: int, uncompared: int) -> None:
        self._found = sorted(found, key=lambda f: (f.row, f.start, f.severity.rank))
        self.filters = filters
        """Subscriptions that were looked at."""
        self.uncompared = uncompared
        """Filters that were not compared with all others, because too many overlap."""

    def __len__(self) -> int:
        return len(self._found)

    def __getitem__(self, at: Any) -> Any:
        return self._found[at]

    def at_least(self, severity: Severity | str) -> list[LintFinding]:
        """The findings of this severity or worse."""
        return [f for f in self._found if f.severity.rank <= Severity(severity).rank]

    @property
    def counts(self) -> dict[str, int]:
        """How often each rule was broken, the commonest first."""
        return dict(Counter(f.code for f in self._found).most_common())

    @property
    def summary(self) -> str:
        """One line: how many findings of which severity."""
        by_severity = Counter(f.severity for f in self._found)
        counts = ", ".join(f"{by_severity[s]:,} {s}{'s' if by_severity[s] != 1 else ''}" for s in Severity)
        left = f"; {self.uncompared:,} filters overlap too many others to be compared" if self.uncompared else ""
        return f"{self.filters:,} filters: {counts}{left}"

    def __repr__(self) -> str:
        return f"LintFindings({self.summary})"

    def __str__(self) -> str:
        return "\n".join([*map(str, self._found), self.summary])

    def _repr_html_(self) -> str:
        rows = [
            (f.id, f"{f.severity} {f.code}", f"{f.place.line}:{f.place.column}", f"{f.message}; {f.advice}", f.filter)
            for f in self._found[:_SHOWN]
        ]
        header = ("id", "finding", "at", "what to do", "filter")
        return html_table(f"Lint: {self.summary}", header, rows, more=len(self) - len(rows))


# -- all filters of a set -----------------------------------------------------------------------------------------------


class LintedFilters(NamedTuple):
    """Subscriptions whose filters are compiled: row i has filter `filter_of[i]`, -1 if it does not compile."""

    schema: Schema
    ids: Any
    filters: Filters
    filter_of: Longs
    text: Callable[[int], str]  # the filter of a row, as it was written or as it could be
    spelled: Longs  # rows whose spelling is looked at

    def finding(self, row: int, code: str, severity: Severity, words: Words, other: int | None = None) -> LintFinding:
        """A finding about a filter as a whole."""
        text, about = self.text(row), None if other is None else id_at(self.ids, other)
        return LintFinding(row, id_at(self.ids, row), code, severity, *words, text, 0, len(text), about)


def lint(
    subscriptions: SubscriptionSource, schema: SchemaSource, *, limits: Limits | None = None, progress: bool = False
) -> LintFindings:
    """Find filters that are refused, probably wrong, or cost more than they need to.

    `subscriptions` is whatever `Engine.subscribe_many` takes. With `progress` a terminal or a notebook shows how far it is.
    """
    schema = Schema.of(schema)
    compiler = Compiler(schema, limits)
    with shown(progress):
        incoming, patterns = without_patterns(read_subscriptions(subscriptions))
        parts = compile_parts(compiler, incoming.texts)
        sizes = np.cumsum([0, *(part.filters.n_filters for part in parts)])
        numbers = [
            np.where(part.filter_of < 0, -1, part.filter_of + base) for part, base in zip(parts, sizes, strict=False)
        ]
        filter_of = np.concatenate([np.zeros(0, np.int64), *numbers])[incoming.text_of]
        refused = incoming.refused(error for part in parts for error in part.errors)
        filter_of[[*refused, *(row for row, _, _ in patterns)]] = -1
        filters = concat_filters([part.compiled.filters for part in parts], schema)
        texts, text_of = incoming.texts, incoming.text_of
        found = LintedFilters(
            schema, incoming.ids, filters, filter_of, lambda row: texts[text_of[row]], np.flatnonzero(filter_of >= 0)
        )
        known = [_refusal(found, row, error) for row, error in refused.items()]
        return find_all(found, compiler, [*known, *lint_patterns(patterns, compiler)])


def lint_members(
    parts: Sequence[Members], schema: Schema, compiler: Compiler, patterns: Iterable[tuple[SubscriptionId, str]] = ()
) -> LintFindings:
    """As `lint`, for subscriptions that are compiled; a text is written where a rule speaks of it. Patterns come last."""
    filters = concat_filters([digested(part.plain, schema) for part in parts], schema)
    sizes = np.cumsum([0, *(part.filters.n_filters for part in parts)])
    filter_of = np.concatenate(
        [np.zeros(0, np.int64), *(part.filter_of + base for part, base in zip(parts, sizes, strict=False))]
    )
    text = lru_cache(None)(lambda number: _rewritten(filters, schema, number))
    # What is only boxes is spelled well once it is written from them.
    has_more = np.add.reduceat(np.append(filters.program >= 0, False), filters.clause_ptr[:-1]) > 0
    has_more &= np.diff(filters.clause_ptr) > 0
    rows = np.flatnonzero(has_more[filter_of]) if filter_of.size else filter_of
    rows = rows[[bool(text(number)) for number in filter_of[rows].tolist()]] if rows.size else rows
    ids = join_ids([np.asarray(part.ids) for part in parts])
    own = lint_patterns([(row, *pattern) for row, pattern in enumerate(patterns, filter_of.size)], compiler)
    return find_all(
        LintedFilters(schema, ids, filters, filter_of, lambda row: text(int(filter_of[row])), rows), compiler, own
    )


def _rewritten(filters: Filters, schema: Schema, number: int) -> str:
    try:
        return write_filter(filters, schema, number)
    except FilterError:  # few have a meaning that no text has
        return ""


def _refusal(of: LintedFilters, row: int, error: Exception) -> LintFinding:
    text = of.text(row)
    message, _, advice = str(error.message if isinstance(error, FilterError) else error).partition("; ")
    start, end = (error.start, error.end) if isinstance(error, FilterError) and error.text else (0, len(text or ""))
    return LintFinding(
        row, id_at(of.ids, row), "refused", Severity.ERROR, message, advice or "correct it", text or "", start, end
    )


# -- patterns -----------------------------------------------------------------------------------------------------------


class _Step(NamedTuple):
    """A filter of a pattern, as it is looked at."""

    row: int
    id: object
    whole: str
    place: StepText
    number: int
    is_absent: bool  # what THEN NOT names

    def finding(self, found: LintFinding) -> LintFinding:
        """What is said about the filter, as a finding about the pattern."""
        message = f"step {self.number}: {found.message}"
        code, advice = found.code, found.advice
        if found.code == "never" and self.is_absent:
            code, message, advice = (
                "redundant",
                "what THEN NOT names never happens: it only delays the match",
                "drop it",
            )
        elif found.code == "never":
            message = (
                f"never matches: step {self.number} contradicts itself, or no value satisfies one of its conditions"
            )
        start, end = self.place.start + found.start, self.place.start + found.end
        return LintFinding(self.row, self.id, code, found.severity, message, advice, self.whole, start, end)


def lint_patterns(patterns: Sequence[tuple[int, SubscriptionId, str]], compiler: Compiler) -> list[LintFinding]:
    """What is said about patterns: refused ones, COUNT of one event, and what each step's filter has to hear."""
    found, looked = [], []
    for row, id, text in patterns:
        try:
            read = read_sequence(text, compiler.limits.text)
            if read.key is not None:
                find_key(read.key, text, compiler)
            for step in read.steps:
                try:
                    compiler.validate(step.text)
                except FilterError as error:
                    raise step.relocated(error, text) from None
        except FilterError as error:
            message, _, advice = error.message.partition("; ")
            place = text, error.start, error.end
            found.append(LintFinding(row, id, "refused", Severity.ERROR, message, advice or "correct it", *place))
            continue
        if read.wanted == 1:
            words = "a COUNT of one event is that event", "register the filter itself"
            found.append(LintFinding(row, id, "redundant", Severity.WARNING, *words, text, 0, len(text)))
        looked += [
            _Step(row, id, text, step, n, read.has_not and n == len(read.steps)) for n, step in enumerate(read.steps, 1)
        ]
    compiled = compiler.compile_many([step.place.text for step in looked])
    rows = np.arange(len(looked))
    of = LintedFilters(
        compiler.schema, rows, compiled.filters, compiled.filter_of, lambda row: looked[row].place.text, rows
    )
    said = [*_read_all(of, compiler), *_never(of)[0], *_always(of)[0]]
    return [*found, *(looked[one.row].finding(one) for one in said)]


def find_all(of: LintedFilters, compiler: Compiler, refused: Iterable[LintFinding] = ()) -> LintFindings:
    """What all rules say, and what is known already."""
    found = [*refused, *_read_all(of, compiler)]
    uncompared = 0
    for rule in MEANING:
        more, open_ = rule(of)
        found += more
        uncompared += open_
    return LintFindings(found, len(of.filter_of), uncompared)


def _read_all(of: LintedFilters, compiler: Compiler) -> Iterator[LintFinding]:
    """What is said about filters one by one; each is read once."""
    reader, redundant = Reader(of.schema), _Redundancy(of)
    with steps("reading", of.spelled.size) as step:
        for row in of.spelled.tolist():
            text = of.text(row)
            read = compiler.read(text)
            for rule, words, start, end in reader.remarks(text, read):
                yield LintFinding(row, id_at(of.ids, row), rule.code, rule.severity, *words, text, start, end)
            redundant.take(row, text, read)
            step.advance()
    yield from redundant.find(compiler)


# -- rules on meaning ---------------------------------------------------------------------------------------------------

#: Findings, and the number of filters that could not be looked at.
Judged = tuple[list[LintFinding], int]


def _never(of: LintedFilters) -> Judged:
    words = (
        "never matches: its conditions contradict each other, or no value satisfies one of them",
        "correct or drop it",
    )
    rows = _rows_where(of, np.diff(of.filters.clause_ptr) == 0)
    return [of.finding(row, "never", Severity.ERROR, words) for row in rows], 0


def _always(of: LintedFilters) -> Judged:
    words = "always matches: every event satisfies it", "add a condition, unless the subscriber wants all"
    rows = _rows_where(of, _is_always(of.filters))
    return [of.finding(row, "always", Severity.WARNING, words) for row in rows], 0


def _is_always(filters: Filters) -> Bools:
    free = (np.diff(filters.row_ptr) == 0) & (filters.program < 0)
    always = np.zeros(filters.n_filters, bool)
    always[np.repeat(np.arange(filters.n_filters), np.diff(filters.clause_ptr))[free]] = True
    return always


def _rows_where(of: LintedFilters, chosen: Bools) -> list[int]:
    """The rows of some filters; what does not compile is none of them."""
    return np.flatnonzero((of.filter_of >= 0) & np.append(chosen, False)[of.filter_of]).tolist()


def _equal_or_covered(of: LintedFilters) -> Judged:
    """Rows with a filter that another row has, or that another row's filter covers."""
    good = np.flatnonzero(of.filter_of >= 0)
    words = np.frombuffer(of.filters.digests, "V16")
    _, number = np.unique(words, return_inverse=True)
    _, first, group = np.unique(number[of.filter_of[good]], return_index=True, return_inverse=True)
    found = []
    alive = np.diff(of.filters.clause_ptr) > 0
    for row in np.flatnonzero(np.arange(good.size) != first[group]).tolist():
        other = int(good[first[group[row]]])
        if alive[of.filter_of[good[row]]]:
            says = f"the same filter as that of {id_at(of.ids, other)!r}", "keep one, unless two subscribers want it"
            found.append(of.finding(int(good[row]), "equal", Severity.NOTE, says, other))
    owner = good[first]  # the row that stands for each distinct filter
    chosen = np.flatnonzero(alive[of.filter_of[owner]] & ~_is_always(of.filters)[of.filter_of[owner]])
    owner = owner[chosen]
    coverage = find_coverage(take_filters(of.filters, of.filter_of[owner]), of.schema)
    for covered in np.flatnonzero(coverage.by >= 0).tolist():
        other = int(owner[coverage.by[covered]])
        says = (
            f"covered by the filter of {id_at(of.ids, other)!r}: whatever satisfies this one satisfies that one, too",
            "drop it if both go to one subscriber",
        )
        found.append(of.finding(int(owner[covered]), "covered", Severity.NOTE, says, other))
    return found, int(np.count_nonzero(coverage.is_open))


#: One row per rule. A rule gives its findings, and how many filters it could not look at.
MEANING: tuple[Callable[[LintedFilters], Judged], ...] = (_never, _always, _equal_or_covered)


# -- redundant conditions -----------------------------------------------------------------------------------------------


class _Try(NamedTuple):
    """A condition that is left out of the filter of a row; without a connective, nothing is."""

    row: int
    connective: Node | None
    start: int
    end: int


class _Redundancy:
    """Finds conditions without which the filter is the same; of one AND or OR, the last of them.

    A filter is written from its expression, with and without the condition, and compiled again. What is written whole must
    be the filter itself, or nothing would follow from a part of it.
    """

    def __init__(self, of: LintedFilters) -> None:
        self._of = of
        self._tries: list[_Try] = []
        self._texts: list[str] = []
        self._known: dict[int, tuple[Node, list[_Shorter]]] = {}

    def take(self, row: int, text: str, read: ReadFilter) -> None:
        """Note what there is to try with one filter."""
        key = id(read.node)
        if key not in self._known:  # the node is kept, so that its number stays its own
            if len(self._known) == KEPT_SHAPES:
                self._known.clear()
            self._known[key] = read.node, list(islice(_shorter(read.node), _MOST_TRIES))
        shorter = self._known[key][1]
        for connective, item, rest in shorter:
            self._tries.append(_Try(row, connective, *locate(text, read.shape, *item.span)))
            self._texts.append(_written(rest, read, self._of.schema))
        if shorter:
            self._tries.append(_Try(row, None, 0, 0))
            self._texts.append(_written(read.node, read, self._of.schema))

    def find(self, compiler: Compiler) -> Iterator[LintFinding]:
        """Try all."""
        same = [self._tries[at] for at in self._same(compiler)]
        faithful = {one.row for one in same if one.connective is None}
        last: dict[tuple[int, int], _Try] = {}
        for one in same:
            if one.connective is not None and one.row in faithful:
                key = one.row, id(one.connective)
                last[key] = max(last.get(key, one), one, key=lambda each: each.start)
        words = "this condition changes nothing: the other conditions already imply it", "drop it"
        for row, _, start, end in last.values():
            id_, text = id_at(self._of.ids, row), self._of.text(row)
            yield LintFinding(row, id_, "redundant", Severity.WARNING, *words, text, start, end)

    def _same(self, compiler: Compiler) -> Iterator[int]:
        """The tries whose text is the filter of their row, if that can match at all."""
        own = self._of.filters
        for part in compile_parts(compiler, self._texts):
            filters, filter_of, _ = part.compiled
            for at, number in enumerate(filter_of.tolist(), part.first):
                mine = int(self._of.filter_of[self._tries[at].row])
                can_match = own.clause_ptr[mine] < own.clause_ptr[mine + 1]
                if can_match and number >= 0 and filters.digest(number) == own.digest(mine):
                    yield at


def _written(node: Node, read: ReadFilter, schema: Schema) -> str:
    return render(node, attribute_namer(schema), lambda param: written_literal(param, read.literals[param.slot]))


#: Conditions of one filter that are left out to see whether it stays the same.
_MOST_TRIES = 32
#: An AND or OR, one of its conditions, and the whole filter without it.
_Shorter = tuple[Node, Node, Node]


def _shorter(node: Node) -> Iterator[_Shorter]:
    """Each condition that speaks of an attribute of which another one beside it speaks, too, left out."""
    if isinstance(node, And | Or) and all(item.span != node.span for item in node.items):  # BETWEEN is one condition
        spoken = [attributes_of(item) for item in node.items]
        for i, item in enumerate(node.items):
            rest = (*node.items[:i], *node.items[i + 1 :])
            if any(spoken[i] & other for other in (*spoken[:i], *spoken[i + 1 :])):
                yield node, item, rest[0] if len(rest) == 1 else replace(node, items=rest)
            for connective, part, less in _shorter(item):
                yield connective, part, replace(node, items=(*node.items[:i], less, *node.items[i + 1 :]))
    elif isinstance(node, Not | IsTruth):
        for connective, part, less in _shorter(node.item):
            yield connective, part, replace(node, item=less)
