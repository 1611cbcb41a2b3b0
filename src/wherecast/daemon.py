"""`python -m wherecast.daemon`: how Spark starts the process that its Python workers are forked from (`wherecast.spark.daemon`).

Spark puts its archive `pyspark.zip` first on the path of that process. An archive holds no byte code, so Python would compile the source of
PySpark at each start, which takes a second. Where the archive is part of an installed PySpark, the same modules are beside it with their
byte code, and are used instead. That has to happen before anything imports PySpark, and importing `wherecast.spark` does; so this
module is not in there.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from pathlib import Path


def skip_archive(path: list[str]) -> list[str]:
    """A search path without the `pyspark.zip` of the PySpark that is installed on the same path; any other archive stays."""
    archives = [entry for entry in path if Path(entry).name == "pyspark.zip"]
    others = [entry for entry in path if entry not in archives]
    installed = PathFinder.find_spec("pyspark", others)
    if installed is None or installed.origin is None:
        return path
    own = Path(installed.origin).parent / "python" / "lib" / "pyspark.zip"
    return others if all(Path(archive).resolve() == own.resolve() for archive in archives) else path


if __name__ == "__main__":
    sys.path[:] = skip_archive(sys.path)
    from wherecast.spark import daemon

    daemon.main()
