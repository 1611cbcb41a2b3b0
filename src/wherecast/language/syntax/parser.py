"""From a shape to a syntax tree, with Spark's precedence.

Theory of operation
-------------------
A shape is read once, lexeme by lexeme, by precedence climbing: every operator has a power, and `_expression(least)` reads an
operand and then all operators whose power is at least `least`, each with a right side that binds tighter. From the loosest:

    OR < AND < NOT < predicates (IN, LIKE, BETWEEN, IS) < comparisons < | < ^ < & < << >> >>> < + - || < * / % DIV < signs < [] ::

Those are the levels of Spark's grammar (`booleanExpression`, `predicate`, `valueExpression`, `primaryExpression`). It
follows, as in Spark, that comparisons chain to the left (`a = b IS NULL` is `(a = b) IS NULL`), that one predicate cannot
follow another (`a IS NULL IS NULL` is an error), and that NOT begins a condition and stands nowhere else.

What is not in the filter language has no place in the tree: a lexeme that may not come next is refused on the spot, with
what to write instead. Chains (`a OR b OR ...`) are read in a loop; what nests (parentheses, calls) is counted, so recursion
is bounded. The tree knows names and slots only; `sql` gives it types.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import NamedTuple, NoReturn

from wherecast.errors import FilterError
from wherecast.language.events.attributes import join_name
from wherecast.language.events.types import Type
from wherecast.language.expression import Span
from wherecast.language.functions.moments import EXTRACTED
from wherecast.language.functions.row import check_count
from wherecast.language.functions.table import FUNCTIONS
from wherecast.language.syntax.advice import EXPECTED, KEYWORDS, function_advice, symbol_advice, word_advice
from wherecast.language.syntax.lexemes import Lexeme, plain_name, read_lexemes, show_lexeme
from wherecast.language.syntax.limits import Limits
from wherecast.language.syntax.skeletons import Shape

#: Calls whose arguments have a syntax of their own.
_FORMS = frozenset({"exists", "forall", "cast", "try_cast"})
#: Functions that have words where others have commas; and what trim is with each of its words.
_WORDS = {
    "trim": ("FROM",),
    "position": ("IN",),
    **dict.fromkeys(("substring", "substr"), ("FROM", "FOR")),
}
_TRIMS = {"BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}
_OR, _AND, _NOT, _PREDICATE, _COMPARISON, _BIT_OR, _BIT_XOR, _BIT_AND, _SHIFT, _SUM, _PRODUCT = range(1, 12)
_COMPARISONS = {"=": "=", "==": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">=", "<=>": "<=>"}
_PREDICATES = {
    "LIKE": "like",
    "ILIKE": "ilike",
    "RLIKE": "rlike",
    "REGEXP": "rlike",
    "MATCHES": "matches",
    "BETWEEN": "",
    "IN": "",
}
#: Operators between two values, or after one, by how tightly they bind.
_POWERS = {
    "OR": _OR,
    "AND": _AND,
    **dict.fromkeys((*_PREDICATES, "IS", "NOT"), _PREDICATE),
    **dict.fromkeys(_COMPARISONS, _COMPARISON),
    "|": _BIT_OR,
    "^": _BIT_XOR,
    "&": _BIT_AND,
    **dict.fromkeys(("<<", ">>", ">>>"), _SHIFT),
    **dict.fromkeys(("+", "-", "||"), _SUM),
    **dict.fromkeys(("*", "/", "%", "DIV"), _PRODUCT),
}
#: Comparisons that people write with a space inside.
_SPLIT = frozenset(_COMPARISONS) - {"=", "==", "<", ">"}
_SIGNS = frozenset("-+~")
_QUANTIFIERS = frozenset({"ANY", "SOME", "ALL"})
_CONSTANTS = {"TRUE": True, "FALSE": False, "NULL": None}
_TYPED = {
    "DATE": Type.DATE,
    "TIMESTAMP": Type.TIMESTAMP,
    "TIMESTAMP_LTZ": Type.TIMESTAMP,
    "TIMESTAMP_NTZ": Type.TIMESTAMP_NTZ,
    "X": Type.BINARY,
}
#: Words that are operators wherever they stand.
_UNITS = frozenset("YEAR MONTH WEEK DAY HOUR MINUTE SECOND MILLISECOND MICROSECOND".split())  # noqa: SIM905
_RESERVED = {"AND", "OR", "NOT", "IS", *_PREDICATES} - {"REGEXP", "MATCHES"}


class Leaf(NamedTuple):
    """An attribute by name, a literal by slot (with its type if that was written), or TRUE, FALSE, NULL."""

    span: Span
    name: str | None = None
    slot: int | None = None
    type: Type | None = None
    value: bool | None = None
    negative: bool = False


class Branch(NamedTuple):
    """An operator with its operands. `op` is its word or sign, or `call`; `name` is that of a function, type or variable."""

    op: str
    items: tuple[Tree, ...]
    span: Span  # from the first operand to the last; of a call, all of it
    name: str = ""


Tree = Leaf | Branch


def keyword_names(names: Iterable[str]) -> frozenset[str]:
    """The names, in capitals, that a filter has to quote because they are words of the language."""
    return KEYWORDS & {name.upper() for name in names}


def parse_shape(shape: Shape, limits: Limits, quoted_names: frozenset[str] = frozenset()) -> Tree:
    """The tree of a shape, or the FilterError that its words and their order give.

    `quoted_names` are those of `keyword_names`: where one stands without backticks, the error says so.
    """
    terms = limits.terms
    lexemes = read_lexemes(shape, terms + 2)
    while lexemes[-1].kind == "end" and len(lexemes) > 1 and lexemes[-2].text == ";":  # the end of a statement
        del lexemes[-2]
    if len(lexemes) == 1:
        raise FilterError("syntax", "the filter is empty; write TRUE to match every event", text=shape.text)
    if len(lexemes) > terms + 1:  # what is wrong before that place is told first
        lexemes[terms:] = [lexemes[terms]._replace(kind="limit", text="", key="")]
    try:
        return _Parser(shape.text, lexemes, limits.depth, quoted_names).parse()
    except RecursionError:  # a limit beyond what Python can do
        raise FilterError("limit", "nested too deep; flatten the filter", text=shape.text) from None


def too_many_terms(limit: int) -> str:
    """What to say of a text with too many names, literals and signs."""
    return f"more than {limit} terms; split the filter, or list values with IN"


class _Parser:
    def __init__(self, text: str, lexemes: list[Lexeme], depth: int, quoted_names: frozenset[str]) -> None:
        self.text = text
        self.lexemes = lexemes
        self.depth = depth
        self.quoted_names = quoted_names
        self.at = 0
        self.lexeme = lexemes[0]  # the one to be read next
        self.opened = 0  # parentheses, brackets and CASEs around it
        self.nested = 0  # expressions around it
        self._check_limit()

    def parse(self) -> Tree:
        tree = self._expression()
        if self.lexeme.kind != "end":
            self._unexpected()
        return tree

    # -- operators ------------------------------------------------------------------------------------------------

    def _expression(self, least: int = 0) -> Tree:
        """An operand and all operators after it whose power is at least `least`."""
        self.nested += 1
        if self.nested > 2 * self.depth + 2:  # parentheses and operators are each limited to half of it
            self._fail_nested(self.lexeme)
        left = self._negation(least) if self.lexeme.key in ("NOT", "!") else self._signed()
        while (power := _POWERS.get(self.lexeme.key, -1)) >= least:
            if power == _PREDICATE:
                left = self._predicate(left)
                self._check_end_of_predicate()
            elif power <= _AND:
                left = self._chain(left, power)
            else:
                op = self._advance().key
                right = self._expression(power + 1)
                left = Branch(_COMPARISONS.get(op, op), (left, right), _hull(left, right))
        self.nested -= 1
        return left

    def _chain(self, first: Tree, power: int) -> Tree:
        """`a OR b OR c` is one operator with three operands."""
        op, items = self.lexeme.key, [first]
        while self.lexeme.key == op:
            self._advance()
            items.append(self._expression(power + 1))
        return Branch(op, tuple(items), _hull(first, items[-1]))

    def _negation(self, least: int) -> Tree:
        count = 0
        while self.lexeme.key in ("NOT", "!"):
            count = self._count_prefix(count)
            if least > _NOT:
                self._fail("a condition inside another needs parentheses around it", self.lexeme)
            self._advance()
        tree = self._expression(_NOT)
        for _ in range(count):
            tree = Branch("NOT", (tree,), tree.span)
        return tree

    def _signed(self) -> Tree:
        signs: list[str] = []
        while self.lexeme.key in _SIGNS and not (self.lexeme.key == "-" and self._peek().kind == "number"):
            self._count_prefix(len(signs))
            signs.append(self._advance().key)
        if signs and self.lexeme.key in ("NOT", "!"):
            self._fail("a condition inside another needs parentheses around it", self.lexeme)
        tree = self._postfixed(self._primary())
        for sign in reversed(signs):
            tree = Branch(f"sign {sign}", (tree,), tree.span)
        return tree

    def _postfixed(self, tree: Tree) -> Tree:
        """`a[0]` and `a::int`, in any number."""
        while self.lexeme.key in ("[", "::"):
            if self.lexeme.key == "::":
                self._advance()
                name, end = self._type()
                tree = Branch("cast", (tree,), (tree.span[0], end), name)
                continue
            opening = self._open()
            index = self._expression(_COMPARISON)
            if self.lexeme.key != "]":
                if self.lexeme.kind == "end":
                    self._fail("'[' is never closed; add ']'", opening)
                self._unexpected()
            self.opened -= 1
            tree = Branch("[]", (tree, index), (tree.span[0], self._advance().end))
        return tree

    def _count_prefix(self, count: int) -> int:
        if count >= self.depth:
            self._fail(f"more than {self.depth} NOTs or signs in a row; remove them", self.lexeme, "limit")
        return count + 1

    def _check_end_of_predicate(self) -> None:
        """After IN (...) and IS NULL nothing but a connective, a comma or a parenthesis can come."""
        power, shown = _POWERS.get(self.lexeme.key, 0), show_lexeme(self.lexeme)
        if power in (_PREDICATE, _COMPARISON):
            self._fail(
                f"{shown} follows another comparison; join two comparisons with AND, as 5 < price AND price < 10, "
                "or put parentheses around the first",
                self.lexeme,
            )
        if power > _COMPARISON:
            self._fail(f"unexpected {shown} after a condition; join conditions with AND or OR", self.lexeme)

    # -- predicates -----------------------------------------------------------------------------------------------

    def _predicate(self, item: Tree) -> Tree:
        if self.lexeme.key == "IS":
            return self._is(item)
        negation = self._advance() if self.lexeme.key == "NOT" else None
        word = self.lexeme.key
        if word not in _PREDICATES:
            assert negation is not None, "only NOT leads to another word"
            hint = "write IS NOT NULL" if word == "NULL" else "write NOT before the condition, or NOT IN, NOT LIKE, ..."
            self._fail(f"misplaced NOT; {hint}", negation)
        lexeme = self._advance()
        if word == "BETWEEN":
            tree = self._between(item, lexeme)
        elif word == "IN":
            tree = self._in(item, lexeme)
        elif self.lexeme.key in _QUANTIFIERS and self._peek().key == "(" and word in ("LIKE", "ILIKE"):
            return self._quantified(item, word, is_negated=negation is not None)
        else:
            tree = self._like(item, word)
        return tree if negation is None else Branch("NOT", (tree,), tree.span)

    def _like(self, item: Tree, word: str) -> Tree:
        pattern = self._expression(_COMPARISON)
        if self.lexeme.key == "ESCAPE":  # `skeletons` has rewritten the pattern and taken the character out
            escape = self._advance()
            if self.lexeme.kind == "string" or word not in ("LIKE", "ILIKE"):
                message = "ESCAPE needs one character behind a literal pattern; there it stands before %, _ or itself"
                self._fail(message, escape, end=self.lexeme.end)
        return Branch(_PREDICATES[word], (item, pattern), _hull(item, pattern))

    def _quantified(self, item: Tree, word: str, *, is_negated: bool) -> Tree:
        """`a LIKE ANY ('x%', 'y%')`: one LIKE for each pattern, joined by OR, and by AND for ALL. NOT negates each of them."""
        quantifier = self._advance()
        paren = self._open()
        if self.lexeme.key == ")":
            self._fail(f"{quantifier.text} needs at least one pattern: ('a%', 'b%')", self.lexeme)
        patterns = self._listed(paren)
        self._close(paren)
        op = "LIKE ALL" if quantifier.key == "ALL" else "LIKE ANY"
        kind = _PREDICATES[word]
        return Branch(op, (item, *patterns), _hull(item, patterns[-1]), f"not {kind}" if is_negated else kind)

    def _between(self, item: Tree, between: Lexeme) -> Tree:
        low = self._expression(_COMPARISON)
        if self.lexeme.key != "AND":
            if self.lexeme.kind == "end" or self.lexeme.key in ("OR", ")", ","):
                self._fail("BETWEEN needs two bounds joined by AND: BETWEEN 1 AND 9", between)
            self._check_end_of_predicate()
            self._unexpected()
        self._advance()
        high = self._expression(_COMPARISON)
        return Branch("BETWEEN", (item, low, high), _hull(item, high))

    def _in(self, item: Tree, lexeme: Lexeme) -> Tree:
        if self.lexeme.key != "(":
            array = self.lexeme.kind in ("word", "quoted")
            hint = "; to look into an array, write array_contains(a, value)" if array else ""
            self._fail(f"IN needs its values in parentheses: IN ('a', 'b'){hint}", lexeme)
        paren = self._open()
        if self.lexeme.key == ")":
            self._fail("IN needs at least one value: IN (1, 2)", self.lexeme)
        listed = self._listed(paren)
        self._close(paren)
        return Branch("IN", (item, *listed), _hull(item, listed[-1]))

    def _is(self, item: Tree) -> Tree:
        self._advance()
        negated = self.lexeme.key == "NOT"
        if negated:
            self._advance()
        lexeme = self.lexeme
        if lexeme.key == "DISTINCT" and self._peek().key == "FROM":
            self._advance()
            self._advance()
            other = self._expression(_COMPARISON)
            tree = Branch("<=>", (item, other), _hull(item, other))
            negated = not negated
        elif lexeme.key in _CONSTANTS or lexeme.key == "UNKNOWN":
            self._advance()
            tree = Branch(f"IS {lexeme.key}", (item,), item.span)
        else:
            self._fail("IS takes [NOT] NULL, TRUE, FALSE or UNKNOWN; compare values with = or <>", lexeme)
        return Branch("NOT", (tree,), tree.span) if negated else tree

    # -- operands -------------------------------------------------------------------------------------------------

    def _primary(self) -> Tree:
        lexeme = self.lexeme
        if lexeme.kind in ("string", "number"):
            self._advance()
            return _literal(lexeme)
        if lexeme.key == "-" and self._peek().kind == "number":
            self._advance()
            return _literal(self._advance(), negative=True)
        if lexeme.key == "(":
            paren = self._open()
            tree = self._expression()
            self._close(paren)
            return tree
        if lexeme.kind == "quoted":
            return self._name()
        return self._word() if lexeme.kind == "word" else self._misplaced()

    def _word(self) -> Tree:
        lexeme, word = self.lexeme, self.lexeme.key
        if word in _RESERVED:
            self._misplaced()
        after = self._peek()
        if after.key == "(":
            return self._call()
        if word == "CASE" and self.nested:
            return self._case()
        if word == "R" and after.kind == "string" and after.start == lexeme.end:
            self._advance()
            return _literal(self._advance(), start=lexeme.start)
        if word == "INTERVAL" and self._is_interval():
            return self._interval()
        if word in _CONSTANTS:
            self._advance()
            kind = None if word == "NULL" else Type.BOOLEAN
            return Leaf((lexeme.start, lexeme.end), value=_CONSTANTS[word], type=kind)
        if word in _TYPED and after.kind == "string":
            self._advance()
            return _literal(self._advance(), _TYPED[word], lexeme.start)
        return self._misplaced() if word_advice(word, reserved=True) else self._name()

    def _name(self) -> Tree:
        """An attribute, dots and all: `quote.bid`."""
        first = last = self._advance()
        parts = [plain_name(first)]
        while self.lexeme.key == ".":
            self._advance()
            last = self.lexeme
            if last.kind not in ("word", "quoted"):
                self._fail("a name must follow the '.'", last)
            parts.append(plain_name(last))
            self._advance()
        if self.lexeme.key == "(":
            named = self.text[first.start : last.end]
            self._fail(function_advice(named, None), first, "unsupported", last.end)
        return Leaf((first.start, last.end), name=join_name(parts))

    def _case(self) -> Tree:
        """The operand of a CASE, if it has one, is the first item; then come pairs and, at the end, what ELSE gives or NULL."""
        start = self._open()
        items = [] if self.lexeme.key == "WHEN" else [self._expression()]
        has_operand = bool(items)
        if self.lexeme.key != "WHEN":
            self._fail_case(start, "WHEN")
        while self.lexeme.key == "WHEN":
            self._advance()
            items.append(self._expression())
            if self.lexeme.key != "THEN":
                self._fail_case(start, "THEN")
            self._advance()
            items.append(self._expression())
        if self.lexeme.key == "ELSE":
            self._advance()
            items.append(self._expression())
        else:
            items.append(Leaf((self.lexeme.start, self.lexeme.end)))
        if self.lexeme.key != "END":
            self._fail_case(start, "END")
        self.opened -= 1
        span = (start.start, self._advance().end)
        return Branch("CASE of" if has_operand else "CASE", tuple(items), span)

    def _fail_case(self, start: Lexeme, missing: str) -> NoReturn:
        if self.lexeme.kind == "end" or self.lexeme.key in ("WHEN", "THEN", "ELSE", "END", ")", ","):
            hint = "write CASE WHEN price > 5 THEN 'high' ELSE 'low' END"
            self._fail(f"CASE without its {missing}; {hint}", start)
        self._unexpected()

    def _is_interval(self) -> bool:
        """Whether INTERVAL begins a literal: `interval - 3 > 1` speaks of an attribute."""
        at = self.at + 1 + (self.lexemes[self.at + 1].key == "-")
        follows = self.lexemes[at : at + 2]
        if at > self.at + 1:
            return len(follows) == 2 and follows[0].kind == "number" and follows[1].key.rstrip("S") in _UNITS
        return follows[0].kind in ("string", "number")

    def _interval(self) -> Tree:
        """`INTERVAL 1 DAY 2 HOURS` and `INTERVAL '1 2' DAY TO HOUR`: amounts with their units, to be added."""
        start = self._advance()
        parts: list[Tree] = []
        while self.lexeme.kind in ("string", "number") or (self.lexeme.key == "-" and self._peek().kind == "number"):
            negative = self.lexeme.key == "-"
            if negative:
                self._advance()
            amount = _literal(self._advance(), negative=negative)
            unit = self.lexeme
            if unit.kind != "word" or unit.key.rstrip("S") not in _UNITS:
                self._fail("an interval needs a unit: INTERVAL 10 MINUTES or INTERVAL '1' DAY", start)
            name, end = self._advance().key.rstrip("S"), unit.end
            if self.lexeme.key == "TO" and self._peek().key.rstrip("S") in _UNITS:
                self._advance()
                end, name = self.lexeme.end, f"{name} TO {self._advance().key.rstrip('S')}"
            parts.append(Branch("interval part", (amount,), (amount.span[0], end), name))
        if not parts:
            self._fail("an interval needs an amount and a unit: INTERVAL 10 MINUTES", start)
        return Branch("INTERVAL", tuple(parts), (start.start, parts[-1].span[1]))

    def _type(self) -> tuple[str, int]:
        """The name of a type, in lower case, and where it ends."""
        lexeme = self.lexeme
        if lexeme.kind != "word":
            self._fail(
                f"expected a type, found {show_lexeme(lexeme)}; write a type such as BIGINT or DECIMAL(10, 2)", lexeme
            )
        self._advance()
        name, end = lexeme.text.lower(), lexeme.end
        if self.lexeme.key == "(":
            while self.lexeme.key != ")":
                if self.lexeme.kind not in ("junk", "number") and self.lexeme.key not in ("(", ","):
                    self._fail("the digits of a type are two numbers, as in DECIMAL(10, 2)", lexeme)
                name += self._advance().text
            name, end = f"{name})", self._advance().end
        return name, end

    def _cast(self, lexeme: Lexeme, opening: Lexeme) -> Tree:
        item = self._expression()
        if self.lexeme.key != "AS":
            if self.lexeme.kind in ("word", "end") or self.lexeme.key in (")", ","):
                self._fail(f"{lexeme.text} needs a value and a type: {lexeme.text}(a AS BIGINT)", lexeme)
            self._unclosed(opening)
        self._advance()
        name, _ = self._type()
        return Branch("cast", (item,), (lexeme.start, self._close(opening).end), name)

    def _lambda(self) -> Tree:
        """`x -> condition`, as an argument of exists and forall."""
        if not (self.lexeme.kind in ("word", "quoted") and self._peek().key == "->"):
            self._fail("expected a lambda, such as x -> x > 5", self.lexeme)
        variable = self._advance()
        self._advance()
        body = self._expression()
        return Branch("lambda", (body,), (variable.start, body.span[1]), plain_name(variable))

    def _call(self) -> Tree:
        lexeme = self._advance()
        name = lexeme.text.lower()
        if name not in FUNCTIONS and name not in _FORMS:
            near = difflib.get_close_matches(name[:40], (*FUNCTIONS, *_FORMS), n=1)
            self._fail(function_advice(lexeme.text, near[0] if near else None), lexeme, "unsupported")
        opening = lexeme._replace(end=self.lexeme.end)
        self._open()
        if name in _FORMS:
            return self._form(lexeme, name, opening)
        if name == "extract":
            return self._extract(lexeme, opening)
        if name in _WORDS:
            name, items = self._with_words(name, opening)
        elif name == "similar":
            items = self._similar(opening)
        else:
            items = self._listed(opening) if self.lexeme.key != ")" else ()
        wrong = check_count(name, FUNCTIONS[name], len(items))
        if wrong:
            at = lexeme if items else self.lexeme
            self._fail(wrong, at, "unsupported", self.lexeme.end)
        return Branch("call", items, (lexeme.start, self._close(opening).end), name)

    def _extract(self, lexeme: Lexeme, opening: Lexeme) -> Tree:
        """`extract(YEAR FROM t)` is `year(t)`; a few units have no function."""
        unit = self.lexeme.key
        if unit not in EXTRACTED or self._peek().key != "FROM":
            message = "extract needs a unit and a moment: extract(HOUR FROM t)"
            self._fail(message, lexeme, "unsupported", self.lexeme.end)
        self._advance()
        self._advance()
        items = (self._expression(),)
        span = (lexeme.start, self._close(opening).end)
        if EXTRACTED[unit] in FUNCTIONS:
            return Branch("call", items, span, EXTRACTED[unit])
        return Branch("extract", items, span, EXTRACTED[unit])

    def _with_words(self, name: str, opening: Lexeme) -> tuple[str, tuple[Tree, ...]]:
        """Arguments with words for commas: `trim(BOTH 'x' FROM s)`, `position('a' IN s)`, `substring(s FROM 1 FOR 2)`."""
        if name == "trim" and self.lexeme.key in _TRIMS and self._peek().key not in (",", ")", "||", "."):
            name = _TRIMS[self._advance().key]
            if self.lexeme.key == "FROM":
                self._advance()
                return name, self._listed(opening)
        if self.lexeme.key == ")":
            return name, ()
        items, words = [self._expression(_COMPARISON)], _WORDS.get(name, ("FROM",))
        while self.lexeme.key == "," or self.lexeme.key in words:
            self._advance()
            items.append(self._expression(_COMPARISON))
        if self.lexeme.key != ")":
            self._unclosed(opening, is_list=True)
        return name, tuple(items)

    def _similar(self, opening: Lexeme) -> tuple[Tree, ...]:
        """`SIMILAR(a, ARRAY(...))`: all numbers between the inner parentheses are one literal, a text of `skeletons`."""
        if self.lexeme.key == ")":
            return ()
        items = [self._expression()]
        if self.lexeme.key != ",":
            return (items[0],) if self.lexeme.key == ")" else self._unclosed(opening, is_list=True)
        self._advance()
        if self.lexeme.key != "ARRAY" or self._peek().key != "(":
            return (*items, *self._listed(opening))
        array = self._advance()
        paren = self._open()
        if self.lexeme.kind != "string":
            self._fail("SIMILAR needs a vector of numbers: SIMILAR(a, ARRAY(0.1, 0.2))", array, end=self.lexeme.end)
        items.append(_literal(self._advance(), Type.VECTOR, array.start))
        self._close(paren)
        return tuple(items)

    def _form(self, lexeme: Lexeme, name: str, opening: Lexeme) -> Tree:
        if name in ("cast", "try_cast"):
            return self._cast(lexeme, opening)
        if self.lexeme.key == "SELECT":
            self._misplaced()
        array = self._expression()
        if self.lexeme.key != ",":
            if self.lexeme.key == ")":
                message = f"{name} takes an array and a lambda: {name}(a, x -> x > 5)"
                if name == "exists":
                    message += "; to ask whether a value is there, write a IS NOT NULL"
                self._fail(message, lexeme, "unsupported", self.lexeme.end)
            self._unclosed(opening)
        self._advance()
        function = self._lambda()
        return Branch(name, (array, function), (lexeme.start, self._close(opening).end))

    def _listed(self, opening: Lexeme) -> tuple[Tree, ...]:
        """Expressions between commas, up to the parenthesis."""
        items = [self._expression()]
        while self.lexeme.key == ",":
            self._advance()
            items.append(self._expression())
        if self.lexeme.key != ")":
            self._unclosed(opening, is_list=True)
        return tuple(items)

    def _open(self) -> Lexeme:
        if self.opened >= self.depth:
            self._fail_nested(self.lexeme)
        self.opened += 1
        return self._advance()

    def _close(self, opening: Lexeme) -> Lexeme:
        if self.lexeme.key != ")":
            self._unclosed(opening)
        self.opened -= 1
        return self._advance()

    # -- errors ---------------------------------------------------------------------------------------------------

    def _misplaced(self) -> NoReturn:
        """No value, where one is wanted."""
        lexeme, word = self.lexeme, self.lexeme.key if self.lexeme.kind == "word" else ""
        before = self.lexemes[self.at - 1] if self.at else None
        # NOT is taken for a prefix, and CASE for the beginning of one.
        name = before if before is not None and before.key in ("NOT", "CASE") else lexeme
        if name.kind == "word" and name.key in self.quoted_names:
            message = (
                f"{name.text} is a word of the language; if you mean the attribute, write `{name.text}` in backticks"
            )
            self._fail(message, name)
        if word == "SELECT" and before is None:
            self._fail("leave out SELECT ... WHERE; a filter is the condition alone", lexeme)
        junk = lexeme.kind == "junk" or lexeme.key in ("->", "[", "]", "::")
        advice = symbol_advice(lexeme.text) if junk else word_advice(word, reserved=True)
        if advice:
            self._fail(advice[0], lexeme, advice[1])
        if lexeme.kind == "end":
            self._fail(f"a value is missing at the end; {EXPECTED}", lexeme)
        if before is not None and before.text + lexeme.text in _SPLIT:
            self._fail(f"write {before.text}{lexeme.text} without a space", before, end=lexeme.end)
        hint = EXPECTED
        if before is not None and lexeme.text in _COMPARISONS and before.key in ("AND", "OR"):
            hint = "name the attribute again: price > 5 AND price < 10"
        self._fail(f"expected a value, found {show_lexeme(lexeme)}; {hint}", lexeme)

    def _unclosed(self, opening: Lexeme, *, is_list: bool = False) -> NoReturn:
        if self.lexeme.kind == "end":
            self._fail("'(' is never closed; add ')'", opening)
        self._unexpected(is_list=is_list)

    def _unexpected(self, *, is_list: bool = False) -> NoReturn:
        """No operator, where one is wanted."""
        lexeme, before, after = self.lexeme, self.lexemes[self.at - 1], self._peek()
        word = lexeme.key if lexeme.kind == "word" else ""
        if lexeme.key == ")":
            self._fail("')' closes nothing; remove it or add '('", lexeme)
        if lexeme.key == ",":
            self._fail(f"unexpected ','; {_comma_hint(before, after)}", lexeme)
        if lexeme.text + after.text in _SPLIT:
            self._fail(f"write {lexeme.text}{after.text} without a space", lexeme, end=after.end)
        junk = lexeme.kind == "junk" or lexeme.key in ("->", "~", "[", "]", "::")
        advice = symbol_advice(lexeme.text, after_value=True) if junk else word_advice(word) if word else None
        if advice is None and before.kind == "word":
            advice = word_advice(before.key)
            if advice:
                lexeme = before
        if advice:
            self._fail(advice[0], lexeme, advice[1])
        if lexeme.kind == "string" and before.kind == "word" and before.end == lexeme.start:
            message = f"the string prefix {before.text!r} is not supported; write a plain string"
            self._fail(message, before, "unsupported", lexeme.end)
        missing = "an operator such as =, <, IN, AND or OR is missing before it"
        if is_list and lexeme.kind in ("string", "number"):
            missing = "a comma or an operator is missing before it"
        if before.kind == "string" and before.end == lexeme.start:
            missing = "inside a string, double the quote: 'it''s'"
        self._fail(f"unexpected {show_lexeme(lexeme)}; {missing}", lexeme)

    def _fail_nested(self, lexeme: Lexeme) -> NoReturn:
        self._fail(f"nested deeper than {self.depth}; flatten the filter", lexeme, "limit")

    def _fail(self, message: str, lexeme: Lexeme, reason: str = "syntax", end: int | None = None) -> NoReturn:
        if lexeme.kind == "end":  # nothing to point at there
            lexeme = self.lexemes[-2]
        raise FilterError(reason, message, text=self.text, start=lexeme.start, end=end or lexeme.end)

    # -- lexemes --------------------------------------------------------------------------------------------------

    def _advance(self) -> Lexeme:
        """The lexeme that was next; now the one after it is."""
        lexeme = self.lexeme
        self.at += 1
        self.lexeme = self.lexemes[self.at]
        if self.lexeme.kind == "limit":
            self._check_limit()
        return lexeme

    def _peek(self) -> Lexeme:
        """The lexeme after the next one."""
        return self.lexemes[min(self.at + 1, len(self.lexemes) - 1)]

    def _check_limit(self) -> None:
        if self.lexeme.kind == "limit":
            self._fail(too_many_terms(self.at), self.lexeme, "limit")


def _literal(lexeme: Lexeme, kind: Type | None = None, start: int | None = None, *, negative: bool = False) -> Leaf:
    span = (lexeme.start if start is None else start, lexeme.end)
    return Leaf(span, slot=int(lexeme.text.strip("'")), type=kind, negative=negative)


def _hull(first: Tree, last: Tree) -> Span:
    return first.span[0], last.span[1]


def _comma_hint(before: Lexeme, after: Lexeme) -> str:
    if before.kind == after.kind == "number":
        return "write a number without it: 1000, and 1.5 with a point"
    return (
        "list several values with IN ('a', 'b')"
        if after.kind in ("number", "string")
        else "join conditions with AND or OR"
    )
