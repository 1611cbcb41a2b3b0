r"""Splitting a filter text into its skeleton and its literals.

Theory of operation
-------------------
A million filters are seldom a million different sentences: they are a few sentences with other constants in them.
So a text is first cut at its literals,

    symbol = 'IBM' AND price < 120.5   ->   ("symbol = ", " AND price < ", "")  and  ("'IBM'", "120.5")

and only the skeleton, with numbered placeholders in place of the literals, is ever parsed. One regular expression
does the cut in a single C call; a text with anything unusual in it (a backslash, a back-quoted name, a double quote,
a comment) takes the careful path, which knows those tokens and produces the same form.

The vector in `SIMILAR(a, ARRAY(0.1, 0.2))` is one literal, too: the text `'[0.1, 0.2]'`, brackets and quotes added.

The values of an IN list are one literal, a `tuple`, so lists of different lengths share a skeleton and the cost of
parsing does not depend on their length.

Placeholders are ordinary SQL literals whose text is the number of the slot: `'3'` for a string, `3` for a number.
A literal keeps the form of its source (`'IBM'` with its quotes, escapes undone), so its first character tells its kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, TypeVar

#: A literal as cut from the text: strings keep their opening and closing quote, an IN list is a tuple of literals.
LiteralText = str | tuple[str, ...]
Span = tuple[int, int]

# A number may not touch a name on its left (`a1`, `t.1`); what follows the first digit is checked when it is read.
_NUMBER_TAIL = r"(?<![\w.$].)(?:(?<=[0-9])|(?<=\.)(?=[0-9]))[0-9.]*(?:[eE][+-]?[0-9]+)?(?:BD|bd|[LlDdFfSsYy])?(?![\w.])"
_NUMBER = rf"[0-9.]{_NUMBER_TAIL}"
# One leading character class lets the engine skip to the next literal; the plain alternation is half as fast.
# Every repetition is possessive: a hostile text costs one pass, not one pass per character.
_FAST_CUT = re.compile(rf"(['0-9.](?:(?<=')[^']*+(?:''[^']*+)*+'|{_NUMBER_TAIL}))")
# What has no end is left in the skeleton, where the parser finds it; a hint /*+ is not a comment in Spark either.
_CAREFUL = re.compile(
    rf"""(?P<head>\b[sS][iI][mM][iI][lL][aA][rR]\s*+\((?:[^()'"`,]|`(?:[^`]|``)*+`)*+,\s*+[aA][rR][rR][aA][yY]\s*+\()(?P<vector>[^()'"`]*+)(?=\))
    |(?P<comment>--(?:\\\n|[^\r\n])*+|/\*(?!\+)(?:[^*]|\*(?!/))*+\*/)
    |(?P<quoted>`(?:[^`]|``)*+`)
    |(?<!\w)[rR](?P<raw>'[^']*+'|"[^"]*+")
    |(?P<string>'(?:[^'\\]|\\.|'')*+'|"(?:[^"\\]|\\.|"")*+")
    |(?P<number>{_NUMBER})
    |(?P<open>(?:/\*|[`'"]).*)""",
    re.VERBOSE | re.DOTALL,
)
_IN_OPENS = re.compile(r"\bin\s*+\(\s*+(-?)\s*+$", re.IGNORECASE)
_PLAIN_COMMAS = frozenset((",", ", "))
_LIST_COMMA = re.compile(r"\s*+,\s*+(-?)\s*+$")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2}|.)", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


#: The text between the literals, one part more than there are literals.
Skeleton = tuple[str, ...]
Cut = tuple[Skeleton, tuple[LiteralText, ...]]


def cut_text(text: str) -> Cut:
    """Cut a filter at its literals: its skeleton and the literals."""
    unusual = (
        "\\" in text
        or "`" in text
        or '"' in text
        or "--" in text
        or "/*" in text
        or ("''" in text and "r'" in text.lower())
        or ("," in text and "array" in text.lower() and "similar" in text.lower())
    )
    sizes: list[int] = []
    parts: list[str] = _split_carefully(text, sizes) if unusual else _FAST_CUT.split(text)
    if len(parts) > 1 and has_static_literal(text):
        parts = _without_static(parts, sizes or [len(literal) for literal in parts[1::2]])
    if "," in text:
        return _gather_lists(parts)
    return tuple(parts[::2]), tuple(parts[1::2])


Text = TypeVar("Text", bound=LiteralText)


class TextNumbers(dict[Text, int]):
    """Texts by number, in the order in which they are asked for."""

    def __missing__(self, text: Text) -> int:
        number = self[text] = len(self)
        return number


def has_static_literal(text: str) -> bool:
    """Whether a text may have a literal that belongs to its shape."""
    # Written out: a loop over the words takes four times as long, and this is asked of every text.
    return (
        "scape" in text
        or "ESCAPE" in text
        or "ecimal(" in text
        or "ECIMAL(" in text
        or "ecimal (" in text
        or "ECIMAL (" in text
        or "umeric(" in text
        or "UMERIC(" in text
    )


_DIGITS_OPEN = re.compile(r"\b(?:decimal|numeric)\s*\(\s*$", re.IGNORECASE)
_DIGITS_COMMA = re.compile(r"\s*,\s*")
_ESCAPE_WORD = re.compile(r"\s*escape\s*", re.IGNORECASE)


def _without_static(parts: list[str], sizes: list[int]) -> list[str]:
    """Literals that belong to the shape: the digits of a type stay in the text, the character of ESCAPE in its pattern.

    `sizes` are those of the literals as they were written: blanks keep every later position where it was.
    """
    out = [parts[0]]
    for i in range(1, len(parts), 2):
        literal, after = parts[i], parts[i + 1]
        if _DIGITS_OPEN.search(out[-1]) or (
            i > 1 and _DIGITS_COMMA.fullmatch(parts[i - 1]) and out[-1].endswith(parts[i - 2] + parts[i - 1])
        ):
            out[-1] += literal + after
            continue
        if len(out) > 1 and _ESCAPE_WORD.fullmatch(out[-1]) and out[-2].startswith("'"):
            pattern = _with_backslashes(out[-2][1:-1], literal[1:-1].replace("''", "'"))
            if pattern is not None and literal.startswith("'"):
                out[-2] = f"'{pattern}'"
                out[-1] += " " * sizes[i // 2] + after
                continue
        out += [literal, after]
    return out


def _with_backslashes(pattern: str, escape: str) -> str | None:
    """A LIKE pattern that escapes with a backslash instead of another character; None if it is none."""
    if len(escape) != 1:
        return None
    out, chars = [], iter(pattern.replace("''", "'"))
    for char in chars:
        if char != escape:
            out.append("\\\\" if char == "\\" else char)
            continue
        escaped = next(chars, "")
        if not escaped or escaped not in ("%", "_", escape):
            return None
        out.append(f"\\{escaped}" if escaped in "%_\\" else escaped)
    return "".join(out).replace("'", "''")


def find_surrogate(text: str) -> int:
    """Where half a character stands, or -1."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return -1


def _split_carefully(text: str, sizes: list[int]) -> list[str]:
    """Text and literals in turn; `sizes` gets the length of each literal as it was written."""
    parts, plain, at = [], [], 0
    for token in _CAREFUL.finditer(text):
        plain.append(text[at : token.start()])
        at = token.end()
        found = token.group()
        if token.lastgroup == "comment":
            plain.append(" " * len(found))  # keeps every later position where it was
        elif token.lastgroup in ("quoted", "open"):
            plain.append(found)
        elif token.lastgroup == "vector":
            parts += ["".join(plain) + token["head"], f"'[{token['vector']}]'"]
            sizes.append(len(token["vector"]))
            plain = []
        elif token.lastgroup == "raw":
            body = found[2:-1].replace("'", "''")
            parts += ["".join(plain) + found[0], f"'{body}'"]
            sizes.append(len(found) - 1)
            plain = []
        else:
            sizes.append(len(found))
            parts += ["".join(plain), _unescape(found) if token.lastgroup == "string" else found]
            plain = []
    plain.append(text[at:])
    return [*parts, "".join(plain)]


def _unescape(quoted: str) -> str:
    """Undo Spark SQL's escapes; the result is in the plain form, single quotes doubled."""
    quote, body = quoted[0], quoted[1:-1]
    if "\\" not in body:
        return quoted if quote == "'" else "'" + body.replace('""', '"').replace("'", "''") + "'"
    # A doubled quote must not meet the backslash rule: `\''` is an escaped quote followed by the end.
    body = re.sub(
        rf"\\.|{quote}{quote}", lambda m: m.group() if m.group()[0] == "\\" else "\\" + quote, body, flags=re.DOTALL
    )
    body = _ESCAPE.sub(_undo_escape, body)
    if not body.isascii():  # a pair of escaped surrogates is one character; a lone one Java writes as '?'
        body = body.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        body = _SURROGATE.sub("?", body)
    return "'" + body.replace("'", "''") + "'"


def _undo_escape(match: re.Match[str]) -> str:
    what = match.group(1)
    if what[0] in "uU" and len(what) > 1:
        point = int(what[1:], 16)
        return chr(point) if point <= 0x10FFFF else "\ufffd"
    if len(what) == 3:
        return chr(int(what, 8))
    return _ESCAPED.get(what, what)


def _gather_lists(parts: list[str]) -> Cut:
    """Make each run of literals inside `IN ( ... )` one literal."""
    skeleton: list[str] = [parts[0]]
    literals: list[LiteralText] = []
    i = 1
    while i < len(parts):
        opens = _IN_OPENS.search(skeleton[-1]) if "," in parts[i + 1] else None
        end = i
        if opens:
            while end + 2 < len(parts) and (parts[end + 1] in _PLAIN_COMMAS or _LIST_COMMA.match(parts[end + 1])):
                end += 2
        if opens and end > i and parts[end + 1].lstrip().startswith(")"):
            values = parts[i : end + 1 : 2]
            if opens.group(1) or not _PLAIN_COMMAS.issuperset(parts[i + 1 : end : 2]):
                signs = [opens.group(1), *(_sign(parts[k]) for k in range(i + 1, end, 2))]
                values = [s + v for s, v in zip(signs, values, strict=True)]
            literals.append(tuple(values))
            skeleton[-1] = skeleton[-1][: opens.start(1)]
            i = end
        else:
            literals.append(parts[i])
        skeleton.append(parts[i + 1])
        i += 2
    return tuple(skeleton), tuple(literals)


def _sign(comma: str) -> str:
    match = _LIST_COMMA.match(comma)
    return match.group(1) if match else ""


def is_vector(literal: LiteralText) -> bool:
    """Whether a literal is the vector of a SIMILAR, or a text that looks like one."""
    return isinstance(literal, str) and literal.startswith("'[")


def is_string(literal: LiteralText) -> bool:
    """Whether a literal (or the first value of a list) is a string."""
    first = literal if isinstance(literal, str) else literal[0]
    return first.startswith("'")


class Shape(NamedTuple):
    """A skeleton with placeholders: what is parsed."""

    text: str
    #: offsets of each placeholder in `text`, (start, end)
    spans: tuple[Span, ...]


def shape_of(skeleton: Skeleton, strings: tuple[bool, ...]) -> Shape:
    """The SQL text that stands for all filters of one skeleton; `strings[i]` tells whether slot i is a string."""
    out, spans, at = [skeleton[0]], [], len(skeleton[0])
    for slot, (string, after) in enumerate(zip(strings, skeleton[1:], strict=True)):
        mark = f"'{slot}'" if string else str(slot)
        spans.append((at, at + len(mark)))
        out += [mark, after]
        at += len(mark) + len(after)
    return Shape("".join(out), tuple(spans))


def locate(text: str, shape: Shape, start: int, end: int) -> tuple[int, int]:
    """Map offsets in a shape's text to offsets in the filter text it came from (for error messages only)."""
    spans = list(zip(shape.spans, literal_spans(text), strict=True))
    first, last = _moved(start, spans, is_end=False), _moved(end, spans, is_end=True)
    return first, max(first, last)


def _moved(offset: int, spans: list[tuple[Span, Span]], *, is_end: bool) -> int:
    """An offset beside or inside a placeholder; inside, it is that end of the literal."""
    for (begin, stop), (first, last) in reversed(spans):
        if offset >= stop:
            return offset - stop + last
        if offset >= begin + is_end:
            return last if is_end else first
    return offset


def literal_spans(text: str, cut: Cut | None = None) -> Iterator[Span]:
    """Where the literals of a text stand, in order."""
    (skeleton, literals), at = cut or cut_text(text), 0
    for before, literal in zip(skeleton, literals, strict=False):
        at += len(before)
        if is_vector(literal) and text[at : at + 1] not in ("'", '"'):
            end = text.index(")", at)
        else:
            end = _end_of_literal(text, at, 1 if isinstance(literal, str) else len(literal))
        yield at, end
        at = end


def _end_of_literal(text: str, at: int, count: int) -> int:
    for _ in range(count):
        # The r of a raw string belongs to the skeleton.
        token = _CAREFUL.search(text, at - (text[at - 1 : at] in ("r", "R")))
        while token is not None and token.lastgroup not in ("string", "number", "raw", "vector"):
            token = _CAREFUL.search(text, token.end())
        assert token is not None, "the text was cut into as many literals"
        at = token.end()
    return at
