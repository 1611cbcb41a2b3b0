"""Signed manifests: where a key is set, only what a holder of the key has written is opened.

A checksum finds damage, not malice. Where others can write to a store, set `WHERECAST_SIGNING_KEY` for everybody who writes
or opens what is in it: manifests are then written with an HMAC-SHA256 of their content, which holds the checksums of all
other files, and one without it, or with another, is refused. Without a key nothing is signed and nothing is asked for.

The variable holds the key, or `file:` and the path of a file with the key. Several keys, separated by white space, are for
changing them: the first signs, each is accepted.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from pathlib import Path

from wherecast.errors import SigningKeyError

KEY_VARIABLE = "WHERECAST_SIGNING_KEY"
_SHORTEST = 16


def sign(kind: str, content: bytes) -> str | None:
    """The signature of what a manifest of this kind says; None: there is no key."""
    keys = _keys()
    return _signature(keys[0], kind, content) if keys else None


def is_genuine(kind: str, content: bytes, signature: object) -> bool:
    """Whether a holder of one of our keys has signed this; True where there is no key."""
    keys = _keys()
    found = signature.encode() if isinstance(signature, str) else b""
    return not keys or any(hmac.compare_digest(_signature(key, kind, content).encode(), found) for key in keys)


def _signature(key: bytes, kind: str, content: bytes) -> str:
    # The kind: what was signed as one thing must not be taken for another.
    return hmac.new(key, kind.encode() + b"\n" + content, hashlib.sha256).hexdigest()


def _keys() -> list[bytes]:
    given = os.environ.get(KEY_VARIABLE, "")
    if given.startswith("file:"):
        try:
            given = Path(given.removeprefix("file:")).read_text()
        except (OSError, ValueError) as error:
            raise SigningKeyError(f"{KEY_VARIABLE}: the key cannot be read: {error}") from None
        if not given.strip():
            raise SigningKeyError(f"{KEY_VARIABLE}: the file of the key is empty")
    keys = given.split()
    if any(len(key) < _SHORTEST for key in keys):
        raise SigningKeyError(
            f"{KEY_VARIABLE} has a key of fewer than {_SHORTEST} characters; make one with `openssl rand -hex 32`"
        )
    return [key.encode() for key in keys]
