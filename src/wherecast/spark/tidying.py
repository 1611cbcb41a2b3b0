"""Tidying: layers are merged and old versions removed, beside the work that makes them.

Every set of changes adds a layer, and each layer costs a little for every event. Merging them takes seconds where there are a million
rules, so a stream of changes does not wait for it: a thread merges, and changes that are committed meanwhile stay on top of the merged
layer (`servers.compact`). Only if changes come so fast that layers pile up to `PILE` times what is allowed, they wait.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from wherecast.spark.index import Index
from wherecast.spark.manifest import Manifest
from wherecast.spark.servers import compact
from wherecast.spark.store import IndexStoreError, StaleVersionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

#: Layers that a server may have before they are merged: each costs a little for every event.
MOST_LAYERS = 16
#: Versions kept beside those that are pinned.
KEPT_VERSIONS = 10
#: Times the allowed layers after which changes wait for the merging that is under way.
PILE = 4

_threads: dict[str, threading.Thread] = {}
_starting = threading.Lock()


def tidy(spark: SparkSession, index: Index, keep_versions: int) -> None:
    """Merge layers and remove old versions; what does not succeed now is done after a later change."""
    try:
        compact(spark, index)
    except StaleVersionError as error:
        _log.info("layers are merged later: %s", error)
        return
    try:
        index.clean(keep_versions)
    except (IndexStoreError, OSError) as error:
        _log.warning("old versions of the index could not be removed, trying again later: %s", error)


def needs_tidying(manifest: Manifest, most_layers: int = MOST_LAYERS) -> bool:
    """Whether a server has more layers than it should have."""
    return _layers(manifest) > most_layers


def tidy_beside(
    spark: SparkSession,
    index: Index,
    manifest: Manifest,
    most_layers: int = MOST_LAYERS,
    keep_versions: int = KEPT_VERSIONS,
) -> None:
    """Have a thread tidy an index if a version has too many layers, unless one is at it already."""
    if not needs_tidying(manifest, most_layers):
        return
    with _starting:
        known = _threads.get(index.url)
        if known is None or not known.is_alive():
            known = threading.Thread(
                target=_tidy_logged, args=(spark, index, keep_versions), name="wherecast-tidy", daemon=True
            )
            _threads[index.url] = known
            known.start()
    if _layers(manifest) > PILE * most_layers:
        _log.info("index=%s layers=%d: changes wait until they are merged", index.url, _layers(manifest))
        known.join()


def finish_tidying(index: Index) -> None:
    """Wait until the thread that tidies an index has ended."""
    thread = _threads.get(index.url)
    if thread is not None:
        thread.join()


def _tidy_logged(spark: SparkSession, index: Index, keep_versions: int) -> None:
    try:
        tidy(spark, index, keep_versions)
    except Exception:  # noqa: BLE001 - nobody waits for the thread, and a later change starts another
        _log.exception("layers could not be merged, trying again after a later change: index=%s", index.url)


def _layers(manifest: Manifest) -> int:
    return max(map(len, manifest.servers))
