"""A process that forges and opens: edit numbers come in on standard input, outcomes go out, one JSON line each."""

from __future__ import annotations

import faulthandler
import json
import random
import resource
import sys
import traceback
from pathlib import Path

from tests.forge.edits import edit_snapshot
from tests.forge.engines import SHAPES, try_snapshot

#: Memory that an opened snapshot may take beyond what the process has when it begins.
_MOST_BYTES = 4 << 30


def serve(saved: Path, scratch: Path, seed: int) -> None:
    faulthandler.enable()
    names = sorted(p.name for p in saved.iterdir())
    for name in names:  # compile, so that the limits are those of opening alone
        try_snapshot(saved / name, SHAPES[name.rpartition("+")[2]], scratch / "saved")
    _limit_memory()
    print("ready", flush=True)
    for line in sys.stdin:
        number = int(line)
        rng = random.Random(f"{seed} {number}")
        name = names[number % len(names)]
        edit = edit_snapshot(saved / name, scratch / "forged", rng)
        print(json.dumps(["edit", f"{name}: {edit}"]), flush=True)
        try:
            kind, detail = try_snapshot(scratch / "forged", SHAPES[name.rpartition("+")[2]], scratch / "saved")
        except Exception as error:  # noqa: BLE001 - what no forged file may cause is what we look for
            kind, detail = "failed", "".join(traceback.format_exception(error))
        print(json.dumps([kind, detail]), flush=True)


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    if pages:
        most = pages * resource.getpagesize() + _MOST_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))


if __name__ == "__main__":
    serve(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
