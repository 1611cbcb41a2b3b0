"""Hashes of bytes. A text is hashed as its UTF-8."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable
from typing import Any

from wherecast.language.events.types import Type
from wherecast.language.functions.row import BYTES, INT, Function, Takes, function, row_by_row

_SHA2 = {0: "sha256", 224: "sha224", 256: "sha256", 384: "sha384", 512: "sha512"}


def _sha2(data: bytes, bits: int) -> str | None:
    return hashlib.new(_SHA2[bits], data).hexdigest() if bits in _SHA2 else None


def _hash(
    name: str,
    compute: Callable[..., Any],
    says: str,
    example: str,
    *aliases: str,
    more: tuple[tuple[str, Takes], ...] = (),
    result: Type = Type.STRING,
) -> Function:
    signature = ", ".join(("v", *(name for name, _ in more)))
    takes = (BYTES, *(kind for _, kind in more))
    evaluate = row_by_row(compute)
    return function(
        name, signature, *takes, result=result, evaluate=evaluate, says=says, example=example, aliases=aliases
    )


HASH_FUNCTIONS = (
    _hash(
        "md5",
        lambda v: hashlib.md5(v, usedforsecurity=False).hexdigest(),
        "MD5 of bytes, or of a text's UTF-8, in hexadecimal",
        "startswith(md5(symbol), '0')",
    ),
    _hash(
        "sha1",
        lambda v: hashlib.sha1(v, usedforsecurity=False).hexdigest(),
        "SHA-1 of the same, in hexadecimal",
        "startswith(sha1(symbol), '0')",
        "sha",
    ),
    _hash(
        "sha2",
        _sha2,
        "SHA-2 of 224, 256, 384 or 512 bits, in hexadecimal; 0 is 256, others are NULL",
        "startswith(sha2(symbol, 256), '0')",
        more=(("bits", INT),),
    ),
    _hash("crc32", zlib.crc32, "CRC-32 of the same", "crc32(symbol) % 10 = 3", result=Type.BIGINT),
)
