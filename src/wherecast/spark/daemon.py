"""The process that Spark forks Python workers from, with everything they need already imported.

Theory of operation. Spark does not start a Python for each task. It starts one process, `python -m pyspark.daemon`, and forks a
worker from it whenever no idle worker is left. That process has imported hardly anything, so each worker imports pandas,
Arrow, Numba and Wherecast for itself, which takes longer than most micro-batches. This module is used in its place
(`spark.python.daemon.module`): it imports first and forks then, so a worker has all modules from the start and shares their memory.

Spark puts its archive `pyspark.zip` first on the path of that process. An archive holds no byte code, so Python would compile the source of
PySpark at each start, which takes a second. Where the archive is part of an installed PySpark, the same modules are beside it with their
byte code, and are used instead.

Threads do not survive a fork. Importing NumPy and Arrow starts a thread each (of OpenBLAS and of an allocator), which both end before a
fork and start again when needed. Wherecast starts none when it is imported.

A worker that Spark no longer needs finds its socket closed. Over TCP its last words vanish; on a socket of the file system writing them
fails, which is the same end and not worth a stack trace.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import wherecast.spark.tasks  # noqa: F401 - what a match runs


def main() -> None:
    """Import what Spark's own workers run, too, and serve as Spark's daemon does."""
    sys.path[:] = skip_archive(sys.path)
    import pyspark.worker  # noqa: F401
    from pyspark import daemon

    module: Any = daemon
    module.worker = _until_closed(module.worker)
    # A worker collects garbage after every task. That took 60 ms, in which the next task waits: it looked at all that was imported.
    gc.collect()
    gc.freeze()
    module.manager()


def skip_archive(path: list[str]) -> list[str]:
    """A search path without the `pyspark.zip` of the PySpark that is installed on the same path; any other archive stays."""
    archives = [entry for entry in path if Path(entry).name == "pyspark.zip"]
    others = [entry for entry in path if entry not in archives]
    installed = PathFinder.find_spec("pyspark", others)
    if installed is None or installed.origin is None:
        return path
    own = Path(installed.origin).parent / "python" / "lib" / "pyspark.zip"
    return others if all(Path(archive).resolve() == own.resolve() for archive in archives) else path


def _until_closed(worker: Callable[[Any, bool], int]) -> Callable[[Any, bool], int]:
    """Spark's worker, which ends without a word when Spark has closed its socket."""

    def serve(sock: Any, authenticated: bool) -> int:
        try:
            return worker(sock, authenticated)
        except BrokenPipeError:
            return 1

    return serve


if __name__ == "__main__":
    main()
