"""Many kills, or a long history of kills and restarts, with a check of everything that was acknowledged.

python -m tests.integration.broker_kills_run (--kills 100 | --minutes 10) [--postgresql] [--seed 1]
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.integration.broker_history import run_for, run_with_kills
from tests.servers.postgresql import running_postgresql
from tests.servers.wherecast_broker import running_wherecast


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--minutes", type=float, help="instead of a number of kills")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--postgresql", action="store_true")
    options = parser.parse_args()
    with ExitStack() as stack:
        database = stack.enter_context(running_postgresql(syncs=True)).url if options.postgresql else None
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker = stack.enter_context(running_wherecast(folder, database=database, settings=("heartbeat_s=0.5",)))
        if options.minutes is not None:
            print(run_for(broker, options.minutes * 60, options.seed))
        else:
            print(run_with_kills(broker, options.kills, options.seed))


if __name__ == "__main__":
    main()
