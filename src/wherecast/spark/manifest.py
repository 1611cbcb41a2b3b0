"""Manifest: what one version of an index consists of.

A version is immutable: a schema, a plan, and for every server the layers to lay over each other, oldest first. A layer
is a saved engine with the ids that it replaces or removes in the layers below. The first line of the file says what it is
and holds the SHA-256 of the rest, so that half a manifest is never taken for one.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, TypeVar, get_origin, get_type_hints

from wherecast.index.signing import KEY_VARIABLE, is_genuine, sign
from wherecast.spark.errors import IndexStoreError

Record = TypeVar("Record")

FORMAT = "wherecast-index"
FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class Layer:
    """What one build or one delta put on one server."""

    folder: str
    """A saved engine, within the index."""
    checksum: str
    """SHA-256 of its manifest, which in turn holds those of all its files."""
    subscriptions: int
    """Added by this layer."""
    nbytes: int

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Layer:
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class Manifest:
    """One version of an index."""

    version: int
    schema: str
    """As JSON."""
    id_type: str
    """`bigint` or `string`: what subscription ids are."""
    plan: str | None
    """Folder of the plan; None: broadcast, one server sees every event."""
    servers: tuple[tuple[Layer, ...], ...]
    attributes: tuple[str, ...]
    """Those that some filter asks for, which matching must see."""
    sequence: int
    """Number of the last change that is in it; 0 without a change log."""
    created: str
    """UTC, ISO 8601."""
    parent: int | None
    """The version it was made from, if it was."""
    compacted: bool
    """Whether every server has one layer made of all the changes before it."""

    @property
    def subscriptions(self) -> int:
        """What all layers hold together: replicas count, and so does what a later layer replaces or removes."""
        return sum(layer.subscriptions for layers in self.servers for layer in layers)

    def to_bytes(self) -> bytes:
        body = json.dumps(asdict(self), indent=1).encode()
        return _header(body) + body

    @classmethod
    def from_bytes(cls, content: bytes, place: str) -> Manifest:
        """Read a manifest. Raises IndexStoreError if it is damaged, foreign or newer."""
        first, _, body = content.partition(b"\n")
        try:
            header = json.loads(first)
            name, version = header["format"], header["format_version"]
        except (ValueError, KeyError, TypeError):
            raise IndexStoreError(f"{place} is no index manifest; is this the folder of an index?") from None
        if name != FORMAT or version != FORMAT_VERSION:
            raise IndexStoreError(f"{place} has format {name} {version}, this build reads {FORMAT} {FORMAT_VERSION}")
        if header.get("sha256") != hashlib.sha256(body).hexdigest():
            raise IndexStoreError(
                f"{place} is damaged (its checksum does not fit); use an older version or build again"
            )
        if not is_genuine(FORMAT, body, header.get("hmac")):
            raise IndexStoreError(f"{place} is not signed with a key of {KEY_VARIABLE}; check who wrote it")
        try:
            fields: dict[str, Any] = json.loads(body)
            servers = tuple(tuple(_typed(Layer(**layer)) for layer in layers) for layers in fields.pop("servers"))
            return _typed(cls(**{**fields, "servers": servers, "attributes": tuple(fields["attributes"])}))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise IndexStoreError(f"{place} contradicts itself ({error}); build the index again") from None


def _typed(record: Record) -> Record:
    """A record out of JSON whose fields are of their types. Raises TypeError."""
    for name, hint in get_type_hints(type(record)).items():
        value = getattr(record, name)
        fits = isinstance(value, get_origin(hint) if get_origin(hint) is tuple else hint)
        if not fits or (isinstance(value, bool) and hint is not bool):
            raise TypeError(f"{name} is {value!r:.40}")
    return record


def _header(body: bytes) -> bytes:
    digest = hashlib.sha256(body).hexdigest()
    header = {"format": FORMAT, "format_version": FORMAT_VERSION, "sha256": digest}
    if (signature := sign(FORMAT, body)) is not None:
        header["hmac"] = signature
    return json.dumps(header).encode() + b"\n"
