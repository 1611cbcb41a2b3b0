"""Reading subscriptions from whatever holds them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wherecast.errors import SubscriptionError


def read_subscriptions(source: object) -> tuple[list[Any], list[str], npt.NDArray[np.float32]]:
    """Ids, filter texts and priorities of an Arrow table or batch, a pandas frame, a mapping, or pairs."""
    if isinstance(source, (pa.Table, pa.RecordBatch)):
        return _from_arrow(source)
    if isinstance(source, Mapping):
        return _without_priorities(list(source.keys()), list(source.values()))
    if hasattr(source, "columns") and hasattr(source, "iloc"):  # a pandas frame, without importing pandas
        return _from_arrow(pa.Table.from_pandas(source, preserve_index=False))
    if not isinstance(source, Iterable):
        raise SubscriptionError(f"cannot read subscriptions from {type(source).__name__}; give a table or (id, filter) pairs")
    pairs = list(source)
    for row, pair in enumerate(pairs):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise SubscriptionError(f"row {row}: expected an (id, filter) pair, found {pair!r:.80}")
    return _without_priorities([p[0] for p in pairs], [p[1] for p in pairs])


def _without_priorities(ids: list[Any], texts: list[Any]) -> tuple[list[Any], list[str], npt.NDArray[np.float32]]:
    return ids, texts, np.zeros(len(ids), np.float32)


def _from_arrow(table: pa.Table | pa.RecordBatch) -> tuple[list[Any], list[str], npt.NDArray[np.float32]]:
    for name in ("id", "filter"):
        if name not in table.schema.names:
            raise SubscriptionError(f"subscriptions need a column {name!r}; found {', '.join(table.schema.names)}")
    ids, texts = table.column("id").to_pylist(), table.column("filter").to_pylist()
    if "priority" not in table.schema.names:
        return _without_priorities(ids, texts)
    return ids, texts, table.column("priority").fill_null(0).to_numpy().astype(np.float32)
