"""The lexemes of a shape: words, names in backticks, signs and the placeholders of literals, with their places."""

from __future__ import annotations

import re
from itertools import islice
from typing import NamedTuple

from wherecast.language.syntax.skeletons import Shape

_LEXEME = re.compile(
    r"""(?P<word>[^\W\d]\w*)
    |(?P<op><=>|<>|<=|<<|>=|>>>?|!=|==(?!=)|=(?![=<>~])|[<>+%(),.\[\]^]|\*(?!\*)|->?|/(?![*/])|!(?![<>~])
        |\|\|?|&(?!&)|::|~(?![~*]))
    |(?P<quoted>`(?:[^`]|``)*+`)
    |(?P<junk>\d[\w.]*|&&|:=|=>|=<|===|!<|!>|/\*|//|\*\*|=~|!?~~?\*?|[^\s\w]|\w)""",
    re.VERBOSE,
)


class Lexeme(NamedTuple):
    """A piece of a shape."""

    kind: str  # word, quoted, op, string, number, junk, end, limit
    text: str
    start: int
    end: int
    key: str = ""  # of a word or sign: what it is looked up by


def read_lexemes(shape: Shape, most: int) -> list[Lexeme]:
    """The lexemes of a shape, about `most` of them if there are more; `end` comes last."""
    text, at = shape.text, 0
    out: list[Lexeme] = []
    for start, end in (*shape.spans, (len(text), len(text))):
        for found in islice(_LEXEME.finditer(text, at, start), most):
            kind, piece = found.lastgroup or "junk", found.group()
            key = piece.upper() if kind == "word" else piece if kind == "op" else ""
            out.append(Lexeme(kind, piece, *found.span(), key))
        if len(out) >= most:
            return out
        if start < end:
            out.append(Lexeme("string" if text[start] == "'" else "number", text[start:end], start, end))
        at = end
    out.append(Lexeme("end", "", len(text), len(text)))
    return out


def plain_name(lexeme: Lexeme) -> str:
    """A name without its backticks."""
    return lexeme.text[1:-1].replace("``", "`") if lexeme.kind == "quoted" else lexeme.text


def show_lexeme(lexeme: Lexeme) -> str:
    """A lexeme for an error message."""
    if lexeme.kind in ("string", "number"):
        return f"{lexeme.kind} literal"
    return repr(lexeme.text if len(lexeme.text) <= 40 else lexeme.text[:37] + "...")
