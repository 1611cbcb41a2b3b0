"""Tables of other libraries, by Arrow's C interface: Polars, DuckDB, pandas, and whatever comes next.

An object offers a stream of record batches by `__arrow_c_stream__`, one batch by `__arrow_c_array__`, and its types alone by
`__arrow_c_schema__`. None of the libraries is imported for it.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import pyarrow as pa


@runtime_checkable
class ArrowStream(Protocol):
    """A table of any library that exports Arrow's C stream, a `RecordBatchReader` included."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


@runtime_checkable
class ArrowArray(Protocol):
    """A record batch of any library that exports Arrow's C array."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any: ...


@runtime_checkable
class ArrowTypes(Protocol):
    """A schema of any library that exports Arrow's C schema."""

    def __arrow_c_schema__(self) -> Any: ...


def arrow_types(source: object) -> pa.Schema | None:
    """The types of a table, or of a schema of any library; None if the object is neither."""
    if isinstance(source, pa.Schema):
        return source
    if isinstance(source, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        return source.schema
    if isinstance(source, pa.Array | pa.ChunkedArray | pa.DataType | pa.Field):
        return None
    if hasattr(source, "columns") and hasattr(source, "iloc"):  # a pandas frame, without importing pandas
        return _pandas_types(source)
    try:
        if isinstance(source, ArrowTypes):
            return pa.schema(source)
        if isinstance(source, ArrowStream):
            return pa.RecordBatchReader.from_stream(source).schema
        return pa.record_batch(source).schema if isinstance(source, ArrowArray) else None
    except (pa.ArrowException, TypeError, ValueError):  # a column, a stream of no tables
        return None


def _pandas_types(frame: Any) -> pa.Schema:
    """The types of the columns that have a name; one of objects has the type of all its values, if there is one."""
    return pa.schema(
        [
            (name, _series_type(frame.iloc[:, place]))
            for place, name in enumerate(frame.columns)
            if isinstance(name, str)
        ]
    )


def _series_type(series: Any) -> pa.DataType:
    try:
        return pa.array(series if series.dtype == object else series.iloc[:0], from_pandas=True).type
    except (pa.ArrowException, TypeError, ValueError):
        return pa.null()  # values of several types, or of one that Arrow does not know


def as_table(source: object) -> pa.Table | pa.RecordBatch | None:
    """A table as PyArrow has it; None if the object is none. A stream is read to its end. Raises pa.ArrowException."""
    if isinstance(source, pa.Table | pa.RecordBatch):
        return source
    if isinstance(source, pa.RecordBatchReader):
        return source.read_all()
    if isinstance(source, pa.Array | pa.ChunkedArray):  # they export the interface, too, but are not tables
        return None
    if isinstance(source, ArrowStream):
        return pa.RecordBatchReader.from_stream(source).read_all()
    return pa.record_batch(source) if isinstance(source, ArrowArray) else None
