from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from wherecast.spark.session import JAVA_OPTIONS, class_archive, find_java

pytestmark = pytest.mark.spark

PROGRAM = """
import json, os, sys
from wherecast.spark.session import create_session

def double(batches):
    import gc
    import sys
    import pyarrow as pa
    import pyarrow.compute as pc
    for batch in batches:
        # Frozen: what a collection after a task does not look at.
        imported = "wherecast.spark.tasks" in sys.modules and gc.get_freeze_count() > len(gc.get_objects())
        with_byte_code = ".zip" not in sys.modules["pyspark"].__file__
        there = pa.array([imported and with_byte_code] * batch.num_rows)
        yield pa.RecordBatch.from_arrays([pc.multiply(batch.column(0), 2), there], names=["id", "there"])

spark = create_session(master="local[1]")
rows = spark.range(5).mapInArrow(double, "id long, there boolean").collect()
print(json.dumps({
    "ids": sorted(row.id for row in rows),
    "workers_import_first_and_freeze": all(row.there for row in rows),
    "java_home": os.environ["JAVA_HOME"],
    "zone": spark.conf.get("spark.sql.session.timeZone"),
    "time": spark.sql("select cast(timestamp'2024-07-01 12:00:00' as string) t").first().t,
    "state": spark.conf.get("spark.sql.streaming.stateStore.providerClass"),
    "ui": spark.conf.get("spark.ui.enabled"),
}))
spark.stop()
"""


def path_without_java(directory: Path) -> str:
    """A PATH of one directory that has every command of this machine's except java."""
    directory.mkdir()
    for source in map(Path, os.environ["PATH"].split(os.pathsep)):
        for command in source.iterdir() if source.is_dir() else ():
            link = directory / command.name
            if not command.name.startswith("java") and not link.exists() and not link.is_symlink():
                link.symlink_to(command)
    return str(directory)


def test_spark_starts_without_a_java_on_the_machine(tmp_path):
    """With no JAVA_HOME and no java on PATH, Spark runs on the runtime from PyPI, set up and quiet."""
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith(("JAVA_", "SPARK_", "PYSPARK_"))
    }
    environ |= {
        "PATH": path_without_java(tmp_path / "bin"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "TZ": "Asia/Tokyo",
    }
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, program], env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["ids"] == [0, 2, 4, 6, 8]
    assert answer["workers_import_first_and_freeze"]
    assert Path(answer["java_home"]).is_relative_to(tmp_path / "cache")
    assert answer["zone"] == "UTC"
    assert answer["time"] == "2024-07-01 12:00:00"
    assert answer["state"].endswith("RocksDBStateStoreProvider")
    assert answer["ui"] == "false"
    # The JVM may warn on its own account; Spark says nothing.
    assert [line for line in done.stderr.splitlines() if line and not line.startswith("WARNING: ")] == []


def test_session_fixture_runs_a_query(spark):
    """The shared session answers, in UTC and with two shuffle partitions."""
    assert spark.range(10).selectExpr("sum(id)").first()[0] == 45
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_the_jvm_maps_the_archive_of_classes(spark):
    """`create_session` names the archive that `wherecast warm` has made, and Java takes it."""
    archive = class_archive(find_java())
    if not archive.exists():
        pytest.skip(f"there is no {archive}; `wherecast warm` makes it")
    # Not spark.conf: a later call of `create_session` writes its settings there, whatever Java was started with.
    assert str(archive) in spark.sparkContext.getConf().get(JAVA_OPTIONS)
    maps = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/maps")
    if not maps.exists():
        pytest.skip("what a process maps is read from /proc")
    assert str(archive) in maps.read_text()
