"""Plans of an index: made on the driver, saved beside the layers, kept open by tasks."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wherecast.errors import PlanError, SnapshotError
from wherecast.language.events import EventBatch
from wherecast.language.filters import Filters
from wherecast.language.schema import Schema
from wherecast.partition.plan import Plan, Strategy
from wherecast.spark.errors import IndexStoreError
from wherecast.spark.store import Store


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


def save_plan(store: Store, plan: Plan) -> str:
    """Write a plan as a new folder of the store; its name."""
    with store.new_folder("plans") as (folder, name):
        plan.save(folder)
    return name


@lru_cache(maxsize=8)
def open_plan(url: str, folder: str) -> Plan:
    """A plan, kept open. Raises IndexStoreError if it is missing or damaged."""
    try:
        return Plan.open(Store(url).fetch(folder))
    except (OSError, SnapshotError, PlanError) as error:
        raise IndexStoreError(f"the plan {url}/{folder} cannot be read ({error}); build the index again") from None
