"""Keep the classes that versions of Spark load, so that the JVMs of tests start quickly: `python -m tests.class_archive [VERSION ...]`.

Without a VERSION that is the installed Spark. `make test` and `make kills` call it; see `wherecast.class_archive`.
"""

from __future__ import annotations

import subprocess
import sys

from tests.spark_versions.run import environment

from wherecast.class_archive import make_archive
from wherecast.spark.session import class_archive, find_java


def main(versions: list[str]) -> None:
    """Make the archives of some versions of Spark, unless they are there."""
    for version in versions:
        subprocess.run([sys.executable, "-m", "tests.class_archive"], env=environment(version), check=True)
    if not versions:
        java = find_java()
        make_archive(java.home, class_archive(java))


if __name__ == "__main__":
    main(sys.argv[1:])
