"""Frames on a byte stream: version, number, length, body and, with a shared secret, a tag. No I/O.

Theory of operation
-------------------
Both sides begin with a *greeting*: the protocol's name and version, whether they have a secret, and a nonce of 16 random
bytes. Then each sends frames, the first of them empty:

| bytes | field |
|---|---|
| 1 | version |
| 8 | number of the frame in this direction, from 0 on |
| 4 | length of the body, at most `MAX_BODY` |
| | body |
| 16 | tag, only with a secret: HMAC-SHA-256 of all before, cut |

The key of the tags is an HMAC of the secret over both nonces and the direction. So a frame is good on one connection, in
one direction, at one place: recorded and sent again elsewhere its tag is wrong, sent again on the same connection its
number is. The secret never travels, and without it nothing can be altered or added. Bodies are not encrypted.

The empty frame is the *proof*: its tag shows that its sender has the secret. Until it has come, an announced length other than 0
is refused, so that a stranger can make this end hold less than a hundred bytes.

After a frame that is refused the place of the next one cannot be trusted: the connection ends.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import os
import struct
from collections.abc import Iterator

VERSION = 2  # 1 had no proof
MAX_BODY = 1 << 24
_NAME = b"WHC"
_GREETING = struct.Struct(">3sBB16s")
_HEAD = struct.Struct(">BQI")
_TAG_BYTES = 16


class Reason(enum.StrEnum):
    """Why something that arrived, or should have gone out, was dropped. Each is counted."""

    MALFORMED = "malformed"  # no frame, no record, or a record that cannot be true
    VERSION = "version"  # another version of the protocol
    OVERSIZED = "oversized"
    REPLAYED = "replayed"  # a frame out of its place
    UNAUTHENTICATED = "unauthenticated"
    SILENT = "silent"  # no handshake, or not the rest of a frame, in time
    CROWDED = "crowded"  # cut off to make room for others
    STALE = "stale"  # for a node that this peer no longer is
    FAILED = "failed"  # a record that the node could not handle: a defect, logged
    OVERFLOW = "overflow"  # more than a connection could take
    UNREACHABLE = "unreachable"  # on the way out: nobody there


class FrameError(Exception):
    """A frame that is refused; the connection is of no more use."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Framing:
    """One end of one connection. Send `greeting` and then, once greeted, `proof`; feed what arrives; seal what is to go."""

    def __init__(self, secret: bytes | None, *, is_opener: bool) -> None:
        self._secret = secret
        self._is_opener = is_opener
        self._nonce = os.urandom(16)
        self._keys: tuple[bytes, bytes] | None = None  # of what comes in and of what goes out, once greeted
        self._buffer = bytearray()
        self._received = 0
        self._sent = 0

    @property
    def greeting(self) -> bytes:
        return _GREETING.pack(_NAME, VERSION, self._secret is not None, self._nonce)

    @property
    def is_greeted(self) -> bool:
        """Whether the other side has said who it is: until then nothing can be sealed."""
        return self._keys is not None

    @property
    def proof(self) -> bytes:
        """The first frame to send."""
        assert self._sent == 0
        return self.seal(b"")

    @property
    def is_proven(self) -> bool:
        """Whether the other side has shown that it has the secret, if there is one."""
        return self._received > 0

    @property
    def held_bytes(self) -> int:
        """What has come of a frame that is not complete."""
        return len(self._buffer)

    def seal(self, body: bytes) -> bytes:
        """A frame."""
        assert self._keys is not None
        if len(body) > MAX_BODY:
            raise FrameError(Reason.OVERSIZED, f"{len(body)} bytes, at most {MAX_BODY}")
        frame = _HEAD.pack(VERSION, self._sent, len(body)) + body
        self._sent += 1
        return frame + self._tag(self._keys[1], frame)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The bodies that are complete with these bytes. Raises FrameError, and must not be fed again after that."""
        self._buffer += data
        if not self.is_greeted and not self._greet():
            return
        while (body := self._next_body()) is not None:
            if self._received > 1:  # the first is the proof
                yield body

    def _greet(self) -> bool:
        if len(self._buffer) < _GREETING.size:
            if not _NAME.startswith(self._buffer[: len(_NAME)]):
                raise FrameError(Reason.MALFORMED, "no greeting")
            return False
        name, version, has_secret, nonce = _GREETING.unpack_from(self._buffer)
        if name != _NAME:
            raise FrameError(Reason.MALFORMED, "no greeting")
        if version != VERSION:
            raise FrameError(Reason.VERSION, f"version {version} of the protocol; this is {VERSION}")
        if has_secret != (self._secret is not None):
            raise FrameError(Reason.UNAUTHENTICATED, "one side has a secret and the other has none")
        if nonce == self._nonce:
            raise FrameError(Reason.REPLAYED, "a greeting that was sent back")
        del self._buffer[: _GREETING.size]
        nonces = self._nonce + nonce if self._is_opener else nonce + self._nonce
        self._keys = self._key(nonces, by_opener=not self._is_opener), self._key(nonces, by_opener=self._is_opener)
        return True

    def _key(self, nonces: bytes, *, by_opener: bool) -> bytes:
        return hmac.digest(self._secret or b"", nonces + (b"\1" if by_opener else b"\0"), hashlib.sha256)

    def _next_body(self) -> bytes | None:
        if len(self._buffer) < _HEAD.size:
            return None
        version, number, length = _HEAD.unpack_from(self._buffer)
        if version != VERSION:
            raise FrameError(Reason.VERSION, f"a frame of version {version}; this is {VERSION}")
        most = MAX_BODY if self.is_proven else 0
        if length > most:
            raise FrameError(Reason.OVERSIZED, f"a frame of {length} bytes where at most {most} may come")
        end = _HEAD.size + length
        whole = end + (_TAG_BYTES if self._secret is not None else 0)
        if len(self._buffer) < whole:
            return None
        assert self._keys is not None
        view = memoryview(self._buffer)
        if not hmac.compare_digest(view[end:whole], self._tag(self._keys[0], view[:end])):
            raise FrameError(Reason.UNAUTHENTICATED, "a tag that is not of this secret and connection")
        if number != self._received:
            raise FrameError(Reason.REPLAYED, f"frame {number} where {self._received} belongs")
        body = bytes(view[_HEAD.size : end])
        view.release()
        self._received += 1
        del self._buffer[:whole]
        return body

    def _tag(self, key: bytes, frame: bytes | memoryview) -> bytes:
        return hmac.digest(key, frame, hashlib.sha256)[:_TAG_BYTES] if self._secret is not None else b""
