"""Index: a versioned directory of built subscriptions, the one thing that build, match and stream share.

On disk
-------
::

    INDEX/
      versions/000000007.json      one manifest per version, never changed; the newest is the current one
      layers/3f0c9a51b2d4e687/     saved engines and what they remove
      plans/9a51b2d4e6873f0c/      how subscriptions are spread over servers
      pins/<checkpoint>/           versions that a stream may replay, see `pins`
      reports/<checkpoint>.json    what became of the last batches of a stream, see `reports`

Creating the manifest is the one moment at which a version comes into being; layers and plans are written before it and
are nothing to a reader until a manifest names them. Removing is the reverse: first the manifest, then what no other
manifest names.
"""

from __future__ import annotations

import datetime as dt
import os
import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from wherecast.engine.engine import Engine
from wherecast.language.schema import Schema
from wherecast.spark.errors import IndexStoreError, StaleVersionError
from wherecast.spark.layers import open_layers
from wherecast.spark.manifest import Manifest
from wherecast.spark.store import Store

if TYPE_CHECKING:
    from wherecast.partition.plan import Plan

_COMMITTING = threading.Lock()
VERSIONS, LAYERS, PLANS = "versions", "layers", "plans"
PINS, REPORTS = "pins", "reports"
#: Files that no version names are left alone this long: somebody may be about to commit the version that does.
_GRACE_S = 3600.0


class Index:
    """Reads and commits versions of an index directory. Cheap to make; tasks make their own from `url`."""

    def __init__(self, url: str | os.PathLike[str]) -> None:
        self.store = Store(url)
        self.url = self.store.url

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
        """The manifest of a version, by default of the current one."""
        number = self.latest() if version is None else version
        place = f"{self.url}/{_version_name(number)}"
        try:
            return Manifest.from_bytes(self.store.read(_version_name(number)), place)
        except FileNotFoundError:
            known = ", ".join(map(str, self.versions()[-5:])) or "none"
            raise IndexStoreError(f"the index has no version {number} any more (newest: {known})") from None

    def commit(self, manifest: Manifest) -> Manifest:
        """Make a version current, numbered one above the newest.

        Raises:
            StaleVersionError: another version was committed since this one was begun.
        """
        with _COMMITTING:  # changes and rebalancing commit from two threads; not every store keeps them apart
            newest = max(self.versions(), default=0)
            if manifest.parent is not None and manifest.parent != newest:
                raise StaleVersionError(
                    f"version {newest} was committed while changing {manifest.parent}; begin again from it"
                )
            created = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
            manifest = replace(manifest, version=newest + 1, created=created)
            if not self.store.create(_version_name(manifest.version), manifest.to_bytes()):
                raise StaleVersionError(
                    f"version {manifest.version} was committed by somebody else; begin again from it"
                )
        return manifest

    def schema(self, version: int | None = None) -> Schema:
        return Schema.from_json(self.read(version).schema)

    def serve(self, manifest: Manifest, server: int) -> Engine:
        """The open engine of a server. Raises IndexStoreError if a file is missing or damaged."""
        return open_layers(self.url, manifest.servers[server])

    def plan(self, manifest: Manifest) -> Plan | None:
        """How events are routed; None: to the one server there is."""
        if manifest.plan is None:
            return None
        from wherecast.spark.plans import open_plan  # noqa: PLC0415 - loads the partitioner

        return open_plan(self.url, manifest.plan)

    def clean(self, keep: int = 2, *, grace_s: float = _GRACE_S) -> list[int]:
        """Remove versions that nobody needs: neither pinned by a stream nor among the newest `keep`.

        Returns the versions removed. Layers and plans that no version names go with them once they are older than
        `grace_s`, because a build may be about to name a new one; so do drafts of those who were killed.
        """
        from wherecast.spark.pins import pinned_versions  # noqa: PLC0415 - pins know the index

        versions = self.versions()
        needed = {*versions[-max(keep, 1) :], *pinned_versions(self.store)}
        gone = [v for v in versions if v not in needed]
        for version in gone:
            self.store.remove(_version_name(version))
        kept = [self.read(v) for v in versions if v in needed]
        self._sweep(LAYERS, {layer.folder for m in kept for layers in m.servers for layer in layers}, grace_s)
        self._sweep(PLANS, {m.plan for m in kept if m.plan}, grace_s)
        return gone

    def _sweep(self, folder: str, named: Iterable[str], grace_s: float) -> None:
        keep = set(named)
        for name in self.store.names(folder, drafts=True):
            path = f"{folder}/{name}"
            if path not in keep and self.store.age_s(path, time.time()) >= grace_s:
                self.store.remove(path)


def _version_name(version: int) -> str:
    return f"{VERSIONS}/{version:09d}.json"
