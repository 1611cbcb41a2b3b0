"""From a shape to the tokens that sqlglot's parser sees, and the rules of order that Spark has and sqlglot lacks.

Theory of operation
-------------------
sqlglot reads many dialects and hundreds of constructs; a filter has a handful. So its tokenizer is not used. Here a shape
is read word by word by a machine with two states, *a value is wanted* and *a value is there*, and every token that may not
come next is refused on the spot, with its place and what to write instead. What reaches sqlglot is a sentence of
operands (each one identifier whose text is a number: its place in `Sentence.operands`), operators, parentheses and calls; nothing in it
can be taken for a keyword, a hint, a string prefix or a named argument, and its nesting and length are bounded.

A comparison, BETWEEN, IN, LIKE or IS has no neighbour of its kind between two connectives: Spark reads `a = b IS NULL` as
`(a = b) IS NULL` and refuses `a IS NULL IS NULL`, sqlglot reads both in its own way. Such a text has to be written with
parentheses. NOT begins a condition or negates a predicate, as in Spark, and stands nowhere else.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, NoReturn

from sqlglot.tokenizer_core import Token, TokenType

from wherecast.errors import FilterError
from wherecast.language.advice import EXPECTED, KEYWORDS, function_advice, symbol_advice, word_advice
from wherecast.language.attributes import join_name
from wherecast.language.expression import Span
from wherecast.language.functions.row import check_count
from wherecast.language.functions.table import FUNCTIONS
from wherecast.language.skeletons import Shape
from wherecast.language.types import Type

_COMPARISONS = {
    "=": TokenType.EQ,
    "==": TokenType.EQ,
    "<>": TokenType.NEQ,
    "!=": TokenType.NEQ,
    "<": TokenType.LT,
    "<=": TokenType.LTE,
    ">": TokenType.GT,
    ">=": TokenType.GTE,
    "<=>": TokenType.NULLSAFE_EQ,
}
#: Comparisons that people write with a space inside.
_SPLIT = frozenset(_COMPARISONS) - {"=", "==", "<", ">"}
_ARITHMETIC = {
    "+": TokenType.PLUS,
    "-": TokenType.DASH,
    "*": TokenType.STAR,
    "/": TokenType.SLASH,
    "%": TokenType.MOD,
}
_PREDICATES = {
    "LIKE": TokenType.LIKE,
    "ILIKE": TokenType.ILIKE,
    "RLIKE": TokenType.RLIKE,
    "REGEXP": TokenType.RLIKE,
    "BETWEEN": TokenType.BETWEEN,
    "IN": TokenType.IN,
}
_CONSTANTS = {"TRUE": True, "FALSE": False, "NULL": None}
_CONSTANT_TOKENS = {"TRUE": TokenType.TRUE, "FALSE": TokenType.FALSE, "NULL": TokenType.NULL}
_TYPED = {
    "DATE": Type.DATE,
    "TIMESTAMP": Type.TIMESTAMP,
    "TIMESTAMP_LTZ": Type.TIMESTAMP,
    "TIMESTAMP_NTZ": Type.TIMESTAMP_NTZ,
    "X": Type.BINARY,
}
#: Words that are operators wherever they stand.
_RESERVED = {"AND", "OR", "NOT", "IS", *_PREDICATES} - {"REGEXP"}

_LEXEME = re.compile(
    r"""(?P<word>[^\W\d]\w*)
    |(?P<op><=>|<>|<=|>=|!=|==(?!=)|=(?![=<>~])|[<>+%(),.]|\*(?!\*)|-(?!>)|/(?![*/])|!(?![<>~]))
    |(?P<quoted>`(?:[^`]|``)*+`)
    |(?P<junk>\d[\w.]*|&&|\|\||:=|::|=>|=<|===|!<|!>|->|/\*|//|\*\*|=~|!?~~?\*?|[^\s\w]|\w)""",
    re.VERBOSE,
)


class Operand(NamedTuple):
    """A leaf: an attribute by name, a literal by slot (with a type if it was written), or TRUE, FALSE, NULL."""

    span: Span
    name: str | None = None
    slot: int | None = None
    type: Type | None = None
    value: bool | None = None


class Sentence(NamedTuple):
    """A shape as sqlglot's parser gets it. The text of an identifier is its number among the operands."""

    tokens: list[Token]
    operands: list[Operand]


class _Lexeme(NamedTuple):
    kind: str  # word, quoted, op, string, number, junk, end
    text: str
    start: int
    end: int


@dataclass(slots=True)
class _Level:
    """What is open: the filter itself, parentheses, a call or an IN list."""

    kind: str = "filter"
    start: int = 0  # of what opens it
    end: int = 0
    name: str = ""
    commas: int = 0
    fresh: bool = True  # nothing but NOTs since the last connective: a condition may begin
    predicate: bool = False  # a comparison or predicate stands since the last connective
    between: int = -1  # where a BETWEEN still waits for its AND

    def restart(self) -> None:
        self.fresh, self.predicate = True, False


def keyword_names(names: Iterable[str]) -> frozenset[str]:
    """The names, in capitals, that a filter has to quote because they are words of the language."""
    return KEYWORDS & {name.upper() for name in names}


def read_shape(shape: Shape, depth: int, terms: int, quoted_names: frozenset[str] = frozenset()) -> Sentence:
    """The tokens of a shape, or the FilterError that its words and their order give.

    `quoted_names` are those of `keyword_names`: where one stands without backticks, the error says so.
    """
    lexemes = _lexemes(shape, terms + 2)
    while lexemes[-1].kind == "end" and len(lexemes) > 1 and lexemes[-2].text == ";":  # the end of a statement
        del lexemes[-2]
    if len(lexemes) == 1:
        raise FilterError("syntax", "the filter is empty; write TRUE to match every event", text=shape.text)
    if len(lexemes) > terms + 1:  # what is wrong before that place is told first
        lexemes[terms:] = [lexemes[terms]._replace(kind="limit", text="")]
    return _Reader(shape.text, lexemes, depth, quoted_names).read()


def too_many_terms(limit: int) -> str:
    """What to say of a text with too many names, literals and signs."""
    return f"more than {limit} terms; split the filter, or list values with IN"


def _lexemes(shape: Shape, most: int) -> list[_Lexeme]:
    text, at = shape.text, 0
    out: list[_Lexeme] = []
    for start, end in (*shape.spans, (len(text), len(text))):
        found = islice(_LEXEME.finditer(text, at, start), most)
        out += [_Lexeme(m.lastgroup or "junk", m.group(), *m.span()) for m in found]
        if len(out) >= most:
            return out
        if start < end:
            out.append(_Lexeme("string" if text[start] == "'" else "number", text[start:end], start, end))
        at = end
    out.append(_Lexeme("end", "", len(text), len(text)))
    return out


class _Reader:
    def __init__(self, text: str, lexemes: list[_Lexeme], depth: int, quoted_names: frozenset[str]) -> None:
        self.text = text
        self.lexemes = lexemes
        self.depth = depth
        self.quoted_names = quoted_names
        self.at = 0
        self.tokens: list[Token] = []
        self.operands: list[Operand] = []
        self.levels = [_Level()]
        self.prefixes = 0  # NOTs and signs in a row
        self.done = False

    def read(self) -> Sentence:
        while not self.done:
            self._operand()
            while self._operator():
                pass
        level = self.levels[-1]
        if level.kind != "filter":
            self._fail("'(' is never closed; add ')'", _Lexeme("op", "(", level.start, level.end))
        return Sentence(self.tokens, self.operands)

    # -- a value is wanted ----------------------------------------------------------------------------------------

    def _operand(self) -> None:
        """Read up to the end of one operand, with what stands before it."""
        while True:
            lexeme, level = self._take(), self.levels[-1]
            word = lexeme.text.upper() if lexeme.kind == "word" else ""
            if word == "NOT" or lexeme.text == "!":
                self._prefix(lexeme, TokenType.NOT)
                if not level.fresh:
                    self._fail("a condition inside another needs parentheses around it", lexeme)
                continue
            if level.kind == "list" and lexeme.text == ")" and level.commas == 0:
                self._fail("IN needs at least one value: IN (1, 2)", lexeme)
            level.fresh = False
            if lexeme.text == "-" and lexeme.kind == "op":
                self._prefix(lexeme, TokenType.DASH)
            elif lexeme.text == "+" and self._next().kind == "number":
                self.prefixes += 1
            elif lexeme.text == "(" and lexeme.kind == "op":
                self._open(lexeme, _Level("group", lexeme.start, lexeme.end))
            elif word and word not in _RESERVED and self._next().text == "(" and self._next().kind == "op":
                self._call(lexeme)
            else:
                self._leaf(lexeme, word)
                self.prefixes = 0
                return

    def _prefix(self, lexeme: _Lexeme, kind: TokenType) -> None:
        self.prefixes += 1
        if self.prefixes > self.depth:
            self._fail(f"more than {self.depth} NOTs or signs in a row; remove them", lexeme, "limit")
        self._emit(kind, lexeme)

    def _open(self, lexeme: _Lexeme, level: _Level) -> None:
        if len(self.levels) > self.depth:
            self._fail(f"nested deeper than {self.depth}; flatten the filter", lexeme, "limit")
        self.prefixes = 0
        self.levels.append(level)
        self._emit(TokenType.L_PAREN, lexeme)

    def _call(self, lexeme: _Lexeme) -> None:
        name, paren = lexeme.text.lower(), self._take()
        if name not in FUNCTIONS:
            near = difflib.get_close_matches(name[:40], FUNCTIONS, n=1)
            self._fail(function_advice(lexeme.text, near[0] if near else None), lexeme, "unsupported")
        self.tokens.append(Token(TokenType.VAR, f"_{name}", start=lexeme.start, end=lexeme.end - 1))
        self._open(paren, _Level("call", lexeme.start, paren.end, name))
        if self._next().text == ")" and self._next().kind == "op":
            self._fail(check_count(name, FUNCTIONS[name], 0) or "", self._next(), "unsupported")

    def _leaf(self, lexeme: _Lexeme, word: str) -> None:
        span = (lexeme.start, lexeme.end)
        if lexeme.kind in ("string", "number"):
            self._add(Operand(span, slot=int(lexeme.text.strip("'"))))
        elif word in _CONSTANTS:
            self._add(Operand(span, name=None, value=_CONSTANTS[word], type=None if word == "NULL" else Type.BOOLEAN))
        elif word in _TYPED and self._next().kind == "string":
            literal = self._take()
            self._add(Operand((span[0], literal.end), slot=int(literal.text.strip("'")), type=_TYPED[word]))
        elif lexeme.kind == "quoted" or (word and word not in _RESERVED and not word_advice(word, reserved=True)):
            self._name(lexeme)
        else:
            self._misplaced(lexeme, word)

    def _name(self, first: _Lexeme) -> None:
        """An attribute, dots and all: `quote.bid`."""
        parts, last = [_plain(first)], first
        while self._next().text == "." and self._next().kind == "op":
            self._take()
            last = self._take()
            if last.kind not in ("word", "quoted"):
                self._fail("a name must follow the '.'", last)
            parts.append(_plain(last))
        if self._next().text == "(" and self._next().kind == "op":
            named = self.text[first.start : last.end]
            self._fail(function_advice(named, None), first, "unsupported", last.end)
        self._add(Operand((first.start, last.end), name=join_name(parts)))

    def _add(self, operand: Operand) -> None:
        start, end = operand.span
        self.tokens.append(Token(TokenType.IDENTIFIER, str(len(self.operands)), start=start, end=end - 1))
        self.operands.append(operand)

    def _misplaced(self, lexeme: _Lexeme, word: str) -> NoReturn:
        """No value, where one is wanted."""
        before = self.lexemes[self.at - 2] if self.at > 1 else None
        name = before if before is not None and before.text.upper() == "NOT" else lexeme  # NOT is taken for a prefix
        if name.kind == "word" and name.text.upper() in self.quoted_names:
            message = (
                f"{name.text} is a word of the language; if you mean the attribute, write `{name.text}` in backticks"
            )
            self._fail(message, name)
        if word == "SELECT" and before is None:
            self._fail("leave out SELECT ... WHERE; a filter is the condition alone", lexeme)
        advice = symbol_advice(lexeme.text) if lexeme.kind == "junk" else word_advice(word, reserved=True)
        if advice:
            self._fail(advice[0], lexeme, advice[1])
        if lexeme.kind == "end":
            self._fail(f"a value is missing at the end; {EXPECTED}", lexeme)
        if before is not None and before.text + lexeme.text in _SPLIT:
            self._fail(f"write {before.text}{lexeme.text} without a space", before, end=lexeme.end)
        hint = EXPECTED
        if before is not None and lexeme.text in _COMPARISONS and before.text.upper() in ("AND", "OR"):
            hint = "name the attribute again: price > 5 AND price < 10"
        self._fail(f"expected a value, found {_show(lexeme)}; {hint}", lexeme)

    # -- a value is there -----------------------------------------------------------------------------------------

    def _operator(self) -> bool:
        """Read one operator; False when an operand must follow, or the text has ended."""
        lexeme, level = self._take(), self.levels[-1]
        word = lexeme.text.upper() if lexeme.kind == "word" else ""
        if lexeme.kind == "op" and lexeme.text in _ARITHMETIC:
            self._emit(_ARITHMETIC[lexeme.text], lexeme)
        elif lexeme.kind == "op" and lexeme.text in _COMPARISONS:
            self._one_predicate(lexeme)
            self._emit(_COMPARISONS[lexeme.text], lexeme)
        elif word in ("AND", "OR") or (lexeme.kind == "op" and lexeme.text == ","):
            self._connective(lexeme, word)
        elif lexeme.kind == "op" and lexeme.text == ")":
            self._close(lexeme)
            return True
        elif word == "IS":
            return self._is(lexeme)
        elif word in _PREDICATES or word == "NOT":
            self._predicate(lexeme, word)
        elif lexeme.kind == "end":
            self._check_between(level)
            self.done = True
        else:
            self._unexpected(lexeme, word)
        return False

    def _one_predicate(self, lexeme: _Lexeme) -> None:
        level = self.levels[-1]
        if level.predicate:
            self._fail(
                f"{_show(lexeme)} follows another comparison; join two comparisons with AND, as 5 < price AND price < 10, "
                "or put parentheses around the first",
                lexeme,
            )
        level.predicate = True

    def _connective(self, lexeme: _Lexeme, word: str) -> None:
        level = self.levels[-1]
        if word == "AND" and level.between >= 0:
            level.between = -1
            self._emit(TokenType.AND, lexeme)
            return
        self._check_between(level)
        if not word:
            if level.kind not in ("call", "list"):
                before, after = self.lexemes[self.at - 2].kind, self._next().kind
                hint = "join conditions with AND or OR"
                if before == after == "number":
                    hint = "write a number without it: 1000, and 1.5 with a point"
                elif after in ("number", "string"):
                    hint = "list several values with IN ('a', 'b')"
                self._fail(f"unexpected ','; {hint}", lexeme)
            level.commas += 1
        level.restart()
        self._emit({"AND": TokenType.AND, "OR": TokenType.OR}.get(word, TokenType.COMMA), lexeme)

    def _close(self, lexeme: _Lexeme) -> None:
        level = self.levels[-1]
        self._check_between(level)
        if level.kind == "filter":
            self._fail("')' closes nothing; remove it or add '('", lexeme)
        wrong = check_count(level.name, FUNCTIONS[level.name], level.commas + 1) if level.kind == "call" else None
        if wrong:
            self._fail(wrong, _Lexeme("op", "(", level.start, lexeme.end), "unsupported")
        self.levels.pop()
        self._emit(TokenType.R_PAREN, lexeme)
        if level.kind == "list":
            self._end_of_predicate()

    def _is(self, lexeme: _Lexeme) -> bool:
        self._one_predicate(lexeme)
        self._emit(TokenType.IS, lexeme)
        if self._next().text.upper() == "NOT":
            self._emit(TokenType.NOT, self._take())
        following = self._take()
        word = following.text.upper() if following.kind == "word" else ""
        if word == "DISTINCT" and self._next().text.upper() == "FROM":
            self._emit(TokenType.DISTINCT, following)
            self._emit(TokenType.FROM, self._take())
            return False
        if word not in _CONSTANTS:
            self._fail("IS takes [NOT] NULL, TRUE or FALSE; compare values with = or <>", following)
        self._emit(_CONSTANT_TOKENS[word], following)
        self._end_of_predicate()
        return True

    def _predicate(self, lexeme: _Lexeme, word: str) -> None:
        if word == "NOT":
            self._emit(TokenType.NOT, lexeme)
            lexeme = self._take()
            word = lexeme.text.upper() if lexeme.kind == "word" else ""
            if word not in _PREDICATES:
                hint = (
                    "write IS NOT NULL"
                    if word == "NULL"
                    else "write NOT before the condition, or NOT IN, NOT LIKE, ..."
                )
                self._fail(f"misplaced NOT; {hint}", self.lexemes[self.at - 2])
        self._one_predicate(lexeme)
        self._emit(_PREDICATES[word], lexeme)
        if word == "BETWEEN":
            self.levels[-1].between = lexeme.start
        elif word == "IN":
            if self._next().text != "(" or self._next().kind != "op":
                array = self._next().kind in ("word", "quoted")
                hint = "; to look into an array, write array_contains(a, value)" if array else ""
                self._fail(f"IN needs its values in parentheses: IN ('a', 'b'){hint}", lexeme)
            paren = self._take()
            self._open(paren, _Level("list", paren.start, paren.end))

    def _end_of_predicate(self) -> None:
        """After IN (...) and IS NULL nothing but a connective, a comma or a parenthesis can come."""
        following = self._next()
        if following.kind == "op" and following.text in _ARITHMETIC:
            self._fail(f"unexpected {_show(following)} after a condition; join conditions with AND or OR", following)

    def _check_between(self, level: _Level) -> None:
        if level.between >= 0:
            at = _Lexeme("word", "BETWEEN", level.between, level.between + 7)
            self._fail("BETWEEN needs two bounds joined by AND: BETWEEN 1 AND 9", at)

    def _unexpected(self, lexeme: _Lexeme, word: str) -> NoReturn:
        """No operator, where one is wanted."""
        before, after = self.lexemes[self.at - 2], self._next()
        if lexeme.text + after.text in _SPLIT:
            self._fail(f"write {lexeme.text}{after.text} without a space", lexeme, end=after.end)
        junk = lexeme.kind == "junk"
        advice = symbol_advice(lexeme.text, after_value=True) if junk else word_advice(word) if word else None
        if advice is None and before.kind == "word":
            advice = word_advice(before.text.upper())
            if advice:
                lexeme = before
        if advice:
            self._fail(advice[0], lexeme, advice[1])
        if lexeme.kind == "string" and before.kind == "word" and before.end == lexeme.start:
            message = f"the string prefix {before.text!r} is not supported; write a plain string"
            self._fail(message, before, "unsupported", lexeme.end)
        missing = "an operator such as =, <, IN, AND or OR is missing before it"
        if self.levels[-1].kind in ("list", "call") and lexeme.kind in ("string", "number"):
            missing = "a comma or an operator is missing before it"
        if before.kind == "string" and before.end == lexeme.start:
            missing = "inside a string, double the quote: 'it''s'"
        self._fail(f"unexpected {_show(lexeme)}; {missing}", lexeme)

    # -- ends -----------------------------------------------------------------------------------------------------

    def _take(self) -> _Lexeme:
        lexeme = self._next()
        self.at += 1
        return lexeme

    def _next(self) -> _Lexeme:
        lexeme = self.lexemes[min(self.at, len(self.lexemes) - 1)]
        if lexeme.kind == "limit":
            self._fail(too_many_terms(self.at), lexeme, "limit")
        return lexeme

    def _emit(self, kind: TokenType, lexeme: _Lexeme) -> None:
        self.tokens.append(Token(kind, lexeme.text.upper(), start=lexeme.start, end=lexeme.end - 1))

    def _fail(self, message: str, lexeme: _Lexeme, reason: str = "syntax", end: int | None = None) -> NoReturn:
        if lexeme.kind == "end":  # nothing to point at there
            lexeme = self.lexemes[-2]
        raise FilterError(reason, message, text=self.text, start=lexeme.start, end=end or lexeme.end)


def _plain(lexeme: _Lexeme) -> str:
    return lexeme.text[1:-1].replace("``", "`") if lexeme.kind == "quoted" else lexeme.text


def _show(lexeme: _Lexeme) -> str:
    if lexeme.kind in ("string", "number"):
        return f"{lexeme.kind} literal"
    return repr(lexeme.text if len(lexeme.text) <= 40 else lexeme.text[:37] + "...")
