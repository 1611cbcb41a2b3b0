"""How Spark runs in tests: little data and short lives, so that starting and compiling cost more than computing."""

from __future__ import annotations

import os

#: Plans run once, on a few rows: they are interpreted rather than compiled to Java, and not planned again half way.
INTERPRETED = {
    "spark.sql.codegen.wholeStage": False,
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": False,
}
#: The first compiler of the JVM only, and no threads for the garbage: a core is wanted for the tests.
JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: Settings of every session that a test starts.
SETTINGS = {
    **INTERPRETED,
    "spark.sql.shuffle.partitions": 2,
    "spark.default.parallelism": 2,
    "spark.ui.enabled": False,
    "spark.executor.extraJavaOptions": JVM,
}


def start_jvms_quickly() -> None:
    """Set how spark-submit starts its JVMs, in this process and in those it starts."""
    for name in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
        os.environ.setdefault(name, JVM)
