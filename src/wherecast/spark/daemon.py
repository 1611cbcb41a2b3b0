"""The process that Spark forks Python workers from, with everything they need already imported.

Theory of operation. Spark does not start a Python for each task. It starts one process, `python -m pyspark.daemon`, and forks a
worker from it whenever no idle worker is left. That process has imported hardly anything, so each worker imports pandas,
Arrow, Numba and Wherecast for itself, which takes longer than most micro-batches. This module is used in its place
(`spark.python.daemon.module`): it imports first and forks then, so a worker has all modules from the start and shares their memory.

Threads do not survive a fork. Importing NumPy and Arrow starts a thread each (of OpenBLAS and of an allocator), which both end before a
fork and start again when needed. Wherecast starts none when it is imported.
"""

from __future__ import annotations

import wherecast.spark.tasks  # noqa: F401 - what a match runs


def main() -> None:
    """Import what Spark's own workers run, too, and serve as Spark's daemon does."""
    import pyspark.worker  # noqa: F401
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
