"""Load everything for long, let things fail, and compare all of it with an oracle.

    python -m tests.soak.run --minutes 20 --seed 1

The parts run at the same time, each for the whole time: `library` (see there) in this process, `stream` in others. The
exit code is 1 if there is any difference, if a thread or process died that should not, or if memory is not level (see
`memory`).
"""

from __future__ import annotations

import argparse
import sys
import threading

from tests.soak.library import soak_library
from tests.soak.tally import Tally

PARTS = ("library", "stream")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", choices=PARTS, help="only this one")
    given = parser.parse_args()
    chosen = PARTS if given.part is None else (given.part,)
    outcomes: list[Tally] = []
    threads = []
    if "stream" in chosen:
        from tests.soak.stream import soak_stream

        threads.append(threading.Thread(target=lambda: outcomes.append(soak_stream(given.minutes * 60, given.seed))))
    if "library" in chosen:
        threads.append(threading.Thread(target=lambda: outcomes.append(soak_library(given.minutes * 60, given.seed))))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    differences = sum(len(tally.differences) for tally in outcomes)
    died = len(threads) - len(outcomes)
    print(f"minutes={given.minutes:g} seed={given.seed} differences={differences} died={died}")
    return 1 if differences or died else 0


if __name__ == "__main__":
    sys.exit(main())
