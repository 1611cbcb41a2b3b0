"""Functions of texts. Spark counts characters (code points), from 1, and so does Python, from 0.

Texts are Python strings, computed row by row; `arrow_texts` has the commonest functions for many texts at once. A function that
can make a long text of short ones stops at `MOST_GROWN` characters, unless its arguments are as long themselves. Literals that
lead there are refused with their filter, events that do are errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from wherecast.language.events.types import Type
from wherecast.language.events.zone import Zone
from wherecast.language.expression import Call, Like, Node, Param, Span, attributes_of
from wherecast.language.functions.hashes import HASH_FUNCTIONS
from wherecast.language.functions.regexes import (
    check_pattern,
    check_repeated,
    check_replacement,
    count,
    extract,
    place,
    replace_all,
    split,
)
from wherecast.language.functions.row import (
    BIGINT,
    BYTES,
    INT,
    TEXT,
    Describe,
    Function,
    GrownTextError,
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
MOST_GROWN = 4_194_304
_INT_MAX = 2**31 - 1
_STRING, _INT = Type.STRING, Type.INT


def _check_size(size: int, *texts: str) -> None:
    if size > MOST_GROWN and size > sum(map(len, texts)):
        raise GrownTextError(f"a function would make a text of {size:,} characters, at most {MOST_GROWN:,}")


def _check_grown(compute: Callable[..., Any], *others: Any) -> Callable[..., object]:
    """The check of a function that makes texts longer; `others` stand for arguments that are not literals."""
    return lambda *values: compute(*(o if v is None else v for v, o in zip(values, others, strict=False)))


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
    if text.is_arrow and part.is_constant and (len(args) == 2 or start.is_constant):
        from wherecast.language.arrow_texts import find_from  # noqa: PLC0415 - Arrow is loaded where there are events

        return find_from(text.texts, part.values[0], int(start.values[0]))
    for i in np.flatnonzero(part.valid & text.valid & start.valid).tolist():
        at, wanted = int(start.values[i]), part.values[i]
        if at >= 1:
            out[i] = text.values[i].find(wanted, at - 1) + 1 if wanted else 1
    return Nullable(out, valid)


# -- making texts -----------------------------------------------------------------------------------------------------


def _pad(text: str, size: int, fill: str) -> str:
    """What to add to a text; the text itself is cut by the caller."""
    missing = size - len(text)
    if missing <= 0 or not fill:
        return ""
    _check_size(size, text, fill)
    return (fill * (missing // len(fill) + 1))[:missing]


def _lpad(text: str, size: int, fill: str = " ") -> str:
    return _pad(text, size, fill) + text[: max(size, 0)]


def _rpad(text: str, size: int, fill: str = " ") -> str:
    return text[: max(size, 0)] + _pad(text, size, fill)


def _repeat(text: str, times: int) -> str:
    _check_size(len(text) * times, text)
    return text * max(times, 0)


def _space(count: int) -> str:
    return _repeat(" ", count)


def _replace(text: str, old: str, new: str = "") -> str:
    if not old or old not in text:
        return text
    _check_size(len(text) + text.count(old) * (len(new) - len(old)), text, old, new)
    return text.replace(old, new)


def _translate(text: str, old: str, new: str) -> str:
    table: dict[int, str | None] = {}
    for i, char in enumerate(old):
        table.setdefault(ord(char), new[i] if i < len(new) and new[i] != "\0" else None)
    return text.translate(table)


def _concat(*texts: str) -> str:
    return "".join(texts)


def _concat_ws(call: Call, args: Sequence[Nullable], _zone: Zone) -> Nullable:
    """NULLs among the texts are left out, a NULL separator makes the whole NULL."""
    if any(arg.is_arrow for arg in args) and all(arg.type is Type.STRING for arg in call.args) and args[0].is_constant:
        from wherecast.language import arrow_texts  # noqa: PLC0415 - Arrow is loaded where there are events

        texts_of = (arg.values[0] if arg.is_constant else arg.texts for arg in args)
        found = arrow_texts.concat_ws(*texts_of)
        if found is not None:
            return arrow_texts.from_arrow(found)

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


def _build_split(args: tuple[Node, ...], span: Span, _describe: Describe) -> Node:
    return Call(name="split", args=args, type=Type.ARRAY, element=_STRING, span=span)


def _ascii(text: str) -> int:
    return ord(text[0]) if text else 0


def _chr(number: int) -> str:
    return "" if number < 0 else chr(number & 0xFF)


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


def _regexp_replace(text: str, pattern: str, new: str) -> str:
    replaced = replace_all(text, pattern, new, MOST_GROWN)
    if replaced is None:
        raise GrownTextError(f"regexp_replace would make a text of more than {MOST_GROWN:,} characters")
    return replaced


def _initcap(text: str) -> str:
    """The first letter, and those after a space, in title case, the others in lower case."""
    # Whether a capital sigma becomes a final one depends on the letters around it, so all are lowered together. Only the
    # dotted I changes the length of a text there.
    lower = text.replace("İ", "i").lower()
    parts = (
        char.title() if i == 0 or text[i - 1] == " " else "i̇" if char == "İ" else lower[i]
        for i, char in enumerate(text)
    )
    return "".join(parts)


def _trimmed(strip: Callable[[str, str], str]) -> Callable[..., str]:
    """Spark has what is removed before the text."""
    return lambda *args: strip(args[-1], args[0] if len(args) > 1 else " ")


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
    **more: Any,
) -> Function:
    return _plain(name, "s", [TEXT], result, compute, arrow, says=says, example=example, aliases=aliases, **more)


#: Texts as they are, and bytes.
_MEASURED = replace(BYTES, read=lambda n, v, zone: v if n.type is Type.STRING else BYTES.read(n, v, zone))


def _measure(name: str, compute: Callable[[Any], int], says: str, example: str, *aliases: str) -> Function:
    return _plain(name, "v", [_MEASURED], _INT, compute, name, says=says, example=example, aliases=aliases)


def _count_bytes(value: str | bytes) -> int:
    return len(value.encode() if isinstance(value, str) else value)


TEXT_FUNCTIONS = (
    _of_text(
        "lower",
        _STRING,
        str.lower,
        "in lower case, by Unicode's rules",
        "lower(symbol) LIKE 'ib%'",
        "lcase",
        arrow="lower",
        nearest=str.lower,
    ),
    _of_text(
        "upper",
        _STRING,
        str.upper,
        "in upper case: `upper('straße')` is `'STRASSE'`",
        "upper(symbol) = 'IBM'",
        "ucase",
        arrow="upper",
        nearest=str.upper,
    ),
    _measure(
        "length",
        len,
        "characters of a text, or bytes",
        "length(symbol) < 5",
        "char_length",
        "character_length",
        "len",
    ),
    _measure("octet_length", _count_bytes, "bytes, of a text in UTF-8", "octet_length(symbol) > length(symbol)"),
    _measure("bit_length", lambda v: 8 * _count_bytes(v), "bits, of a text in UTF-8", "bit_length(symbol) > 16"),
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
        "initcap", _STRING, _initcap, "each word begins with a capital", "initcap(symbol) = 'Ibm'", arrow="initcap"
    ),
    _plain(
        "trim",
        "[chars, ]s",
        [TEXT, TEXT],
        _STRING,
        _trimmed(str.strip),
        arrow="trim",
        nearest=_trimmed(str.strip),
        says="without any of `chars` at both ends; they are spaces unless given. Also `trim(BOTH chars FROM s)`",
        example="trim(symbol) = 'IBM' OR trim(BOTH '.' FROM symbol) = 'IBM'",
    ),
    _plain(
        "ltrim",
        "[chars, ]s",
        [TEXT, TEXT],
        _STRING,
        _trimmed(str.lstrip),
        arrow="ltrim",
        nearest=_trimmed(str.lstrip),
        says="the same at the start. Also `trim(LEADING chars FROM s)`",
        example="ltrim(symbol) = 'IBM' OR trim(LEADING '.' FROM symbol) = 'IBM'",
    ),
    _plain(
        "rtrim",
        "[chars, ]s",
        [TEXT, TEXT],
        _STRING,
        _trimmed(str.rstrip),
        arrow="rtrim",
        nearest=_trimmed(str.rstrip),
        says="the same at the end. Also `trim(TRAILING chars FROM s)`",
        example="rtrim(symbol) = 'IBM' OR trim(TRAILING '.' FROM symbol) = 'IBM'",
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
        says="`count` characters from number `at` on, or all; a negative `at` counts from the end. "
        "Also `substring(s FROM at FOR count)`",
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
        arrow="split_part",
        says="the part of that number between marks, from the end if negative; `''` if there are fewer, NULL for number 0",
        example="split_part(symbol, '.', 1) = 'IBM'",
    ),
    _plain(
        "substring_index",
        "s, mark, count",
        [TEXT, TEXT, INT],
        _STRING,
        _substring_index,
        arrow="substring_index",
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
        says="as `instr`, looking at `s` from that character on; 0 if `from` is NULL. Also `position(t IN s)`",
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
        [replace(TEXT, is_written=True)],
        _STRING,
        _concat,
        arrow="concat",
        says="the texts one after the other; other values as `CAST` writes them",
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
        grows=True,
        check=_check_grown(_replace, "", "", ""),
        says="every `old` replaced, or removed",
        example="replace(symbol, '-', '') = 'IBM'",
    ),
    _plain(
        "translate",
        "s, old, new",
        [TEXT, TEXT, TEXT],
        _STRING,
        _translate,
        arrow="translate",
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
        grows=True,
        check=_check_grown(_repeat, "x", 0),
        arrow="repeat",
        says="the text several times",
        example="repeat(symbol, 2) = 'IBMIBM'",
    ),
    _plain(
        "lpad",
        "s, size[, fill]",
        [TEXT, INT, TEXT],
        _STRING,
        _lpad,
        grows=True,
        check=_check_grown(_lpad, "", 0, "x"),
        arrow="lpad",
        says="filled up from the left to so many characters, or cut to them",
        example="lpad(symbol, 5, '.') = '..IBM'",
    ),
    _plain(
        "rpad",
        "s, size[, fill]",
        [TEXT, INT, TEXT],
        _STRING,
        _rpad,
        grows=True,
        check=_check_grown(_rpad, "", 0, "x"),
        arrow="rpad",
        says="filled up from the right to so many characters, or cut to them",
        example="rpad(symbol, 5, '.') = 'IBM..'",
    ),
    _plain(
        "space",
        "count",
        [INT],
        _STRING,
        _space,
        grows=True,
        check=_check_grown(_space, 0),
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
    *HASH_FUNCTIONS,
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
        arrow="regexp_extract",
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
        arrow="regexp_substr",
        says="what the pattern matches where it is first found; NULL if it is not found or matches nothing",
        example="regexp_substr(symbol, '[0-9]+') = '12'",
    ),
    _plain(
        "regexp_instr",
        "s, pattern",
        [TEXT, _PATTERN],
        _INT,
        place,
        check=check_pattern,
        arrow="regexp_instr",
        says="where the pattern is first found, counted from 1; 0 if it is not",
        example="regexp_instr(symbol, '[0-9]') > 2",
    ),
    _plain(
        "regexp_count",
        "s, pattern",
        [TEXT, _PATTERN],
        _INT,
        count,
        check=check_repeated,
        arrow="regexp_count",
        says="how often the pattern is found",
        example="regexp_count(symbol, '[0-9]') > 2",
    ),
    _plain(
        "split",
        "s, pattern",
        [TEXT, _PATTERN],
        Type.ARRAY,
        split,
        check=check_repeated,
        build=_build_split,
        says="an array of what is between the matches of the pattern",
        example="split(symbol, '[.]')[0] = 'IBM'",
    ),
    _plain(
        "regexp_replace",
        "s, pattern, new",
        [TEXT, _PATTERN, _PATTERN],
        _STRING,
        _regexp_replace,
        check=check_replacement,
        arrow="regexp_replace",
        says="every match of the pattern replaced; `$1` in `new` is what group 1 matches",
        example="regexp_replace(symbol, '[^A-Z]', '') = 'IBM'",
    ),
)
