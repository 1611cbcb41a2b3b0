"""Functions that make a value of one type of a value of another: casts by the name of a type, and bytes.

The evaluator has bytes in hexadecimal digits (see `nullable`). A parameter that takes `BYTES` gets Python's bytes.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from wherecast.language.casts import find_type, is_castable
from wherecast.language.events.types import INTEGERS, Type
from wherecast.language.expression import Cast, Node, Span
from wherecast.language.functions.row import (
    BIGINT,
    BINARY,
    BYTES,
    SCALAR,
    TEXT,
    Describe,
    Function,
    Takes,
    fault,
    function,
    literal,
    row_by_row,
)
from wherecast.language.nullable import Nullable


def _cast_to(name: str) -> Function:
    found = find_type(name)
    assert found is not None, "it is the name of a type"
    kind, digits = found

    def build(args: tuple[Node, ...], span: Span, describe: Describe) -> Node:
        (item,) = args
        if not is_castable(item.type, kind):
            raise fault(f"cannot cast {describe(item)} to {kind}", span)
        if item.type is kind and kind is not Type.DECIMAL:
            return item
        return Cast(item=item, type=kind, digits=digits, span=span)

    examples = {"date": "date(time) = day", "timestamp": "timestamp(day) <= time", "boolean": "boolean(volume)"}
    example = examples.get(name, f"{name}(symbol) = {'symbol' if name == 'string' else '1'}")
    example = "binary(symbol) = X'49424D'" if name == "binary" else example
    return function(name, "v", SCALAR, build=build, says=f"`CAST(v AS {name.upper()})`", example=example)


_TYPES = [
    "boolean",
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "decimal",
    "string",
    "binary",
    "date",
    "timestamp",
]

#: Java's names of character sets that mean the same to Python.
_CHARSETS = {
    "utf-8": "utf-8",
    "us-ascii": "ascii",
    "iso-8859-1": "latin-1",
    "utf-16be": "utf-16-be",
    "utf-16le": "utf-16-le",
}


def _charset(name: str) -> str:
    if name.lower() not in _CHARSETS:
        raise ValueError(f"the character set {name!r:.40} is not supported; write 'UTF-8'")
    return _CHARSETS[name.lower()]


def _encode(text: str, charset: str) -> str | None:
    try:
        return _digits(text.encode(_charset(charset)))
    except UnicodeEncodeError:
        return None


def _decode(data: bytes, charset: str) -> str | None:
    try:
        return data.decode(_charset(charset))
    except UnicodeDecodeError:
        return None


def _digits(data: bytes) -> str:
    return data.hex().upper()


def _read_hexable(node: Node, operand: Nullable, zone: Any) -> Nullable:
    return operand if node.type in INTEGERS else BYTES.read(node, operand, zone)


_HEXABLE = Takes("a string, binary or an integer", (Type.STRING, Type.BINARY, *INTEGERS), _read_hexable)


def _hex(value: bytes | int) -> str:
    return _digits(value) if isinstance(value, bytes) else f"{value & (2**64 - 1):X}"


def _unhex(text: str) -> str | None:
    """Half a byte at the start stands for a whole one."""
    digits = f"0{text}" if len(text) % 2 else text
    return digits.upper() if all(c in "0123456789abcdefABCDEF" for c in digits) else None


def _plain(
    name: str, signature: str, takes: tuple[Takes, ...], result: Type, compute: Callable[..., Any], **more: Any
) -> Function:
    return function(name, signature, *takes, result=result, evaluate=row_by_row(compute), **more)


CONVERSION_FUNCTIONS: tuple[Function, ...] = (
    *map(_cast_to, _TYPES),
    _plain(
        "hex",
        "v",
        (_HEXABLE,),
        Type.STRING,
        _hex,
        says="an integer, a text's UTF-8 or bytes in hexadecimal digits",
        example="hex(symbol) = '49424D' OR hex(volume) = 'FF'",
    ),
    _plain(
        "unhex",
        "s",
        (TEXT,),
        Type.BINARY,
        _unhex,
        says="the bytes of hexadecimal digits; NULL for other texts",
        example="unhex(symbol) = X'1A'",
    ),
    _plain(
        "bin",
        "n",
        (BIGINT,),
        Type.STRING,
        lambda n: f"{n & (2**64 - 1):b}",
        says="an integer in binary digits, 64 of them if it is negative",
        example="bin(volume) = '101'",
    ),
    _plain(
        "base64",
        "v",
        (BYTES,),
        Type.STRING,
        lambda data: base64.b64encode(data).decode(),
        says="bytes, or a text's UTF-8, in base 64",
        example="base64(symbol) = 'SUJN'",
    ),
    _plain(
        "encode",
        "s, charset",
        (TEXT, literal(TEXT)),
        Type.BINARY,
        _encode,
        check=_charset,
        says="a text as bytes in `'UTF-8'`, `'US-ASCII'`, `'ISO-8859-1'`, `'UTF-16BE'` or `'UTF-16LE'`",
        example="encode(symbol, 'UTF-8') = X'49424D'",
    ),
    _plain(
        "decode",
        "v, charset",
        (BINARY, literal(TEXT)),
        Type.STRING,
        _decode,
        check=_charset,
        says="the text of bytes; NULL if they are not one",
        example="decode(binary(symbol), 'UTF-8') = 'IBM'",
    ),
)
