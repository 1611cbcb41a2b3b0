"""Run tests on another version of Spark: `python -m tests.spark_versions.run 3.5 tests/integration/test_spark_match.py`.

A version is a folder with PySpark and py4j in the user's cache, which stands before .venv in PYTHONPATH: all other packages, and the
compiled kernels, are those of .venv. The lock files beside this module (`make lock`) pin both packages by their hashes, and
for Spark 3, which does not run on the newest Java, a Java.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.spark_settings import submit_options

LOCKS = Path(__file__).parent
ROOT = LOCKS.parents[1]
VERSIONS = sorted(lock.stem for lock in LOCKS.glob("*.lock"))
#: What every version must do.
TESTS = ("match", "stream", "writing", "rules", "lakes", "exactly_once")


def folder_of(version: str) -> Path:
    """Where a version is installed; it is installed now if it is not there."""
    lock = LOCKS / f"{version}.lock"
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "wherecast" / "spark"
    folder = base / f"{version}-{hashlib.sha256(lock.read_bytes()).hexdigest()[:12]}"
    if folder.exists():
        return folder
    base.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=base, prefix=".draft-"))
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--use-pep517"]
    try:
        subprocess.run([*command, "--require-hashes", "--target", str(draft), "-r", str(lock)], check=True)
        draft.rename(folder)
    except OSError:  # another run was quicker
        if not folder.exists():
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def environment(version: str) -> dict[str, str]:
    """The environment of a process that is to find that version."""
    folder = folder_of(version)
    path = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, **submit_options(folder / "pyspark"), "PYTHONPATH": os.pathsep.join(path)}


def run_tests(version: str, arguments: list[str]) -> subprocess.CompletedProcess[bytes]:
    """Run pytest with a version of Spark."""
    command = [sys.executable, "-m", "pytest", "-q", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment(version), check=False)


def main(version: str, arguments: list[str]) -> int:
    """Run the given tests, by default all that every version must pass; the exit code of pytest."""
    if version not in VERSIONS:
        print(f"there is no lock file for Spark {version}; there are {', '.join(VERSIONS)}", file=sys.stderr)
        return 2
    files = [f"tests/integration/test_spark_{name}.py" for name in TESTS]
    print(f"Spark {version}", flush=True)
    archive = [sys.executable, "-m", "tests.class_archive"]  # without one JVMs start more slowly
    subprocess.run(archive, cwd=ROOT, env=environment(version), check=False, capture_output=True)
    return run_tests(version, arguments or [file for file in files if (ROOT / file).exists()]).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
