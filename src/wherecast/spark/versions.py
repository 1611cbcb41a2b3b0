"""Versions: what Spark 3.5 to 4.2 lack of the newest, each with a stand-in, so that no other module asks for a version.

| what | since | before that |
|---|---|---|
| `DataFrame.toArrow`, `createDataFrame` of an Arrow table | 4.0 | the batches that `toPandas` is made of; rows |
| `StructType.fromDDL` | 4.0 | the parser behind `createDataFrame` |
| `arrow_udf`: a column computed in Python from some others | 4.1 | `mapInArrow`, which all columns pass through |
| `DataFrame.repartitionById` | 4.1 | `repartition` by keys that Spark's hash sends to the wanted partition |
| `is_valid_utf8`, `make_valid_utf8` | 4.0 | bytes decoded by Java |
| the zone of `to_arrow_schema` | 4.2 | set afterwards |
| `VARIANT` | 4.0 | no column has it |
| the package of Spark's classes for checkpoints | 4.1 | another one |
| table functions over Arrow batches | 4.1 | refused (`require`) |
| JSON read without bending values (variants, `try_cast`) | 4.0 | refused (`require`) |

Java: a Spark works on the versions of `JAVA` and on no later one. Hadoop before 3.4.3 calls `Subject.getSubject`, which Java 23 and later
do not have. Spark 3.5 starts on Java 21 and 22, but its Arrow looks for a constructor that they do not have, so the first batch for Python fails.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import pyarrow as pa

from wherecast.errors import WherecastError
from wherecast.spark.columns import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

OLDEST = (3, 5)
#: The oldest and the newest Java that a version of Spark works on; None: no later one is known to fail.
JAVA: dict[tuple[int, int], tuple[int, int | None]] = {
    (3, 5): (17, 20),
    (4, 0): (17, 22),
    (4, 1): (17, 22),
    (4, 2): (17, None),
    (4, 3): (17, None),
}


class SparkVersionError(WherecastError):
    """Something that the installed version of Spark does not have; the message says which one does."""


@cache
def spark_version() -> tuple[int, int]:
    """The installed version of PySpark, `(4, 3)`."""
    import pyspark

    found = re.match(r"(\d+)\.(\d+)", pyspark.__version__)
    assert found is not None
    return int(found[1]), int(found[2])


def require(what: str, since: tuple[int, int]) -> None:
    """Refuse what has no stand-in. Raises SparkVersionError."""
    have = spark_version()
    if have < since:
        raise SparkVersionError(
            f"{what} needs Spark {_shown(since)} or later, and this is {_shown(have)}; upgrade PySpark"
        )


def java_range() -> tuple[int, int | None]:
    """The oldest and the newest Java for the installed Spark."""
    return JAVA.get(spark_version(), JAVA[max(JAVA)])


def _shown(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def to_arrow(frame: DataFrame) -> pa.Table:
    """All rows, as an Arrow table."""
    if spark_version() >= (4, 0):
        return frame.toArrow()
    from pyspark.sql.pandas.types import to_arrow_schema

    held = cast("Any", frame)
    if not hasattr(held, "_collect_as_arrow"):  # Spark Connect
        client = held.sparkSession.client
        table, _ = client.to_table(held._plan.to_proto(client))  # noqa: SLF001 - no other way
        return cast("pa.Table", table)
    batches = held._collect_as_arrow()  # noqa: SLF001 - no other way
    schema = to_arrow_schema(frame.schema)
    # Batches name the zone of the session, later versions always UTC; the moments are the same.
    return pa.Table.from_batches(batches).cast(schema) if batches else schema.empty_table()


def from_arrow(spark: SparkSession, table: pa.Table, schema: str | StructType | None = None) -> DataFrame:
    """An Arrow table as a DataFrame. Say the types where it may be empty: Spark Connect cannot see those of an empty table."""
    if spark_version() >= (4, 0):
        # In one piece: Spark loses the rows behind a piece that has none.
        return spark.createDataFrame(table.combine_chunks(), cast("Any", schema))
    from pyspark.sql.pandas.types import from_arrow_schema

    columns = [column.to_pylist() for column in table.columns]
    return spark.createDataFrame(list(zip(*columns, strict=True)), schema or from_arrow_schema(table.schema))


def parse_columns(ddl: str) -> StructType:
    """Columns written as `id BIGINT, name STRING`."""
    if spark_version() >= (4, 0):
        from pyspark.sql.types import StructType

        return cast("StructType", StructType.fromDDL(ddl))
    from pyspark.sql import types as T  # noqa: N812

    return cast("StructType", T._parse_datatype_string(ddl))  # noqa: SLF001 - no other way


def arrow_schema(columns: StructType, zone: str) -> pa.Schema:
    """The Arrow schema of columns; timestamps are in a zone."""
    from pyspark.sql.pandas.types import to_arrow_schema

    if spark_version() >= (4, 2):
        return to_arrow_schema(columns, timezone=zone)
    return pa.schema([field.with_type(_in_zone(field.type, zone)) for field in to_arrow_schema(columns)])


def _in_zone(kind: pa.DataType, zone: str) -> pa.DataType:
    """A type with all its timestamps in a zone; those of `timestamp_ntz` have none."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit, zone if kind.tz else None)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_in_zone(kind.value_type, zone)))
    if pa.types.is_map(kind):
        return pa.map_(_in_zone(kind.key_type, zone), _in_zone(kind.item_type, zone))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_in_zone(field.type, zone)) for field in kind])
    return kind


def is_valid_utf8(text: Column) -> Column:
    """Whether a text is UTF-8; NULL if it is NULL."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.is_valid_utf8(text) if spark_version() >= (4, 0) else make_valid_utf8(text) == text


def make_valid_utf8(text: Column) -> Column:
    """The text with replacement characters where it is not UTF-8."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.make_valid_utf8(text) if spark_version() >= (4, 0) else F.decode(text.cast("binary"), "UTF-8")


def is_variant(kind: DataType) -> bool:
    """Whether a type is VARIANT."""
    return kind.typeName() == "variant"


def file_manager(spark: SparkSession) -> str | None:
    """Spark's class that writes checkpoints by Hadoop's FileSystem; None on Spark Connect, whose server may be of another version."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        return None
    package = "streaming.checkpointing" if spark_version() >= (4, 1) else "streaming"
    return f"org.apache.spark.sql.execution.{package}.FileSystemBasedCheckpointFileManager"


#: Turns batches of rows into arrays with a value for each row, in their order; cut as it likes.
RowWork: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.Array]]


def add_column(
    frame: DataFrame, name: str, work: RowWork, inputs: Mapping[str, tuple[str, ...]], kind: DataType
) -> DataFrame:
    """The frame with one more column, which `work` computes from some others.

    `inputs` are the columns of the batches that `work` gets, and what they are: a column of the frame, or a field in one.
    """
    columns = {column: quote(*path) for column, path in inputs.items()}
    columns = columns or {"__wherecast_row": "true"}  # it takes one to know how many rows there are
    if spark_version() < (4, 1):
        return _add_by_passing(frame, name, work, columns, kind)
    session: Any = frame.sparkSession
    owner = getattr(session, "sparkContext", session)  # whose JVM holds the column; on Spark Connect there is none
    # Not `select("*", ...)`, which is ten more calls of the JVM.
    return frame.withColumn(name, _computed(owner, name, work, tuple(columns.items()), kind))


@lru_cache(maxsize=64)
def _computed(owner: object, name: str, work: RowWork, inputs: tuple[tuple[str, str], ...], kind: DataType) -> Column:  # noqa: ARG001
    """The column that `add_column` adds. It is kept: making one takes 60 calls of the JVM, and every micro-batch needs it."""
    from pyspark.sql import functions as F  # noqa: N812

    make: Any = F  # its stubs do not know arrow_udf yet
    names = [column for column, _ in inputs]

    def compute(arrays: Iterator[Any]) -> Iterator[pa.Array]:
        parts = (array if isinstance(array, tuple) else (array,) for array in arrays)
        yield from work(pa.RecordBatch.from_arrays(list(part), names) for part in parts)

    with warnings.catch_warnings():
        # It would like type hints, which say no more than the type given here.
        warnings.simplefilter("ignore", UserWarning)
        function = make.arrow_udf(compute, kind, make.ArrowUDFType.SCALAR_ITER)
    # Non-deterministic: otherwise Spark computes it again for every mention of it, and again for a filter on it.
    return cast("Column", function.asNondeterministic()(*(F.expr(sql) for _, sql in inputs)).alias(name))


def _add_by_passing(frame: DataFrame, name: str, work: RowWork, inputs: Mapping[str, str], kind: DataType) -> DataFrame:
    """`add_column` for a Spark that knows only functions of whole rows."""
    from pyspark.sql.types import StructField, StructType

    n, names, own = len(frame.columns), list(inputs), frame.columns
    wide = frame.selectExpr("*", *inputs.values())
    # Spark takes a dot in a name for a field here, so columns have numbers.
    wide = wide.toDF(*(f"_{i}" for i in range(n + len(names))))
    result = StructType([*wide.schema.fields[:n], StructField(f"_{n}", kind)])

    def compute(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            start = 0
            for found in work([pa.RecordBatch.from_arrays(batch.columns[n:], names)]):
                rows = batch.slice(start, len(found))
                start += len(found)
                yield pa.RecordBatch.from_arrays([*rows.columns[:n], found], [f"_{i}" for i in range(n + 1)])

    return wide.mapInArrow(compute, result).toDF(*own, name)


def repartition_by_id(frame: DataFrame, n: int, number: str | Column) -> DataFrame:
    """The rows in `n` partitions, each row in the one that `number` names (an int of 0 to n - 1, never NULL)."""
    if spark_version() >= (4, 1):
        return frame.repartitionById(n, number)
    from pyspark.sql import functions as F  # noqa: N812

    place = F.col(number) if isinstance(number, str) else number
    keys = F.array(*map(F.lit, partition_keys(n)))
    return frame.repartition(n, F.element_at(keys, place.cast("int") + 1))


@cache
def partition_keys(n: int) -> tuple[int, ...]:
    """For each of `n` partitions, an int that `repartition(n, ...)` sends there: Spark takes the Murmur3 hash modulo n."""
    found: dict[int, int] = {}
    key = 0
    while len(found) < n:
        found.setdefault(murmur3(key) % n, key)
        key += 1
    return tuple(found[place] for place in range(n))


def murmur3(key: int, seed: int = 42) -> int:
    """Spark's hash of an int: Murmur3, 32 bits, signed."""
    mask = 0xFFFFFFFF
    k = _rotate(key * 0xCC9E2D51 & mask, 15) * 0x1B873593 & mask
    h = (_rotate(seed ^ k, 13) * 5 + 0xE6546B64) & mask
    h ^= 4  # the length in bytes
    h = (h ^ h >> 16) * 0x85EBCA6B & mask
    h = (h ^ h >> 13) * 0xC2B2AE35 & mask
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h


def _rotate(value: int, by: int) -> int:
    return (value << by | value >> (32 - by)) & 0xFFFFFFFF
