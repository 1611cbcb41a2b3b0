"""Tables of libraries that Wherecast does not know, which speak Arrow's C interfaces."""

from __future__ import annotations

import pyarrow as pa


class Stream:
    """A table of a library that has nothing but Arrow's C stream."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


class Batch:
    """A record batch of a library that has nothing but Arrow's C array."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self._batch.__arrow_c_array__(requested_schema)
