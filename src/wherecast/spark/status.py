"""Where a pipeline stands, read from its files: versions of the index, pins, committed batches. Needs no Spark."""

from __future__ import annotations

from dataclasses import dataclass

from wherecast.spark.config import PipelineConfig
from wherecast.spark.index import Index
from wherecast.spark.manifest import Manifest
from wherecast.spark.pins import Pins
from wherecast.spark.reports import BatchReport, Reports
from wherecast.spark.store import Store

_BATCHES = 10


@dataclass(frozen=True, slots=True)
class VersionStatus:
    """One version of the index."""

    version: int
    created: str
    strategy: str
    servers: int
    layers: int
    """Of the server that has most."""
    nbytes: int
    sequence: int
    """Of the last change in it."""


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """An index and the streams that use it."""

    index: str
    versions: tuple[VersionStatus, ...]
    """Oldest first; empty: not built yet."""
    subscriptions: tuple[int, ...]
    """Held by each server, in the current version; a subscription may be held by several."""
    pins: dict[int, int]
    """Batch to index version, of the last batches."""
    batches: tuple[BatchReport, ...]
    """What became of the last batches of events."""
    events_batch: int | None
    """The last batch of events that is committed; None: none yet."""
    changes_batch: int | None
    """The last batch of changes that is committed."""


def read_status(config: PipelineConfig) -> PipelineStatus:
    """Look at the files of a pipeline, which may be running."""
    index = Index(config.path(config.index))
    events, changes = config.checkpoint_of("events"), config.checkpoint_of("changes")
    manifests = index.manifests()
    return PipelineStatus(
        index.url,
        tuple(_describe(index, manifest) for manifest in manifests),
        _held(index, manifests[-1]) if manifests else (),
        Pins(index, events).known(),
        tuple(Reports(index, events, BatchReport).read()[-_BATCHES:]),
        _committed(events),
        _committed(changes),
    )


def _describe(index: Index, manifest: Manifest) -> VersionStatus:
    plan = index.plan(manifest)
    return VersionStatus(
        manifest.version,
        manifest.created,
        "broadcast" if plan is None else plan.strategy,
        len(manifest.servers),
        max(map(len, manifest.servers)),
        sum(layer.nbytes for layers in manifest.servers for layer in layers),
        manifest.sequence,
    )


def _held(index: Index, manifest: Manifest) -> tuple[int, ...]:
    return tuple(len(index.serve(manifest, server)) for server in range(len(manifest.servers)))


def _committed(checkpoint: str) -> int | None:
    """Spark writes a file named after each batch that is through."""
    return max((int(name) for name in Store(checkpoint).names("commits") if name.isdigit()), default=None)
