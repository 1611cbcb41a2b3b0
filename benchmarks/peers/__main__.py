"""Measure Wherecast beside its peers, and write the page.

    python -m benchmarks.peers run [--workloads NAME...] [--peers NAME...] [--sizes N...] [--budget S] [--results FILE]
    python -m benchmarks.peers page [--results FILE]

`run` loads each peer with the filters of each workload, matches the same events, compares the matches of every filter with those of Wherecast, and
only then writes a time down; a result that is there already is not measured again. A peer that is wrong ends the run. `page` writes the
tables of docs/guides/peers.md and README.md, and the plot.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from benchmarks.peers import page
from benchmarks.peers.databases import DuckDBPeer, SparkSQL
from benchmarks.peers.engines import Batches, Singles, load, tally
from benchmarks.peers.golang import Quamina
from benchmarks.peers.jvm import Monitor, Ruler
from benchmarks.peers.peer import CannotError, Measured, Peer
from benchmarks.peers.workloads import NAMES, PeerWorkload, make

PEERS: dict[str, type[Peer]] = {
    "wherecast": Batches,
    "singles": Singles,
    "duckdb": DuckDBPeer,
    "spark": SparkSQL,
    "event-ruler": Ruler,
    "quamina": Quamina,
    "lucene": Monitor,
}
SIZES = (1_000, 10_000, 100_000)


def check(workload: PeerWorkload, found: Measured, who: str) -> None:
    """Compare with Wherecast; a difference ends the run."""
    engine, table, _ = load(workload)
    wanted = tally(engine, table.slice(0, found.checked), len(workload.filters))
    same = found.tally.sum() == wanted.sum() if found.is_total else np.array_equal(found.tally, wanted)
    if not same:
        where = np.flatnonzero(found.tally != wanted)[:3].tolist() if not found.is_total else []
        texts = [f"{workload.texts[i]}: {found.tally[i]} instead of {wanted[i]}" for i in where]
        raise SystemExit(f"{who} on {workload.name}: {found.tally.sum()} matches, Wherecast {wanted.sum()}. {texts}")


def run(given: argparse.Namespace) -> None:
    lines = given.results.read_text().splitlines() if given.results.exists() else []
    done = {(r["workload"], r["size"], r["peer"]) for r in map(json.loads, lines)}
    for name in given.workloads:
        for size in given.sizes:
            missing = [p for p in given.peers if (name, size, p) not in done]
            workload = make(name, size) if missing else None
            for who in missing:
                assert workload is not None
                line = {"workload": name, "size": size, "peer": who, **measure(PEERS[who](), workload, given.budget)}
                line |= {"machine": platform.machine(), "when": datetime.now(UTC).isoformat(timespec="seconds")}
                with given.results.open("a") as file:
                    file.write(json.dumps(line) + "\n")
                print(json.dumps(line), flush=True)


def measure(peer: Peer, workload: PeerWorkload, budget_s: float) -> dict[str, object]:
    if len(workload.filters) > peer.most:
        return {"cannot": f"not tried with more than {peer.most:,} filters"}
    try:
        found = peer.measure(workload, budget_s)
    except CannotError as error:
        return {"cannot": str(error)}
    check(workload, found, peer.name)
    matches = float(found.tally.sum() / found.checked)
    return {
        "us_per_event": round(found.us_per_event, 3),
        "load_s": round(found.load_s, 3),
        "events": found.events,
        "checked": found.checked,
        "matches_per_event": round(matches, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "page"))
    parser.add_argument("--workloads", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--peers", nargs="+", choices=tuple(PEERS), default=tuple(PEERS))
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument(
        "--budget",
        type=float,
        default=3.0,
        help="seconds that a peer is timed for; Java warms up for four times as long",
    )
    parser.add_argument("--results", type=Path, default=Path("docs/guides/peers.jsonl"))
    given = parser.parse_args()
    if given.what == "page":
        peers = {key: (peer.name, peer.form) for key, peer in PEERS.items()}
        page.write(given.results, Path("docs"), Path("README.md"), peers)
    else:
        run(given)


if __name__ == "__main__":
    sys.exit(main())
