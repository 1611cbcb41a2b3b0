"""Manifest: one version of an index, as a file.

The first line of a manifest says what it is and holds the SHA-256 of the rest, so that half a manifest is never taken for
one. Whoever can write a manifest can write its checksum too. So every field is checked for its type, and folders for their
names: a manifest cannot lead a reader out of its index.

Format 2 added the checksum of the plan and the gaps in the sequence of changes, format 3 the columns of rules and the
quarantine. Indexes of older formats are read as before: they have none of these. The checksum does not cover the number of the format, but
the fields tell it once more, so damage to it is noticed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from wherecast.index.signing import KEY_VARIABLE, is_genuine, sign
from wherecast.spark.store import LAYERS, PLANS, QUARANTINES, IndexStoreError

FORMAT = "wherecast-index"
FORMAT_VERSION = 3
_READABLE = (1, 2, 3)
#: A field that every manifest of a format has, and none before.
_BROUGHT = {2: "gaps", 3: "columns"}
_NUMBER = re.compile("[0-9a-f]{16}")
_NONE = type(None)
_TYPES: dict[str, tuple[type, ...]] = {
    "version": (int,),
    "schema": (str,),
    "id_type": (str,),
    "sequence": (int,),
    "created": (str,),
    "parent": (int, _NONE),
    "compacted": (bool,),
    "columns": (str,),
    "id_column": (str,),
    "filter_column": (str,),
    "synced": (bool,),
}
_LAYER_TYPES: dict[str, tuple[type, ...]] = {
    "folder": (str,),
    "checksum": (str,),
    "subscriptions": (int,),
    "nbytes": (int,),
    "rules": (str, _NONE),
}
_PLAN_TYPES: dict[str, tuple[type, ...]] = {"folder": (str,), "checksum": (str, _NONE)}
_QUARANTINE_TYPES: dict[str, tuple[type, ...]] = {"folder": (str,), "checksum": (str,), "rules": (int,)}
#: What fields are in manifests of a format that did not have them.
_LAYER_DEFAULTS: dict[str, Any] = {"rules": None}
_DEFAULTS: dict[str, Any] = {
    "gaps": (),
    "columns": "",
    "id_column": "id",
    "filter_column": "filter",
    "quarantine": None,
    "synced": False,
}


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
    rules: str | None = None
    """SHA-256 of the file with the columns of its rules, see `rules`; None: it has none."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Layer:
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """How subscriptions are spread over servers, in a folder of the index."""

    folder: str
    checksum: str | None
    """SHA-256 of its manifest, which in turn holds those of all its files; None: saved before there was one."""


@dataclass(frozen=True, slots=True)
class SavedQuarantine:
    """Rules that are refused, in a folder of the index; see `quarantine`."""

    folder: str
    checksum: str
    """SHA-256 of its file."""
    rules: int
    """How many they are."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One version of an index."""

    version: int
    schema: str
    """As JSON."""
    id_type: str
    """`bigint` or `string`: what subscription ids are."""
    plan: SavedPlan | None
    """None: broadcast, one server sees every event."""
    servers: tuple[tuple[Layer, ...], ...]
    attributes: tuple[str, ...]
    """Those that some filter asks for, which matching must see."""
    sequence: int
    """Highest number of a change that is in it; 0 without a change log."""
    created: str
    """UTC, ISO 8601."""
    parent: int | None
    """The version it was made from, if it was."""
    compacted: bool
    """Whether every server has one layer made of all the changes before it."""
    gaps: tuple[tuple[int, int], ...] = ()
    """Numbers up to `sequence` whose changes are not in it, see `changes`."""
    columns: str = ""
    """Names and types of the rule columns, a Spark schema as JSON; empty: it has none."""
    id_column: str = "id"
    filter_column: str = "filter"
    """What the table of rules calls its ids and filters."""
    quarantine: SavedQuarantine | None = None
    """Rules of the table that are not in it because they are refused; None: there are none."""
    synced: bool = False
    """Whether it was made to equal a table, see `sync`."""

    @property
    def subscriptions(self) -> int:
        """What all layers hold together: replicas count, and so does what a later layer replaces or removes."""
        return sum(layer.subscriptions for layers in self.servers for layer in layers)

    @property
    def folders(self) -> set[str]:
        """All that it names in the index."""
        single = {saved.folder for saved in (self.plan, self.quarantine) if saved is not None}
        return single | {*(layer.folder for layers in self.servers for layer in layers)}

    def to_bytes(self) -> bytes:
        body = json.dumps(asdict(self), indent=1).encode()
        return _header(body) + body

    @classmethod
    def from_bytes(cls, content: bytes, place: str) -> Manifest:
        """Read a manifest. Raises IndexStoreError if it is damaged, foreign, forged or newer."""
        first, _, body = content.partition(b"\n")
        try:
            header = json.loads(first)
            name, version = header["format"], header["format_version"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise IndexStoreError(f"{place} is not an index manifest; is this the folder of an index?") from None
        if name != FORMAT or version not in _READABLE:
            raise IndexStoreError(
                f"{place} has format {name} {version}, this build reads {FORMAT} {' and '.join(map(str, _READABLE))}; "
                "upgrade wherecast or build the index again"
            )
        if header.get("sha256") != hashlib.sha256(body).hexdigest():
            raise IndexStoreError(
                f"{place} is damaged (its checksum does not fit); use an older version or build again"
            )
        if not is_genuine(FORMAT, body, header.get("hmac")):
            raise IndexStoreError(f"{place} is not signed with a key of {KEY_VARIABLE}; check who wrote it")
        try:
            return _read_fields(json.loads(body), version)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise IndexStoreError(
                f"{place} contradicts itself ({error!s:.200}); use an older version or build again"
            ) from None


def _header(body: bytes) -> bytes:
    digest = hashlib.sha256(body).hexdigest()
    header = {"format": FORMAT, "format_version": FORMAT_VERSION, "sha256": digest}
    if (signature := sign(FORMAT, body)) is not None:
        header["hmac"] = signature
    return json.dumps(header).encode() + b"\n"


def _read_fields(stored: Any, version: int) -> Manifest:
    """A manifest of its JSON. Raises ValueError, KeyError or TypeError if that is not one, or not of this format version."""
    told = max((number for number, name in _BROUGHT.items() if name in stored), default=1)
    if told != version:
        raise ValueError(f"format {version} in its first line, the fields of format {told} behind it")
    found = {**_DEFAULTS, **stored}
    plan, quarantine = found["plan"], found["quarantine"]
    if isinstance(plan, str):  # format 1
        plan = {"folder": plan, "checksum": None}
    found["plan"] = None if plan is None else SavedPlan(**_checked_folder(plan, _PLAN_TYPES, PLANS))
    if quarantine is not None:
        found["quarantine"] = SavedQuarantine(**_checked_folder(quarantine, _QUARANTINE_TYPES, QUARANTINES))
    found["servers"] = tuple(
        tuple(Layer(**_checked_folder({**_LAYER_DEFAULTS, **layer}, _LAYER_TYPES, LAYERS)) for layer in layers)
        for layers in found["servers"]
    )
    found["attributes"] = tuple(found["attributes"])
    found["gaps"] = tuple((first, last) for first, last in found["gaps"])
    manifest = Manifest(**_checked(found, _TYPES))
    _check_fields(manifest)
    return manifest


def _check_fields(manifest: Manifest) -> None:
    """Raises ValueError if fields contradict each other."""
    if manifest.id_type not in ("bigint", "string"):
        raise ValueError(f"ids are {manifest.id_type!r:.60}, expected bigint or string")
    if not all((manifest.servers, *manifest.servers)):
        raise ValueError("a server has no layer")
    if manifest.plan is None and len(manifest.servers) != 1:
        raise ValueError(f"{len(manifest.servers)} servers without a plan")
    if not all(type(name) is str for name in manifest.attributes):
        raise ValueError("an attribute has no name")
    ends = [end for gap in manifest.gaps for end in gap]
    if not all(type(end) is int for end in ends) or ends != sorted(ends) or not 0 <= manifest.sequence < 2**63:
        raise ValueError("the numbers of changes are not in order")
    if ends and not 1 <= ends[0] <= ends[-1] < manifest.sequence:
        raise ValueError(f"changes up to {manifest.sequence} lack {ends[0]} to {ends[-1]}")


def _checked_folder(stored: Mapping[str, Any], types: dict[str, tuple[type, ...]], parent: str) -> Mapping[str, Any]:
    """What is said of a layer or a plan, if its folder is one of `parent`."""
    folder, _, number = _checked(stored, types)["folder"].partition("/")
    if folder != parent or not _NUMBER.fullmatch(number):
        raise ValueError(f"{stored['folder']!r:.60} is not a folder of {parent}/ in this index")
    return stored


def _checked(stored: Mapping[str, Any], types: dict[str, tuple[type, ...]]) -> Mapping[str, Any]:
    for name, allowed in types.items():
        if type(stored[name]) not in allowed:  # a bool is not a number here
            raise TypeError(f"{name} is {stored[name]!r:.60}")
    return stored
