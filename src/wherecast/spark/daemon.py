"""The process that Spark forks Python workers from, with everything they need already imported.

Theory of operation. Spark does not start a Python for each task. It starts one process, `python -m pyspark.daemon`, and forks a
worker from it whenever no idle worker is left. That process has imported hardly anything, so each worker imports pandas,
Arrow, Numba and Wherecast for itself, which takes longer than most micro-batches. This module is used in its place
(`spark.python.daemon.module`, through `wherecast.daemon`): it imports first and forks then, so a worker has all modules from the start
and shares their memory.

Threads do not survive a fork. Importing NumPy and Arrow starts a thread each (of OpenBLAS and of an allocator), which both end before a
fork and start again when needed. Wherecast starts none when it is imported.

A worker that Spark no longer needs finds its socket closed. Over TCP its last words vanish; on a socket of the file system writing them
fails, which is the same end and not worth a stack trace.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import wherecast.spark.tasks  # noqa: F401 - what a match runs


def main() -> None:
    """Import what Spark's own workers run, too, and serve as Spark's daemon does."""
    import pyspark.worker  # noqa: F401
    from pyspark import daemon

    module: Any = daemon
    module.worker = _until_closed(module.worker)
    # A worker collects garbage after every task. That took 60 ms, in which the next task waits: it looked at all that was imported.
    gc.collect()
    gc.freeze()
    module.manager()


def _until_closed(worker: Callable[[Any, bool], int]) -> Callable[[Any, bool], int]:
    """Spark's worker, which ends without a word when Spark has closed its socket."""

    def serve(sock: Any, authenticated: bool) -> int:
        try:
            return worker(sock, authenticated)
        except BrokenPipeError:
            return 1

    return serve
