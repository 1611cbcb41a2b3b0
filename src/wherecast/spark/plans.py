"""Plans of an index: made on the driver, saved beside the layers, kept open by tasks."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wherecast.errors import PlanError, SnapshotError
from wherecast.index.snapshot import MANIFEST
from wherecast.language.events import EventBatch
from wherecast.language.filters import Filters
from wherecast.language.schema import Schema
from wherecast.partition.plan import Plan, Strategy
from wherecast.spark.errors import IndexStoreError
from wherecast.spark.manifest import SavedPlan
from wherecast.spark.store import PLANS, Store, checksum


def make_plan(
    filters: Filters,
    weights: npt.NDArray[np.int64],
    schema: Schema,
    n_servers: int,
    strategy: Strategy,
    sample: pa.Table | None,
) -> Plan:
    """Plan distinct filters with their numbers of subscriptions."""
    events = None if sample is None else EventBatch.read(schema, sample, on_error="skip")
    return Plan.build(filters, weights, schema, n_servers, strategy=strategy, events=events)


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
