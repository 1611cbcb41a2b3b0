"""Subscriptions of a workload as a Spark DataFrame, of any size: a hundred million of them never exist in one place.

Theory of operation
-------------------
Ids are 0, 1, 2, ... in blocks of `BLOCK`. A block is drawn from a seed of its own, made of the workload's name and the block's
number, so that a subscription depends on the workload and its id alone: not on how many there are, how they are cut into
partitions, or which task runs again. A task draws the blocks that its ids lie in; at the borders of partitions two tasks draw
the same one, and each keeps its part.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from wherecast.bench.workloads.catalogue import open_source
from wherecast.bench.workloads.form import Workload

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Subscriptions that are drawn at once.
BLOCK = 1 << 15


def subscription_frame(session: SparkSession, name: str, n: int, partitions: int | None = None) -> DataFrame:
    """The first n subscriptions of a workload (`catalogue`), columns `id` and `filter`.

    Raises:
        WorkloadError: There is no such workload, or it cannot be drawn in parts.
    """
    open_source(name)  # an error here is better than one in a task
    return session.range(0, n, 1, partitions).mapInArrow(partial(draw_rows, name), "id long, filter string")


def draw_rows(name: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put the filter beside every id; the ids of a batch follow each other."""
    for batch in batches:
        if not batch.num_rows:
            continue
        ids = batch.column(0)
        first, end = ids[0].as_py(), ids[-1].as_py() + 1
        blocks = range(first // BLOCK, -(-end // BLOCK))
        drawn = pa.concat_arrays([draw_block(name, block) for block in blocks])
        filters = drawn.slice(first - blocks[0] * BLOCK, end - first)
        yield pa.RecordBatch.from_arrays([ids, filters], ["id", "filter"])


@lru_cache(maxsize=1)
def draw_block(name: str, block: int) -> pa.Array:
    """The filters of one block."""
    source = _opened(name)
    predicates = source.draw(np.random.default_rng([zlib.crc32(name.encode()), block]), BLOCK)
    attributes, types = zip(*source.fields, strict=True)
    texts = Workload(name, attributes, types, predicates, np.zeros((0, len(types)))).filter_texts()
    return pa.array(texts, pa.string())


_opened = lru_cache(maxsize=1)(open_source)
