"""The time zone of a session and of an index: they must be the same.

A timestamp without a zone means the session's zone to Spark, and the constants of an index are instants. So a build takes
the zone of its session into the schema of the version, and an index is matched in sessions of that zone only. Changes are
read in the zone of the index, whatever the session. Where no attribute is a date or a timestamp, zones do not matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from wherecast.errors import SchemaError
from wherecast.language.schema import TIME_ZONE, Kind, Schema
from wherecast.language.zone import UTC, find_zone
from wherecast.spark.names import Path

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from wherecast.language.schema import SchemaSource

_ZONE, _LITERALS = "spark.sql.session.timeZone", "spark.sql.timestampType"
_MOMENTS = (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ)


def schema_in_session(schema: SchemaSource, spark: SparkSession) -> Schema:
    """The schema of an index that a session builds. Raises SchemaError if it has a zone of its own, and another one."""
    read = Schema.of(schema)
    if not _has_moments(read):
        return read
    zone = _session_zone(spark)
    if read.time_zone not in (UTC.name, zone):
        raise SchemaError(
            f"the schema has the time zone {read.time_zone}, the session {zone}; leave out the zone of the schema, "
            f"or set {_ZONE} to it"
        )
    if isinstance(schema, dict) and TIME_ZONE not in schema:  # its domains are read in the session's zone, too
        return Schema.of(schema, time_zone=zone)
    return read.in_time_zone(zone)


def check_session(spark: SparkSession, schema: Schema) -> None:
    """Raises SchemaError if the answers of an index are not those of a session."""
    if _has_moments(schema):
        _check_zone(_session_zone(spark), schema)


def check_moments(columns: StructType, schema: Schema, where: Mapping[str, Path]) -> None:
    """Raises SchemaError where a column is another kind of date or timestamp than its attribute, which is at `where`.

    Spark compares by the type of the column: a wall clock or a day is not the instant that it would be converted to.
    """
    for attribute in (schema[name] for name in where):
        found = _type_of(columns, where[attribute.name])
        if attribute.kind in _MOMENTS and found in tuple(_MOMENTS) and found != attribute.kind:
            raise SchemaError(
                f"the column {attribute.name!r} is a {found}, its attribute a {attribute.kind}; cast the column, or build "
                f"the index with {attribute.name!r} as {found}"
            )


def check_batch(batch: pa.RecordBatch, schema: Schema) -> None:
    """Raises SchemaError if the timestamps of a batch come from a session of another zone, which they tell."""
    zones = {getattr(kind, "tz", None) for kind in batch.schema.types} - {None}
    if _has_moments(schema):
        for zone in zones:
            _check_zone(find_zone(zone).name, schema)


def _check_zone(zone: str, schema: Schema) -> None:
    if zone != schema.time_zone:
        raise SchemaError(
            f"the index was built in the time zone {schema.time_zone}, the session has {zone}, and timestamps without a "
            f"zone would mean different times; set {_ZONE} to {schema.time_zone}, or build the index again in this session"
        )


def _session_zone(spark: SparkSession) -> str:
    if str(spark.conf.get(_LITERALS)).upper() == "TIMESTAMP_NTZ":
        raise SchemaError(
            f"{_LITERALS} is TIMESTAMP_NTZ; set it to TIMESTAMP_LTZ and write TIMESTAMP_NTZ '...' in filters"
        )
    return find_zone(str(spark.conf.get(_ZONE))).name


def _has_moments(schema: Schema) -> bool:
    return any(attribute.kind in _MOMENTS for attribute in schema)


def _type_of(columns: StructType, path: Path) -> str:
    """Spark's name for the type of a column or field, or of the elements of an array."""
    found: Any = columns
    for name in path:
        found = found[name].dataType
    return str(getattr(found, "elementType", found).typeName())
