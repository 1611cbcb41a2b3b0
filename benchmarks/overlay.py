"""What the lab leaves out of the overlay: messages that share hops, and subscriptions that must survive crashes.

    python benchmarks/overlay.py [batching] [churn] [control] [--seeds N] [--first-seed N]

- batching: routing messages per event, one by one and batched; the part that is run without a name;
- churn: 1,000 peers with 4 copies, 10 % of them crashing per minute; about 15 seconds a seed;
- control: the same with 1 and with 2 copies, on three of the seeds.

Everything is drawn from seeds, so every run prints the same.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterable

from wherecast.overlay.messages import Route
from wherecast.overlay.placement import RingPlacement
from wherecast.overlay.settings import RingSettings
from wherecast.papers.chord.churn import SCHEMA, Churn, run_churn
from wherecast.papers.chord.simulate import SimulatedNetwork

PARTS = ("batching", "churn", "control")
#: Events of each measurement of batching.
N_EVENTS = 128


def table(title: str, head: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Print a Markdown table."""
    print(f"\n{title}\n")
    head = list(head)
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(f"{x:,.2f}" if isinstance(x, float) else str(x) for x in row) + " |")


def batching() -> None:
    """Routing messages per event, one by one and with shared hops, for events that are published together."""
    rows = []
    for nodes in (64, 256):
        for together in (1, 4, 16, 64):
            apart, shared = (messages_per_event(nodes, together, is_batching=b) for b in (False, True))
            rows.append((nodes, together, apart, shared, f"{1 - shared / apart:.0%}"))
    head = ("N", "events together", "one by one (before)", "batched (after)", "saved")
    table("Routing messages per event of 3 values (4 lists)", head, rows)


def messages_per_event(nodes: int, together: int, *, is_batching: bool) -> float:
    """Routing messages on a ring at rest, for events that nobody asks for."""
    settings = RingSettings(bits=64, successors=1, copies=1)
    network, rng = SimulatedNetwork(RingPlacement(SCHEMA, settings), 2, is_batching=is_batching), random.Random(2)
    network.found(nodes)
    # With successor lists of one, fingers come slowly: until they stand, look-ups go round.
    network.run(nodes * 100 + 200_000)
    before = network.sent[Route]
    for _ in range(N_EVENTS // together):
        node = rng.choice(list(network.nodes.values()))
        node.publish_many([draw_event(rng) for _ in range(together)])
        network.settle(node)
    network.run(60_000)
    return (network.sent[Route] - before) / N_EVENTS


def draw_event(rng: random.Random) -> dict[str, object]:
    return {"symbol": f"Z{rng.random()}", "price": rng.uniform(0, 1000), "volume": rng.randrange(100_000)}


def churn(seeds: Iterable[int], copies: int = 4, peers: int = 1000) -> None:
    """Crashes and joins at 10 % a minute for three minutes, then healing."""
    rows = []
    for seed in seeds:
        start = time.perf_counter()
        result = run_churn(Churn(peers=peers, copies=copies), seed)
        rows.append(
            (seed, result.crashes, result.is_healed, result.lost, result.undelivered, result.wrongly_delivered,
             result.deliveries, result.undelivered_in_churn, result.deliveries_in_churn, result.messages,
             time.perf_counter() - start)
        )  # fmt: skip
        print("  seed", *rows[-1][:-1], flush=True)
    head = ("seed", "crashes", "healed", "lost", "undelivered", "wrong", "due", "undelivered in churn", "due in churn",
            "messages", "seconds")  # fmt: skip
    table(f"Churn: {peers} peers, 8 successors, {copies} copies, 1 % loss, delays 20-80 ms", head, rows)
    print(
        f"\nlost {sum(r[3] for r in rows)}, undelivered {sum(r[4] for r in rows)}, in churn {sum(r[7] for r in rows)}"
    )


def main() -> None:
    """Run the parts asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(PARTS))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    options = parser.parse_args()
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))}; there are: {', '.join(PARTS)}")
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    for part in options.parts or ["batching"]:
        if part == "batching":
            batching()
        elif part == "churn":
            churn(seeds)
        else:
            for copies in (1, 2):
                churn(seeds[:3], copies)


if __name__ == "__main__":
    main()
