"""Reading subscriptions from whatever holds them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wherecast.errors import SubscriptionError


class Incoming(NamedTuple):
    """Subscriptions as columns. Texts that occur more than once are listed once."""

    ids: npt.NDArray[np.int64] | list[Any]
    texts: list[Any]  # distinct where the source makes that cheap
    text_of: npt.NDArray[np.int64]  # (subscriptions,) index into texts
    priorities: npt.NDArray[np.float32]


def read_subscriptions(source: object) -> Incoming:
    """Columns of an Arrow table or batch, a pandas frame, a mapping of ids to filters, or (id, filter) pairs."""
    if isinstance(source, pa.Table | pa.RecordBatch):
        return _from_arrow(source)
    if isinstance(source, Mapping):
        return _from_lists(list(source.keys()), list(source.values()))
    if hasattr(source, "columns") and hasattr(source, "iloc"):  # a pandas frame, without importing pandas
        return _from_arrow(pa.Table.from_pandas(source, preserve_index=False))
    if not isinstance(source, Iterable):
        raise SubscriptionError(
            f"cannot read subscriptions from {type(source).__name__}; give a table or (id, filter) pairs"
        )
    pairs = list(source)
    for row, pair in enumerate(pairs):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise SubscriptionError(f"row {row}: expected an (id, filter) pair, found {pair!r:.80}")
    return _from_lists([p[0] for p in pairs], [p[1] for p in pairs])


def _from_lists(ids: list[Any], texts: list[Any]) -> Incoming:
    return Incoming(ids, texts, np.arange(len(ids)), np.zeros(len(ids), np.float32))


def _from_arrow(table: pa.Table | pa.RecordBatch) -> Incoming:
    for name in ("id", "filter"):
        if name not in table.schema.names:
            raise SubscriptionError(f"subscriptions need a column {name!r}; found {', '.join(table.schema.names)}")
    coded = _whole(table.column("filter")).dictionary_encode()
    text_of = coded.indices.fill_null(len(coded.dictionary)).to_numpy(zero_copy_only=False).astype(np.int64)
    priorities = np.zeros(table.num_rows, np.float32)
    if "priority" in table.schema.names:
        priorities = _whole(table.column("priority")).fill_null(0).to_numpy(zero_copy_only=False).astype(np.float32)
    return Incoming(_id_values(_whole(table.column("id"))), [*coded.dictionary.to_pylist(), None], text_of, priorities)


def _id_values(ids: pa.Array) -> npt.NDArray[np.int64] | list[Any]:
    if pa.types.is_integer(ids.type) and not ids.null_count and not pa.types.is_uint64(ids.type):
        return np.asarray(ids.to_numpy(zero_copy_only=False), np.int64)
    values: list[Any] = ids.to_pylist()
    return values


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
