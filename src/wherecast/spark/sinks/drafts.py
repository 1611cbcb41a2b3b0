"""Drafts: Parquet files that tasks write themselves, for a sink to take.

Every attempt at a task writes a file of its own, with a random name, into a folder beside the output. A task that succeeds says the name of
its file, and the sink takes the files that were named. Those of tasks that failed, were killed or were slower than their double are
never in sight; they go with the folder.

What Spark reads in such a file is what it would read in one of its own: the same columns, types and values. What cannot be so is refused
before anything is written. Files differ from Spark's where readers do not see it: timestamps are 64-bit microseconds
(`TIMESTAMP_MICROS`), not INT96, and row groups end by the size of the values before they are encoded.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from wherecast.errors import SchemaError
from wherecast.spark.sinks.sink import SinkError
from wherecast.spark.store import Store
from wherecast.spark.versions import arrow_schema, spark_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType, StructType

    from wherecast.spark.stream import Batch

#: Bytes of rows that a task holds before it writes a row group of them.
_GROUP = 64_000_000
#: Values of a column that are looked at to decide whether it gets a dictionary, and the share of distinct ones from which it gets none.
#: Half as many distinct 8-byte values with 2-byte codes take three quarters; at two thirds little is gained.
_LOOKED_AT, _DISTINCT = 100_000, 2 / 3
#: What Spark calls the codecs that PyArrow has as well.
_CODECS = {
    "none": "none",
    "uncompressed": "none",
    "lz4_raw": "lz4",
    **{n: n for n in ("snappy", "gzip", "zstd", "brotli")},
}
_CODEC = "spark.sql.parquet.compression.codec"
#: Settings of Spark with values by which it writes other files than we do.
_OTHERWISE = {
    "spark.sql.parquet.writeLegacyFormat": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
}
#: What settings of Parquet's encryption begin with, and the one without which it is off.
_ENCRYPTION, _FACTORY = ("parquet.crypto.", "parquet.encryption."), "parquet.crypto.factory.class"
#: What to do about what is refused.
REMEDY = "leave out written_by='python', and Spark writes the files"
#: Types of Spark, by their classes, with the same values in PyArrow's files as in Spark's.
_PLAIN = frozenset(
    f"{name}Type"
    for name in (
        *("Boolean", "Byte", "Short", "Integer", "Long", "Float", "Double", "Decimal"),
        *("String", "Binary", "Date", "Timestamp", "TimestampNTZ"),
    )
)
#: Metadata of a column that Spark writes as a number of the field in the file.
_FIELD_ID = "parquet.field.id"


@dataclass(frozen=True, slots=True)
class Drafts:
    """A folder of drafts, and how they are written. Sent to tasks."""

    store: Store
    folder: str
    codec: str

    @classmethod
    def beside(cls, store: Store, folder: str, spark: SparkSession) -> Drafts:
        """Drafts in a folder of a store, as a session would write them. Raises SinkError for settings that only Spark follows."""
        for name, value in _OTHERWISE.items():
            if str(spark.conf.get(name)).upper() == value.upper():
                raise SinkError(f"{name} is {value}, which only Spark's own writer follows; {REMEDY}")
        encryption = _encryption(spark)
        if encryption is not None:
            raise SinkError(f"{encryption} is set, and only Spark's own writer encrypts; {REMEDY}, or unset it")
        codec = str(spark.conf.get(_CODEC)).lower()
        if codec not in _CODECS:
            raise SinkError(f"{_CODEC} is {codec}, which only Spark's own writer has; {REMEDY}, or set it to zstd")
        return cls(store, folder, _CODECS[codec])

    def of(self, batch: Batch) -> Drafts:
        """Those of one attempt at a batch."""
        return replace(self, folder=f"{self.folder}/{attempt_prefix(batch)}{secrets.token_hex(4)}")

    def open(self, schema: pa.Schema) -> Draft:
        """The file of this attempt at a task."""
        from pyspark import TaskContext

        task = TaskContext.get()
        return Draft(self, schema, 0 if task is None else task.partitionId())


class Draft:
    """A file that a task writes. Its row groups are bounded, and so is what the task holds."""

    def __init__(self, drafts: Drafts, schema: pa.Schema, part: int) -> None:
        self._drafts, self._schema = drafts, schema
        self._name = f"{drafts.folder}/part-{part:05d}-{secrets.token_hex(8)}.parquet"
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0
        self._file: pa.NativeFile | None = None
        self._writer: pq.ParquetWriter | None = None

    def add(self, columns: list[pa.Array]) -> None:
        """Add rows, in the columns of the schema."""
        rows = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        if rows.num_rows:
            self._held.append(rows)
            self._bytes += rows.nbytes
        if self._bytes >= _GROUP:
            self._write()

    def close(self) -> str | None:
        """The name of the file, once it is complete; None if there are no rows."""
        if self._held:
            self._write()
        if self._writer is None or self._file is None:
            return None
        self._writer.close()
        self._file.close()
        return self._name

    def _write(self) -> None:
        """Write what is held as a row group."""
        rows = pa.Table.from_batches(self._held, self._schema)
        if self._writer is None:
            self._file = self._drafts.store.open_new(self._name)
            self._writer = pq.ParquetWriter(
                self._file,
                self._schema,
                compression=self._drafts.codec,
                use_dictionary=repeating(rows),
                store_decimal_as_integer=True,
                store_schema=False,
            )
            self._writer.add_key_value_metadata(self._schema.metadata)
        self._writer.write_table(rows, row_group_size=rows.num_rows)
        self._held, self._bytes = [], 0


def write_empty(store: Store, name: str, columns: StructType) -> None:
    """A file without rows, which tells the columns, as Spark writes one."""
    schema = file_schema(columns)
    with store.open_new(name) as file, pq.ParquetWriter(file, schema, store_schema=False) as writer:
        writer.add_key_value_metadata(schema.metadata)


def attempt_prefix(batch: int) -> str:
    """What the folders of all attempts at a batch begin with."""
    return f"{batch:012d}-"


def file_schema(columns: StructType) -> pa.Schema:
    """How columns are written. The metadata is what Spark reads first: their types, and that dates have no other calendar.

    Raises SchemaError for a type that reads back otherwise.
    """
    for column in columns.fields:
        if not _is_plain(column.dataType):
            raise SchemaError(
                f"written_by='python' cannot write the column {column.name!r} ({column.dataType.simpleString():.200}); {REMEDY}, or cast "
                "the column"
            )
    told = columns.json()
    if _FIELD_ID in told:
        raise SchemaError(f"written_by='python' cannot write columns with {_FIELD_ID}; {REMEDY}")
    version = ".".join(map(str, (*spark_version(), 0)))
    metadata = {"org.apache.spark.version": version, "org.apache.spark.sql.parquet.row.metadata": told}
    return pa.schema([_nullable(field) for field in arrow_schema(columns, "UTC")], metadata)


def _nullable(field: pa.Field) -> pa.Field:
    """A column that may be NULL, and so may all fields of structs in it: where a struct is NULL, PyArrow finds that its fields are.

    To Spark, every column of a file may be NULL, whatever the file says.
    """
    return field.with_type(_with_nullable_fields(field.type)).with_nullable(True)


def _with_nullable_fields(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([_nullable(field) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_nullable_fields(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_with_nullable_fields(kind.key_type), _with_nullable_fields(kind.item_type))
    return kind


def _is_plain(kind: DataType) -> bool:
    from pyspark.sql.types import ArrayType, MapType, StringType, StructType

    if isinstance(kind, StructType):
        names = {name.lower() for name in kind.names}
        return 0 < len(kind.names) == len(names) and all(_is_plain(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return _is_plain(kind.elementType)
    if isinstance(kind, MapType):
        return _is_plain(kind.keyType) and _is_plain(kind.valueType)
    if isinstance(kind, StringType) and kind.simpleString() != "string":  # it has a collation
        return False
    return type(kind).__name__ in _PLAIN


def _encryption(spark: SparkSession) -> str | None:
    """A setting of Parquet's encryption, in the session or in Hadoop's configuration; None if there is none."""
    session: Any = getattr(spark, "_jsparkSession", None)
    if session is not None:
        hadoop = session.sessionState().newHadoopConf()
        return next((f"{start}*" for start in _ENCRYPTION if not hadoop.getPropsWithPrefix(start).isEmpty()), None)
    # Spark Connect has no such list, but its server tells a single setting, one of Hadoop's, too.
    value = spark.sql(f"SET {_FACTORY}").collect()[0]["value"]
    return None if value == "<undefined>" else _FACTORY


def repeating(rows: pa.Table) -> list[str]:
    """The columns, or parts of them, whose values repeat enough for a dictionary, by the first rows.

    Of others, PyArrow fills one of 1 MB before it gives up, and keeps it in the file.
    """
    found = []
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        for path, values in _parts(name, column.type, column.chunks):
            some = pa.chunked_array(values).slice(0, _LOOKED_AT) if values else ()
            if len(some) and pc.count_distinct(some).as_py() <= _DISTINCT * len(some):
                found.append(path)
    return found


def _parts(path: str, kind: pa.DataType, chunks: list[pa.Array]) -> Iterator[tuple[str, list[pa.Array]]]:
    """The columns of Parquet that a column is written as, by their paths."""
    if pa.types.is_map(kind):
        yield from _parts(f"{path}.key_value.key", kind.key_type, [chunk.keys for chunk in chunks])
        yield from _parts(f"{path}.key_value.value", kind.item_type, [chunk.items for chunk in chunks])
    elif pa.types.is_list(kind):
        yield from _parts(f"{path}.list.element", kind.value_type, [chunk.flatten() for chunk in chunks])
    elif pa.types.is_struct(kind):
        for number, field in enumerate(kind):
            yield from _parts(f"{path}.{field.name}", field.type, [chunk.field(number) for chunk in chunks])
    elif not pa.types.is_boolean(kind):
        yield path, chunks
