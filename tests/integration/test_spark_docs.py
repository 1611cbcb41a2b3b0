"""The Spark code of README and guide runs as pasted, from top to bottom, in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.spark_settings import INTERPRETED

ROOT = Path(__file__).parents[2]
GUIDES = [ROOT / "docs" / name for name in ("start/spark.md", "guides/spark.md", "guides/rules.md")]


def fences(path: Path, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.spark
@pytest.mark.slow
def test_python(tmp_path: Path) -> None:
    """README, then the guides, in a process of their own: what they assert holds, and each quote reaches whom it should."""
    (readme,) = fences(ROOT / "README.md", "python spark")
    assert len([line for line in readme.splitlines() if line]) <= 15
    mark = "end of README"
    program = tmp_path / "pasted.py"
    program.write_text(
        "\n".join([readme, f"print({mark!r})\n", *(f for g in GUIDES for f in fences(g, "python spark"))])
    )
    # 200 partitions, and plans that are compiled, take time in each batch.
    settings = {**INTERPRETED, "spark.sql.shuffle.partitions": 2, "spark.default.parallelism": 2}
    (tmp_path / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    environment = {**os.environ, "SPARK_CONF_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, program], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = done.stdout.split(mark)[0].split("\n\n")[:2]
    assert re.search(r"IBM\|.*\|\s*1\|\s*ann\|", first)
    assert re.search(r"SAP\|.*\|\s*2\|\s*bob\|", first)
    assert re.search(r"SAP.*\[2, 3\]|SAP.*\[3, 2\]", second)
