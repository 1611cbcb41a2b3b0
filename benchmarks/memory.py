"""How much memory loading filters takes, stage by stage.

    python benchmarks/memory.py [--workload light] [--filters 1000000] [--processes 1] [--work DIR]

The filters are drawn once into a Parquet file of the work folder. A new process reads them as an Arrow table and gives them to
`subscribe_many`, while a thread looks at its memory every few milliseconds. `rest` is what is held before a stage,
`peak` the most within it; both count all of the process, with Python, Numba and the table. With several processes those of the others come in addition. The last line
compares the peak with three times the index, as `stats()["bytes"]` has it, and 1 GB: all of the process counts, but for the caller's table.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from wherecast.bench.workloads.reference import draw_filters, make_workload
from wherecast.engine import engine as engine_module
from wherecast.engine import segment as segment_module
from wherecast.engine.engine import Engine
from wherecast.language.events.schema import Schema
from wherecast.matchers.adaptive import AdaptiveMatcher

_DRAWN = 250_000
MB = 1e6


def draw(name: str, n: int, folder: Path) -> tuple[Path, Path]:
    """The files of a schema and of so many subscriptions, made if they are not there."""
    folder.mkdir(parents=True, exist_ok=True)
    schema, rows = folder / f"{name}.json", folder / f"{name}-{n}.parquet"
    if not rows.exists():
        workload = make_workload(name, 0.01)
        schema.write_text(Schema.of(workload.schema).to_json())
        form = pa.schema({"id": pa.int64(), "filter": pa.string()})
        with pq.ParquetWriter(rows, form) as writer:
            for seed, first in enumerate(range(0, n, _DRAWN)):
                size = min(_DRAWN, n - first)
                texts = workload.filter_column(draw_filters(name, size, seed))
                writer.write_table(pa.table([np.arange(first, first + size), texts], schema=form))
    return schema, rows


class Stages:
    """The memory of this process by stage."""

    def __init__(self) -> None:
        self.found: list[list[Any]] = []  # name, rest, peak, seconds
        self.peak = 0.0
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while True:
            now = resident()
            self.peak = max(self.peak, now)
            for stage in self.found:
                if stage[3] is None:
                    stage[2] = max(stage[2], now)
            time.sleep(0.005)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        begin, mine = time.perf_counter(), [name, resident(), resident(), None]
        self.found.append(mine)
        try:
            yield
        finally:
            mine[3] = time.perf_counter() - begin

    def watch(self, owner: Any, name: str) -> None:
        """Make a stage of each call of a function."""
        work: Callable[..., Any] = getattr(owner, name)

        def watched(*args: Any, **options: Any) -> Any:
            with self.stage(name.strip("_")):
                return work(*args, **options)

        setattr(owner, name, watched)


def resident() -> float:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def load(schema: Path, rows: Path, processes: int) -> None:
    """Load a file and print the stages."""
    warm = Engine(Schema.from_file(schema))
    table = pq.read_table(rows)
    warm.subscribe_many(table.slice(0, 2_000))
    del warm
    gc.collect()
    stages = Stages()
    stages.watch(engine_module, "read_subscriptions")
    stages.watch(engine_module, "compile_parts")
    for name in ("_united", "_alike_together", "_take", "index_filters", "_subscriptions"):
        stages.watch(segment_module, name)
    stages.watch(AdaptiveMatcher, "build_sharing")
    engine = Engine(Schema.from_file(schema))
    before = resident()
    with stages.stage("all"):
        engine.subscribe_many(table, processes=processes)
    index = int(engine.stats()["bytes"])
    print(f"{len(engine):,} filters, table {table.nbytes / MB:,.0f} MB, process with table {before / MB:,.0f} MB")
    for name, rest, peak, seconds in sorted(stages.found, key=lambda s: s[0] == "all"):
        print(f"  {name:<20}{rest / MB:>9,.0f} rest{peak / MB:>9,.0f} peak{seconds:>9.1f} s")
    bound = 3 * index + 1e9
    print(f"  index {index / MB:,.0f} MB; at most {stages.peak / MB:,.0f} MB in the whole process, {(stages.peak - table.nbytes) / MB:,.0f} MB "
          f"without the table; three times the index and 1 GB: {bound / MB:,.0f} MB")  # fmt: skip


def main() -> None:
    """Draw here, measure in a new process."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--workload", default="light")
    parser.add_argument("--filters", type=int, default=1_000_000)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path("benchmark-data"))
    parser.add_argument("--load", nargs=2, type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.load:
        load(*asked.load, asked.processes)
        return
    files = [str(file) for file in draw(asked.workload, asked.filters, asked.work.resolve())]
    command = [sys.executable, __file__, "--processes", str(asked.processes), "--load", *files]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
