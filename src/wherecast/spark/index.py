"""Index: a versioned directory of built subscriptions, the one thing that build, match and stream share.

On disk
-------
::

    INDEX/
      versions/000000007.json      one manifest per version, never changed; the newest is the current one
      layers/3f0c9a51b2d4e687/     saved engines and what they remove
      plans/9a51b2d4e6873f0c/      how subscriptions are spread over servers
      writers/<number>.json        who is making a new version, see `clean`
      pins/<checkpoint>/           versions that a stream may replay, see `clean`
      reports/<checkpoint>.json    what became of the last batches of a stream, see `progress`

A version comes into being when its manifest is created. Layers and plans are written before it, and readers see them only
once a manifest names them. All of it is on the disk before the manifest is. Removing is the reverse: first the manifest,
then what no other manifest names, see `clean`.

A version is immutable: a schema, a plan, and for every server the layers to lay over each other, oldest first. A layer is
a saved engine (`engine/`) and, where there are some, the ids that it replaces or removes in the layers below
(`removed.arrow`).

The first line of a manifest says what it is and holds the SHA-256 of the rest, so that half a manifest is never taken for
one. Whoever can write a manifest can write its checksum too. So every field is checked for its type, and folders for their
names: a manifest cannot lead a reader out of its index. Format 2 added the checksum of the plan and the gaps in the sequence
of changes; indexes of format 1 are read as before.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from wherecast.engine.engine import Engine
from wherecast.engine.persist import save_segments
from wherecast.engine.segment import Segment
from wherecast.errors import PlanError, SnapshotError, SubscriptionError
from wherecast.index.signing import KEY_VARIABLE, is_genuine, sign
from wherecast.index.snapshot import MANIFEST
from wherecast.language.events.html import html_table
from wherecast.language.events.schema import Schema
from wherecast.partition.plan import Plan
from wherecast.spark.clean import GRACE_S, hold, missing_folders, remove_versions, sweep
from wherecast.spark.store import LAYERS, PLANS, VERSIONS, IndexStoreError, StaleVersionError, Store, checksum

# Manifests

FORMAT = "wherecast-index"
FORMAT_VERSION = 2
_READABLE = (1, 2)
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
}
_LAYER_TYPES: dict[str, tuple[type, ...]] = {
    "folder": (str,),
    "checksum": (str,),
    "subscriptions": (int,),
    "nbytes": (int,),
}
_PLAN_TYPES: dict[str, tuple[type, ...]] = {"folder": (str,), "checksum": (str, _NONE)}


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
class SavedPlan:
    """How subscriptions are spread over servers, in a folder of the index."""

    folder: str
    checksum: str | None
    """SHA-256 of its manifest, which in turn holds those of all its files; None: saved before there was one."""


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

    @property
    def subscriptions(self) -> int:
        """What all layers hold together: replicas count, and so does what a later layer replaces or removes."""
        return sum(layer.subscriptions for layers in self.servers for layer in layers)

    @property
    def folders(self) -> set[str]:
        """All that it names in the index."""
        plan = () if self.plan is None else (self.plan.folder,)
        return {*plan, *(layer.folder for layers in self.servers for layer in layers)}

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
            return _read_fields(json.loads(body))
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


def _read_fields(stored: Any) -> Manifest:
    """A manifest of its JSON. Raises ValueError, KeyError or TypeError if that is not one."""
    found = dict(stored)
    plan = found["plan"]
    if isinstance(plan, str):  # format 1
        plan = {"folder": plan, "checksum": None}
    found["plan"] = None if plan is None else SavedPlan(**_checked_folder(plan, _PLAN_TYPES, PLANS))
    found["servers"] = tuple(
        tuple(Layer(**_checked_folder(layer, _LAYER_TYPES, LAYERS)) for layer in layers) for layers in found["servers"]
    )
    found["attributes"] = tuple(found["attributes"])
    found["gaps"] = tuple((first, last) for first, last in found.get("gaps", ()))
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


# Layers and plans

ENGINE, REMOVED = "engine", "removed.arrow"
#: Engines kept open per worker process: mapped, so an idle one costs address space and little else.
_OPEN_ENGINES = 32


def write_layer(store: Store, engine: Engine, removed: pa.Array | None = None) -> Layer:
    """Save an engine as a new folder of the store."""
    return _write_layer_folder(store, engine.save, len(engine), removed)


def write_segment(
    store: Store, segment: Segment, schema: Schema, matcher: str, removed: pa.Array | None = None
) -> Layer:
    """Save a segment as the engine that has nothing else."""

    def save(path: Path) -> None:
        save_segments(path, schema, matcher, (segment,), version=1)

    return _write_layer_folder(store, save, len(segment), removed)


def _write_layer_folder(store: Store, save: Callable[[Path], None], size: int, removed: pa.Array | None) -> Layer:
    with store.new_folder(LAYERS) as (folder, name):
        save(folder / ENGINE)
        if removed is not None and len(removed):
            _write_ids(folder / REMOVED, removed)
        nbytes = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
        return Layer(name, layer_checksum(folder), size, nbytes)


def layer_checksum(folder: Path) -> str:
    """SHA-256 of the files that hold the sums or the content of all others."""
    return checksum(folder, (f"{ENGINE}/manifest.json", REMOVED))


@lru_cache(maxsize=_OPEN_ENGINES)
def open_layers(url: str, layers: tuple[Layer, ...]) -> Engine:
    """The engine of some layers, kept open for the tasks to come.

    Raises:
        IndexStoreError: a layer is missing or damaged; nothing is served from half an index.
    """
    store = Store(url)
    engine = None
    for layer in layers:
        opened, removed = _open_layer(store, layer)
        if engine is None:
            engine = opened
            continue
        try:
            engine.apply(opened, removed)
        except SubscriptionError as error:
            raise IndexStoreError(
                f"{store.url}/{layer.folder} does not fit the layers below it ({error}); build the index again"
            ) from None
    assert engine is not None
    return engine


def _open_layer(store: Store, layer: Layer) -> tuple[Engine, pa.ChunkedArray | tuple[()]]:
    place = f"{store.url}/{layer.folder}"
    try:
        folder = store.fetch(layer.folder)
        if layer_checksum(folder) != layer.checksum:
            raise IndexStoreError(
                f"{place} is not what the index says (its checksum does not fit); build the index again"
            )
        return Engine.open(folder / ENGINE), _read_ids(folder / REMOVED)
    except (OSError, pa.ArrowException, SnapshotError) as error:
        raise IndexStoreError(f"{place} cannot be read ({error}); restore the files or build the index again") from None


def _write_ids(path: Path, ids: pa.Array) -> None:
    table = pa.table({"id": ids})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def _read_ids(path: Path) -> pa.ChunkedArray | tuple[()]:
    if not path.exists():
        return ()
    with pa.OSFile(str(path)) as source:
        table = pa.ipc.open_file(source).read_all()
    table.validate(full=True)  # offsets of a forged file lead anywhere
    if table.schema.names != ["id"]:
        raise pa.ArrowInvalid(f"{path} has no ids")
    return table["id"]


def save_plan(store: Store, plan: Plan) -> SavedPlan:
    """Write a plan as a new folder of the store."""
    with store.new_folder(PLANS) as (folder, name):
        plan.save(folder)
        return SavedPlan(name, _plan_checksum(folder))


def _plan_checksum(folder: Path) -> str:
    """SHA-256 of the file that holds the sums of all others."""
    return checksum(folder, (MANIFEST,))


@lru_cache(maxsize=8)
def open_plan(url: str, saved: SavedPlan) -> Plan:
    """A plan, kept open. Raises IndexStoreError if it is missing, damaged or another."""
    place = f"{url}/{saved.folder}"
    try:
        folder = Store(url).fetch(saved.folder)
        if saved.checksum is not None and _plan_checksum(folder) != saved.checksum:
            raise IndexStoreError(
                f"the plan {place} is not what the index says (its checksum does not fit); build the index again"
            )
        return Plan.open(folder)
    except (OSError, SnapshotError, PlanError) as error:
        raise IndexStoreError(f"the plan {place} cannot be read ({error}); build the index again") from None


# The index

_COMMITTING = threading.Lock()


#: Versions that a notebook shows.
_SHOWN = 10


class Index:
    """An index directory: reads and commits its versions. Cheap to create; tasks create their own from `url`."""

    def __init__(self, url: str | os.PathLike[str]) -> None:
        self.store = Store(url)
        self.url = self.store.url

    def __repr__(self) -> str:
        return f"Index({self.url!r})"

    def _repr_html_(self) -> str:
        numbers, found = self.versions(), []
        for number in reversed(numbers[-_SHOWN:]):
            with suppress(FileNotFoundError, IndexStoreError):  # cleaned away meanwhile, or damaged: `read` tells
                found.append(self._read(number))
        rows = [(m.version, m.created, f"{m.subscriptions:,}", len(m.servers), m.sequence) for m in found]
        header = ("version", "created", "subscriptions", "servers", "sequence")
        return html_table(f"Index {self.url}", header, rows, more=len(numbers) - len(rows))

    def versions(self) -> list[int]:
        """All versions there are, oldest first."""
        return [int(n.removesuffix(".json")) for n in self.store.names(VERSIONS) if n.endswith(".json")]

    def latest(self) -> int:
        """The current version. Raises IndexStoreError if there is none."""
        versions = self.versions()
        if not versions:
            raise IndexStoreError(f"there is no index at {self.url!r}; build one with wherecast.spark.build_index")
        return versions[-1]

    def read(self, version: int | None = None) -> Manifest:
        """The manifest of a version, by default of the current one. Raises IndexStoreError if there is none."""
        number = self.latest() if version is None else version
        while True:
            try:
                return self._read(number)
            except FileNotFoundError:
                newest = self.latest()
            if version is not None or newest == number:
                known = ", ".join(map(str, self.versions()[-5:]))
                raise IndexStoreError(f"the index {self.url} has no version {number} any more (newest: {known})")
            number = newest  # it was replaced and cleaned away between two looks

    def _read(self, number: int) -> Manifest:
        """Raises FileNotFoundError."""
        place = f"{self.url}/{_version_name(number)}"
        manifest = Manifest.from_bytes(self.store.read(_version_name(number)), place)
        if manifest.version != number:
            raise IndexStoreError(f"{place} is version {manifest.version}: it was moved; restore the folder as it was")
        return manifest

    def manifests(self) -> list[Manifest]:
        """Those of all versions, oldest first; versions that are cleaned away meanwhile are left out."""
        found = []
        for number in self.versions():
            with suppress(FileNotFoundError):
                found.append(self._read(number))
        return found

    @contextmanager
    def begin(self) -> Iterator[Manifest | None]:
        """The current version (None: there is none yet), to make the next one of.

        Until the block ends, a clean-up removes neither that version nor anything that is written meanwhile.
        """
        while True:
            newest = max(self.versions(), default=None)
            with hold(self.store, newest):
                if newest == max(self.versions(), default=None):  # a lease of an older one may have come too late
                    yield None if newest is None else self._read(newest)
                    return

    @contextmanager
    def change(self) -> Iterator[Manifest]:
        """As `begin`, but raises IndexStoreError if there is no version yet."""
        self.latest()
        with self.begin() as current:
            assert current is not None
            yield current

    def commit(self, manifest: Manifest) -> Manifest:
        """Make a version current, numbered one above the newest.

        Raises:
            StaleVersionError: another version was committed since this one was begun, or a clean-up removed its files.
            IndexStoreError: a folder of the version before is missing, which this one needs as well.
        """
        folders = manifest.folders
        # Changes and rebalancing commit from two threads; not every store keeps them apart.
        with _COMMITTING, hold(self.store, folders=folders):
            newest = max(self.versions(), default=0)
            if newest != (manifest.parent or 0):
                raise StaleVersionError(
                    f"version {newest} was committed while changing {manifest.parent or 'nothing'}; begin again from it"
                )
            self._check_folders(manifest)
            created = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
            manifest = replace(manifest, version=newest + 1, created=created)
            if not self.store.create(_version_name(manifest.version), manifest.to_bytes()):
                raise StaleVersionError(
                    f"version {manifest.version} was committed by somebody else; begin again from it"
                )
        return manifest

    def _check_folders(self, manifest: Manifest) -> None:
        """Raises if a version would name what is not there, or is being removed."""
        missing = missing_folders(self.store, manifest.folders)
        if not missing:
            return
        before = set() if manifest.parent is None else self.read(manifest.parent).folders
        if lost := sorted(missing & before):
            raise IndexStoreError(f"{self.url}/{lost[0]} is missing; restore it or build the index again")
        raise StaleVersionError(
            f"{self.url}/{min(missing)} was removed by a clean-up before a version named it; begin again"
        )

    def schema(self, version: int | None = None) -> Schema:
        return Schema.from_json(self.read(version).schema)

    def serve(self, manifest: Manifest, server: int) -> Engine:
        """The open engine of a server. Raises IndexStoreError if a file is missing or damaged."""
        with self._explained(manifest):
            return open_layers(self.url, manifest.servers[server])

    def plan(self, manifest: Manifest) -> Plan | None:
        """How events are routed; None if there is only one server. Raises IndexStoreError as `serve` does."""
        if manifest.plan is None:
            return None
        with self._explained(manifest):
            plan = open_plan(self.url, manifest.plan)
        if plan.n_servers != len(manifest.servers):
            raise IndexStoreError(
                f"{self.url}/{manifest.plan.folder} is for {plan.n_servers} servers, version {manifest.version} has "
                f"{len(manifest.servers)}; build the index again"
            )
        return plan

    @contextmanager
    def _explained(self, manifest: Manifest) -> Iterator[None]:
        """Tells a version that was cleaned away from one that is damaged."""
        try:
            yield
        except IndexStoreError:
            if self.store.exists(_version_name(manifest.version)):
                raise
            raise IndexStoreError(
                f"version {manifest.version} of {self.url} was removed by a clean-up while it was used; read the current "
                "version, or keep more of them (clean(keep=...), keep_versions, [limits] versions)"
            ) from None

    def clean(self, keep: int = 2, *, grace_s: float | None = None) -> list[int]:
        """Remove old versions, except those that a stream has pinned or a writer uses, and the newest `keep`.

        Returns the versions removed. Layers and plans that no version names go with them once they are older than
        `grace_s` (an hour) and than the work of every writer; so do drafts of processes that were killed. It may run at any
        time, beside streams, builds, changes and other clean-ups.
        """
        gone = remove_versions(self, keep)
        sweep(self, GRACE_S if grace_s is None else grace_s)
        return gone

    def forget(self, version: int) -> None:
        """Remove the manifest of a version that is no longer used."""
        self.store.remove(_version_name(version))


def _version_name(version: int) -> str:
    return f"{VERSIONS}/{version:09d}.json"
