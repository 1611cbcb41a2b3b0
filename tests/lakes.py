"""Sessions with Delta and Iceberg, on the versions of Spark that both support."""

from __future__ import annotations

from pathlib import Path

from tests.jars.artifacts import PINS, fetch, read_pins

#: The catalog of Iceberg's tables.
CATALOG = "lake"
#: The oldest Spark that is supported has both, so `make test` needs no third version.
USUAL = "3.5"


def has_lakes(spark_version: str) -> bool:
    """Whether the jars for that version of Spark are pinned."""
    return _pins(spark_version).exists()


def lake_settings(spark_version: str, warehouse: Path) -> dict[str, str]:
    """The settings of a session with both; tables are under `warehouse`. Raises MavenError."""
    extensions = (
        "io.delta.sql.DeltaSparkSessionExtension,org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    )
    return {
        "spark.jars": ",".join(map(str, fetch(read_pins(_pins(spark_version))))),
        "spark.sql.extensions": extensions,
        "spark.sql.warehouse.dir": str(warehouse / "delta"),
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        f"spark.sql.catalog.{CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{CATALOG}.type": "hadoop",
        f"spark.sql.catalog.{CATALOG}.warehouse": str(warehouse / "iceberg"),
        # Logs of ten rows: more partitions only take longer.
        "spark.databricks.delta.snapshotPartitions": "1",
    }


def _pins(spark_version: str) -> Path:
    return PINS / f"lakes-{'.'.join(spark_version.split('.')[:2])}.sha256"
