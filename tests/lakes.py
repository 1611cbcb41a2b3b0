"""Sessions with Delta and Iceberg, on the versions of Spark that both support."""

from __future__ import annotations

from pathlib import Path

from tests.jars.artifacts import fetch, jdbc_jars, pins_of, read_pins

#: The catalog of Iceberg's tables.
CATALOG = "lake"
#: The oldest Spark that is supported has both, so `make test` needs no third version.
USUAL = "3.5"
#: The one with both and with an S3 client.
ON_S3 = "4.1"


def has_lakes(spark_version: str) -> bool:
    """Whether the jars for that version of Spark are pinned."""
    return pins_of("lakes", spark_version).exists()


def lake_settings(spark_version: str, warehouse: str | Path, catalog: str | None = None) -> dict[str, str]:
    """The settings of a session with both; tables are under `warehouse`. Raises MavenError.

    `catalog` is a PostgreSQL (its JDBC URL) that keeps Iceberg's tables: without one a commit is a rename, which needs a disk.
    """
    extensions = (
        "io.delta.sql.DeltaSparkSessionExtension,org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    )
    jars = [*fetch(read_pins(pins_of("lakes", spark_version))), *(jdbc_jars() if catalog else [])]
    kept = {"type": "hadoop"} if catalog is None else {"type": "jdbc", "uri": catalog, "jdbc.schema-version": "V1"}
    return {
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.extensions": extensions,
        "spark.sql.warehouse.dir": f"{warehouse}/delta",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        f"spark.sql.catalog.{CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
        **{f"spark.sql.catalog.{CATALOG}.{name}": value for name, value in kept.items()},
        f"spark.sql.catalog.{CATALOG}.warehouse": f"{warehouse}/iceberg",
        # Logs of ten rows: more partitions only take longer.
        "spark.databricks.delta.snapshotPartitions": "1",
    }
