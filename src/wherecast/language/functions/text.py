"""Functions of texts. Spark counts characters (code points), from 1, and so does Python, from 0.

Texts are Python strings, computed row by row; `arrow_texts` has the commonest functions for many texts at once. A function that can make a text longer without bound stops at
`MOST_GROWN` characters: its value is NULL beyond that, unless its arguments are as long themselves.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wherecast.language.events.types import Type
from wherecast.language.events.zone import Zone
from wherecast.language.expression import Call, Like, Node, Param, Span, attributes_of
from wherecast.language.functions.regexes import (
    check_pattern,
    check_repeated,
    check_replacement,
    count,
    extract,
    replace_all,
)
from wherecast.language.functions.row import (
    BIGINT,
    INT,
    TEXT,
    Describe,
    Function,
    Takes,
    by_arrow,
    element_of,
    fault,
    function,
    literal,
    objects,
    row_by_row,
)
from wherecast.language.nullable import Nullable, filler

#: Characters of a text that a function makes of shorter ones.
MOST_GROWN = 65_536
_INT_MAX = 2**31 - 1
_STRING, _INT, _BIGINT = Type.STRING, Type.INT, Type.BIGINT


def _within(size: int, *texts: str) -> bool:
    return size <= MOST_GROWN or size <= sum(map(len, texts))


# -- case -------------------------------------------------------------------------------------------------------------

CASES = ("lower", "upper")


def uncased(arg: Node) -> Node:
    """What lower and upper are taken of: Spark drops an inner lower or upper, also for the few letters where that shows.

    Of constants it does not: they are computed before.
    """
    while isinstance(arg, Call) and arg.name in CASES and attributes_of(arg):
        arg = arg.args[0]
    return arg


# -- parts ------------------------------------------------------------------------------------------------------------


def _substring(text: str, at: int, count: int = _INT_MAX) -> str:
    start = at - 1 if at > 0 else len(text) + at if at < 0 else 0
    return text[max(start, 0) : max(min(start + count, _INT_MAX), 0)]


def _right(text: str, count: int) -> str:
    return _substring(text, -count) if count > 0 else ""


def _split_part(text: str, mark: str, number: int) -> str | None:
    if number == 0:
        return None
    parts = text.split(mark) if mark else [text]
    inside = -len(parts) <= number <= len(parts)
    return parts[number - 1 if number > 0 else number] if inside else ""


def _substring_index(text: str, mark: str, count: int) -> str:
    if count == 0 or not mark:
        return ""
    at = -1 if count > 0 else len(text)
    for _ in range(abs(count)):
        # Spark searches from the next character on, so occurrences may overlap.
        at = text.find(mark, at + 1) if count > 0 else text.rfind(mark, 0, at + len(mark) - 1)
        if at < 0:
            return text
    return text[:at] if count > 0 else text[at + len(mark) :]


def _find(part: str, text: str) -> int:
    return text.find(part) + 1


def _locate(call: Call, args: Sequence[Nullable], _zone: Zone) -> Nullable:
    """Where the start is NULL, the position is 0, whatever the texts are."""
    part, text = args[:2]
    n = part.valid.size
    start = args[2] if len(args) > 2 else Nullable(np.ones(n, np.int64), np.ones(n, bool))
    valid, out = (part.valid & text.valid) | ~start.valid, filler(call.type, n)
    for i in np.flatnonzero(part.valid & text.valid & start.valid).tolist():
        at, wanted = int(start.values[i]), part.values[i]
        if at >= 1:
            out[i] = text.values[i].find(wanted, at - 1) + 1 if wanted else 1
    return Nullable(out, valid)


# -- making texts -----------------------------------------------------------------------------------------------------


def _pad(text: str, size: int, fill: str) -> str | None:
    """What to add to a text; the text itself is cut by the caller."""
    missing = size - len(text)
    if missing <= 0 or not fill:
        return ""
    return (fill * (missing // len(fill) + 1))[:missing] if _within(size, text, fill) else None


def _lpad(text: str, size: int, fill: str = " ") -> str | None:
    added = _pad(text, size, fill)
    return None if added is None else added + text[: max(size, 0)]


def _rpad(text: str, size: int, fill: str = " ") -> str | None:
    added = _pad(text, size, fill)
    return None if added is None else text[: max(size, 0)] + added


def _repeat(text: str, times: int) -> str | None:
    return text * max(times, 0) if _within(len(text) * times, text) else None


def _replace(text: str, old: str, new: str = "") -> str | None:
    if not old or old not in text:
        return text
    size = len(text) + text.count(old) * (len(new) - len(old))
    return text.replace(old, new) if _within(size, text, old, new) else None


def _translate(text: str, old: str, new: str) -> str:
    table: dict[int, str | None] = {}
    for i, char in enumerate(old):
        table.setdefault(ord(char), new[i] if i < len(new) and new[i] != "\0" else None)
    return text.translate(table)


def _concat(*texts: str) -> str:
    return "".join(texts)


def _concat_ws(_call: Call, args: Sequence[Nullable], _zone: Zone) -> Nullable:
    """NULLs among the texts are left out, a NULL separator makes the whole NULL."""

    def texts(row: int) -> list[str]:
        out: list[str] = []
        for arg in args[1:]:
            if arg.valid[row]:
                value = arg.values[row]
                out += [value] if isinstance(value, str) else [v for v in value if v is not None]
        return out

    valid = args[0].valid
    joined = (args[0].values[i].join(texts(i)) if ok else "" for i, ok in enumerate(valid.tolist()))
    return Nullable(objects(joined), valid)


def _build_concat_ws(args: tuple[Node, ...], span: Span, describe: Describe) -> Node:
    for arg in args[1:]:
        if arg.type is Type.ARRAY and element_of(arg) is not _STRING:
            raise fault(f"concat_ws needs strings or an array of strings, found {describe(arg)}", arg.span)
    return Call(name="concat_ws", args=args, type=_STRING, span=span)


def _ascii(text: str) -> int:
    return ord(text[0]) if text else 0


def _chr(number: int) -> str:
    return "" if number < 0 else chr(number & 0xFF)


_SHA2 = {0: "sha256", 224: "sha224", 256: "sha256", 384: "sha384", 512: "sha512"}


def _sha2(text: str, bits: int) -> str | None:
    return hashlib.new(_SHA2[bits], text.encode()).hexdigest() if bits in _SHA2 else None


def _luhn_check(text: str) -> bool:
    if not (text.isascii() and text.isdigit()):
        return False
    doubled = [sum(divmod(2 * int(digit), 10)) for digit in text[-2::-2]]
    return (sum(doubled) + sum(map(int, text[::-2]))) % 10 == 0


def _find_in_set(text: str, names: str) -> int:
    if "," in text:
        return 0
    parts = names.split(",")
    return parts.index(text) + 1 if text in parts else 0


# -- patterns ---------------------------------------------------------------------------------------------------------


def _build_regexp_like(args: tuple[Node, ...], span: Span, _describe: Describe) -> Node:
    item, pattern = args
    assert isinstance(pattern, Param)
    return Like(kind="rlike", item=item, pattern=pattern, span=span)


def _regexp_replace(text: str, pattern: str, new: str) -> str | None:
    return replace_all(text, pattern, new, MOST_GROWN)


_TEXTS = Takes("a string or an array of strings", (Type.STRING, Type.ARRAY))
_PATTERN = literal(TEXT)


def _plain(
    name: str,
    signature: str,
    takes: Sequence[Takes],
    result: Type,
    compute: Callable[..., Any],
    arrow: str | None = None,
    **more: Any,
) -> Function:
    """A strict function of single values; `arrow` names the same for many texts at once, in `arrow_texts`."""
    evaluate = row_by_row(compute) if arrow is None else by_arrow(compute, arrow)
    return function(name, signature, *takes, result=result, evaluate=evaluate, **more)


def _of_text(
    name: str,
    result: Type,
    compute: Callable[[str], Any],
    says: str,
    example: str,
    *aliases: str,
    arrow: str | None = None,
) -> Function:
    return _plain(name, "s", [TEXT], result, compute, arrow, says=says, example=example, aliases=aliases)


TEXT_FUNCTIONS = (
    _of_text(
        "lower",
        _STRING,
        str.lower,
        "in lower case, by Unicode's rules",
        "lower(symbol) LIKE 'ib%'",
        "lcase",
        arrow="lower",
    ),
    _of_text(
        "upper",
        _STRING,
        str.upper,
        "in upper case: `upper('straße')` is `'STRASSE'`",
        "upper(symbol) = 'IBM'",
        "ucase",
        arrow="upper",
    ),
    _of_text(
        "length",
        _INT,
        len,
        "characters",
        "length(symbol) < 5",
        "char_length",
        "character_length",
        "len",
        arrow="length",
    ),
    _of_text(
        "octet_length",
        _INT,
        lambda s: len(s.encode()),
        "bytes in UTF-8",
        "octet_length(symbol) > length(symbol)",
        arrow="octet_length",
    ),
    _of_text(
        "bit_length",
        _INT,
        lambda s: 8 * len(s.encode()),
        "bits in UTF-8",
        "bit_length(symbol) > 16",
        arrow="bit_length",
    ),
    _plain(
        "startswith",
        "s, t",
        [TEXT, TEXT],
        Type.BOOLEAN,
        str.startswith,
        arrow="startswith",
        says="whether `s` begins with `t`",
        example="startswith(symbol, 'I')",
    ),
    _plain(
        "endswith",
        "s, t",
        [TEXT, TEXT],
        Type.BOOLEAN,
        str.endswith,
        arrow="endswith",
        says="whether `s` ends with `t`",
        example="endswith(symbol, 'M')",
    ),
    _plain(
        "contains",
        "s, t",
        [TEXT, TEXT],
        Type.BOOLEAN,
        str.__contains__,
        arrow="contains",
        says="whether `t` occurs in `s`",
        example="contains(symbol, 'B')",
    ),
    _of_text(
        "trim",
        _STRING,
        lambda s: s.strip(" "),
        "without spaces at both ends; other white space stays",
        "trim(symbol) = 'IBM'",
        arrow="trim",
    ),
    _of_text(
        "ltrim",
        _STRING,
        lambda s: s.lstrip(" "),
        "without spaces at the start",
        "ltrim(symbol) = 'IBM'",
        arrow="ltrim",
    ),
    _of_text(
        "rtrim",
        _STRING,
        lambda s: s.rstrip(" "),
        "without spaces at the end",
        "rtrim(symbol) = 'IBM'",
        arrow="rtrim",
    ),
    _plain(
        "btrim",
        "s[, chars]",
        [TEXT, TEXT],
        _STRING,
        lambda s, chars=" ": s.strip(chars) if chars else s,
        arrow="btrim",
        says="without any of `chars` at both ends; they are spaces unless given",
        example="btrim(symbol, '. ') = 'IBM'",
    ),
    _plain(
        "substring",
        "s, at[, count]",
        [TEXT, INT, INT],
        _STRING,
        _substring,
        arrow="substring",
        aliases=("substr",),
        says="`count` characters from number `at` on, or all; a negative `at` counts from the end",
        example="substring(symbol, 2, 1) = 'B' OR substring(symbol, -2) = 'BM'",
    ),
    _plain(
        "left",
        "s, count",
        [TEXT, INT],
        _STRING,
        lambda s, n: s[: max(n, 0)],
        arrow="left",
        says="the first `count` characters",
        example="left(symbol, 2) = 'IB'",
    ),
    _plain(
        "right",
        "s, count",
        [TEXT, INT],
        _STRING,
        _right,
        arrow="right",
        says="the last `count` characters",
        example="right(symbol, 2) = 'BM'",
    ),
    _plain(
        "split_part",
        "s, mark, number",
        [TEXT, TEXT, INT],
        _STRING,
        _split_part,
        says="the part of that number between marks, from the end if negative; `''` if there are fewer, NULL for number 0",
        example="split_part(symbol, '.', 1) = 'IBM'",
    ),
    _plain(
        "substring_index",
        "s, mark, count",
        [TEXT, TEXT, INT],
        _STRING,
        _substring_index,
        says="what comes before the mark of that number, or after it if it is counted from the end",
        example="substring_index(symbol, '.', 1) = 'IBM'",
    ),
    _plain(
        "instr",
        "s, t",
        [TEXT, TEXT],
        _INT,
        lambda s, t: _find(t, s),
        arrow="instr",
        says="where `t` first occurs in `s`, counted from 1; 0 if it does not",
        example="instr(symbol, 'B') = 2",
    ),
    function(
        "locate",
        "t, s[, from]",
        TEXT,
        TEXT,
        INT,
        result=_INT,
        evaluate=_locate,
        is_strict=False,
        aliases=("position",),
        says="as `instr`, looking at `s` from that character on; 0 if `from` is NULL",
        example="locate('M', symbol, 2) = 3",
    ),
    _plain(
        "find_in_set",
        "s, names",
        [TEXT, TEXT],
        _INT,
        _find_in_set,
        says="the number of `s` among names with commas between them; 0 if it is not there",
        example="find_in_set(symbol, 'IBM,SAP') > 0",
    ),
    _plain(
        "luhn_check",
        "s",
        [TEXT],
        Type.BOOLEAN,
        _luhn_check,
        says="whether the digits, and there is nothing else, pass the Luhn test of card numbers",
        example="luhn_check(symbol)",
    ),
    _plain(
        "concat",
        "s[, ...]",
        [TEXT],
        _STRING,
        _concat,
        arrow="concat",
        says="the texts one after the other",
        example="concat(symbol, '.', `odd name`) = 'IBM.x'",
    ),
    function(
        "concat_ws",
        "mark[, ...]",
        TEXT,
        _TEXTS,
        evaluate=_concat_ws,
        build=_build_concat_ws,
        is_strict=False,
        says="the texts, and those of arrays, with the mark between them; NULLs are left out",
        example="concat_ws(',', symbol, tags) = 'IBM,news'",
    ),
    _plain(
        "replace",
        "s, old[, new]",
        [TEXT, TEXT, TEXT],
        _STRING,
        _replace,
        arrow="replace",
        says="every `old` replaced, or removed",
        example="replace(symbol, '-', '') = 'IBM'",
    ),
    _plain(
        "translate",
        "s, old, new",
        [TEXT, TEXT, TEXT],
        _STRING,
        _translate,
        says="every character of `old` replaced by the one at its place in `new`, or removed if there is none",
        example="translate(symbol, 'ib', 'IB') = 'IBM'",
    ),
    _of_text(
        "reverse",
        _STRING,
        lambda s: s[::-1],
        "the characters from last to first",
        "reverse(symbol) = 'MBI'",
        arrow="reverse",
    ),
    _plain(
        "repeat",
        "s, times",
        [TEXT, INT],
        _STRING,
        _repeat,
        says="the text several times",
        example="repeat(symbol, 2) = 'IBMIBM'",
    ),
    _plain(
        "lpad",
        "s, size[, fill]",
        [TEXT, INT, TEXT],
        _STRING,
        _lpad,
        says="filled up from the left to so many characters, or cut to them",
        example="lpad(symbol, 5, '.') = '..IBM'",
    ),
    _plain(
        "rpad",
        "s, size[, fill]",
        [TEXT, INT, TEXT],
        _STRING,
        _rpad,
        says="filled up from the right to so many characters, or cut to them",
        example="rpad(symbol, 5, '.') = 'IBM..'",
    ),
    _plain(
        "space",
        "count",
        [INT],
        _STRING,
        lambda n: _repeat(" ", n),
        says="so many spaces",
        example="concat(symbol, space(1)) = 'IBM '",
    ),
    _of_text("ascii", _INT, _ascii, "the code point of the first character; 0 if there is none", "ascii(symbol) = 73"),
    _plain(
        "chr",
        "n",
        [BIGINT],
        _STRING,
        _chr,
        aliases=("char",),
        says="the character of that number, modulo 256; `''` if it is negative",
        example="chr(65) = left(symbol, 1)",
    ),
    _of_text(
        "md5",
        _STRING,
        lambda s: hashlib.md5(s.encode(), usedforsecurity=False).hexdigest(),
        "MD5 of the UTF-8 bytes, in hexadecimal",
        "startswith(md5(symbol), '0')",
    ),
    _of_text(
        "sha1",
        _STRING,
        lambda s: hashlib.sha1(s.encode(), usedforsecurity=False).hexdigest(),
        "SHA-1 of the UTF-8 bytes, in hexadecimal",
        "startswith(sha1(symbol), '0')",
        "sha",
    ),
    _plain(
        "sha2",
        "s, bits",
        [TEXT, INT],
        _STRING,
        _sha2,
        says="SHA-2 of 224, 256, 384 or 512 bits, in hexadecimal; 0 is 256, others are NULL",
        example="startswith(sha2(symbol, 256), '0')",
    ),
    _of_text("crc32", _BIGINT, lambda s: zlib.crc32(s.encode()), "CRC-32 of the UTF-8 bytes", "crc32(symbol) % 10 = 3"),
    function(
        "regexp_like",
        "s, pattern",
        TEXT,
        _PATTERN,
        build=_build_regexp_like,
        aliases=("regexp",),
        says="`s RLIKE pattern`",
        example="regexp_like(symbol, '^I.M$')",
    ),
    _plain(
        "regexp_extract",
        "s, pattern[, group]",
        [TEXT, _PATTERN, literal(INT)],
        _STRING,
        extract,
        check=lambda pattern, *_: check_pattern(pattern),
        says="what a group of the pattern matches where it is first found, group 1 unless given; `''` if it is not found",
        example="regexp_extract(symbol, '([A-Z]+)[.]', 1) = 'IBM'",
    ),
    _plain(
        "regexp_substr",
        "s, pattern",
        [TEXT, _PATTERN],
        _STRING,
        lambda s, pattern: extract(s, pattern, 0) or None,
        check=check_pattern,
        says="what the pattern matches where it is first found; NULL if it is not found or matches nothing",
        example="regexp_substr(symbol, '[0-9]+') = '12'",
    ),
    _plain(
        "regexp_count",
        "s, pattern",
        [TEXT, _PATTERN],
        _INT,
        count,
        check=check_repeated,
        says="how often the pattern is found",
        example="regexp_count(symbol, '[0-9]') > 2",
    ),
    _plain(
        "regexp_replace",
        "s, pattern, new",
        [TEXT, _PATTERN, _PATTERN],
        _STRING,
        _regexp_replace,
        check=check_replacement,
        says="every match of the pattern replaced; `$1` in `new` is what group 1 matches",
        example="regexp_replace(symbol, '[^A-Z]', '') = 'IBM'",
    ),
)
