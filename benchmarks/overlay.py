"""The overlay's figures beside the formulas of the paper: `python benchmarks/overlay.py [PART ...] [--seeds N]`.

Parts: hops, ranges, costs, join, small-domain, balance, batching, churn, control. Without a part, all but the churn
trials of 1,000 peers, which take about 15 seconds a seed. Everything is drawn from seeds, so every run prints the same.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterable
from statistics import mean

import numpy as np

from wherecast.language.compile import Compiler
from wherecast.language.keys import float_key
from wherecast.overlay.balance import equi_depth
from wherecast.overlay.churn import SCHEMA, Churn, run_churn
from wherecast.overlay.hashing import Line, line_of
from wherecast.overlay.messages import Route
from wherecast.overlay.placement import Placement
from wherecast.overlay.pubsub import Node
from wherecast.overlay.settings import Settings
from wherecast.overlay.simulate import Network
from wherecast.overlay.static import StaticRing, fit_hops, imbalance, virtual_load


def table(title: str, head: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Print a Markdown table."""
    print(f"\n{title}\n")
    head = list(head)
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(f"{x:,.2f}" if isinstance(x, float) else str(x) for x in row) + " |")


def hops() -> None:
    """Mean look-up against 1/2 log2 N; small rings are averaged over many."""
    counts, means, rows = [], [], []
    for exponent in range(4, 21):
        count, rings = 2**exponent, max(1, min(400, 2**14 >> exponent))
        found = np.concatenate([StaticRing(count, seed).random_hops(400_000 // rings) for seed in range(rings)])
        counts.append(count)
        means.append(float(found.mean()))
        rows.append((count, means[-1], exponent / 2, means[-1] - exponent / 2, int(found.max())))
    table("Hops per look-up, the last one to the owner counted", ("N", "mean", "1/2 log2 N", "c", "most"), rows)
    slope, constant = fit_hops(counts, means)
    print(f"\nfit: {slope:.4f} log2 N + {constant:.3f}; slope {100 * abs(slope / 0.5 - 1):.1f} % from 1/2")


def ranges() -> None:
    """Storing a range of r values of a domain of 100,000, by Chord and by OPChord."""
    rows = []
    for exponent in (10, 14, 17):
        ring = StaticRing(2**exponent, 1)
        for values in (10, 100, 1000):
            cost = ring.range_cost(values, 100_000, 200)
            half = exponent / 2
            rows.append(
                (2**exponent, values, cost.by_value, values * half, cost.by_owner, half + values, half + cost.owners)
            )
    head = ("N", "r", "Chord", "r x 1/2 log N", "OPChord", "1/2 log N + r", "1/2 log N + owners")
    table("Messages to store a range", head, rows)


def small_domain() -> None:
    """Ranges of a domain of 16 values, on rings with many more nodes than values."""
    rows = []
    for exponent in (8, 10, 12, 14):
        for values in (4, 10):
            cost = StaticRing(2**exponent, 1).range_cost(values, 16, 500)
            rows.append(
                (2**exponent, values, cost.by_successor, cost.by_owner, cost.side_by_side, exponent / 2 + values)
            )
    head = ("N", "r", "node to node (before)", "owner to owner", "side by side (after)", "1/2 log N + r")
    table("The small domain problem: messages to store a range of a domain of 16 values", head, rows)


def join() -> None:
    """Messages of a join, and with them those of the repair after a leave, against log^2 N."""
    rows = []
    for exponent in range(4, 21, 4):
        scratch, chained = StaticRing(2**exponent, 1).join_cost(300)
        rows.append((2**exponent, scratch, chained, exponent**2, scratch / exponent**2))
    head = ("N", "fingers from scratch", "from the finger before", "log2^2 N", "ratio")
    table("Messages of a join (questions and answers)", head, rows)


def _quiet(nodes: int, seed: int, *, mode: str = "opchord", is_batching: bool = True, copies: int = 1) -> Network:
    settings = Settings(bits=64, successors=1, copies=copies, mode=mode)  # type: ignore[arg-type]
    network = Network(Placement(SCHEMA, settings), seed, is_batching=is_batching)
    network.found(nodes)
    # With successor lists of one, fingers come slowly: until they stand, look-ups go round.
    network.run(nodes * 100 + 200_000)
    return network


def _messages(network: Network, node: Node, operation: int) -> int:
    """Routing messages until an operation that a node has begun is over."""
    before = network.sent[Route]
    network.settle(node)
    assert network.run_until([(node.ring.me.address, operation)], 600_000)
    return network.sent[Route] - before


def costs() -> None:
    """Section 3.3 on the real protocol: routing messages of storing, updating and matching."""
    nodes, trials = 256, 60
    network, compiler, rng = _quiet(nodes, 1, is_batching=False), Compiler(SCHEMA), random.Random(1)
    stored, updated, matched, ranged, moved = [], [], [], [], []
    for _ in range(trials):
        old, new = (compiler.compile(f"symbol = '{rng.random()}'") for _ in range(2))
        node = rng.choice(list(network.nodes.values()))
        operation, registration = node.subscribe(0, old, 0)
        stored.append(_messages(network, node, operation))
        operation, _ = node.update(registration, new)
        updated.append(_messages(network, node, operation))
        matched.append(_messages(network, node, node.publish(_event(rng))))
    for _ in range(trials):  # apart from the events, which would satisfy them
        node = rng.choice(list(network.nodes.values()))
        low = rng.uniform(0, 850)
        operation, registration = node.subscribe(0, compiler.compile(f"price BETWEEN {low:.2f} AND {low + 100:.2f}"), 0)
        ranged.append(_messages(network, node, operation))
        moving = compiler.compile(f"price BETWEEN {low + 40:.2f} AND {low + 140:.2f}")
        moved.append(_messages(network, node, node.update(registration, moving)[0]))
    look_up = np.log2(nodes) / 2
    rows = [
        # The metadata costs nothing: the node that takes a subscription owns its c1.
        ("store an equality", float(mean(stored)), look_up, look_up + 0.86),
        ("update an equality", float(mean(updated)), 2 * look_up, 2 * (look_up + 0.86)),
        ("match an event of 3 values, 4 lists", float(mean(matched)), 4 * look_up, 4 * (look_up + 0.86)),
        # A tenth of the domain lies on a tenth of the nodes.
        (
            "store a range of a tenth of the domain",
            float(mean(ranged)),
            look_up + nodes / 10,
            look_up + 0.86 + nodes / 10,
        ),
        (
            "move it by 4 % of the domain",
            float(mean(moved)),
            2 * (look_up + nodes / 25),
            2 * (look_up + 0.86 + nodes / 25),
        ),
    ]
    head = ("operation", "measured", "1/2 log N each", "with the last hop")
    table(f"Routing messages at N = {nodes}, without batching", head, rows)


def _event(rng: random.Random) -> dict[str, object]:
    return {"symbol": f"Z{rng.random()}", "price": rng.uniform(0, 1000), "volume": rng.randrange(100_000)}


def batching() -> None:
    """Routing messages per event, one by one and with shared hops, for events that are published together."""
    rows = []
    for nodes in (64, 256):
        for together in (1, 4, 16, 64):
            sent = []
            for is_batching in (False, True):
                network, rng = _quiet(nodes, 2, is_batching=is_batching), random.Random(2)
                before = network.sent[Route]
                for _ in range(128 // together):
                    node = rng.choice(list(network.nodes.values()))
                    node.publish_many([_event(rng) for _ in range(together)])
                    network.settle(node)
                network.run(60_000)
                sent.append((network.sent[Route] - before) / 128)
            rows.append((nodes, together, sent[0], sent[1], f"{1 - sent[1] / sent[0]:.0%}"))
    head = ("N", "events together", "one by one (before)", "batched (after)", "saved")
    table("Routing messages per event of 3 values (4 lists)", head, rows)


def balance() -> None:
    """Load of 1,000 nodes when prices crowd at the low end of their domain."""
    rng = np.random.default_rng(5)
    prices = np.minimum(rng.lognormal(3, 0.7, 220_000), 1000).round(2)
    sample, prices = prices[:20_000], prices[20_000:]
    line = line_of(SCHEMA["price"], 64, 1)
    assert line is not None
    bent = line_of(SCHEMA["price"], 64, 1, equi_depth(line, [float_key(p) for p in sample]))
    assert bent is not None
    spread = rng.integers(0, 2**64, 200_000, np.uint64)
    rows = []
    for name, positions in (
        ("SHA-1 (Chord)", spread),
        ("order-preserving, straight (before)", _places(line, prices)),
        ("order-preserving, equi-depth (after)", _places(bent, prices)),
    ):
        rows += [(name, each, *imbalance(virtual_load(1000, each, positions, 7))) for each in (1, 8)]
    table(
        "Load of 1,000 peers, as multiples of the mean", ("hash", "nodes per peer", "highest", "99th percentile"), rows
    )


def _places(line: Line, prices: np.ndarray) -> np.ndarray:
    distinct, inverse = np.unique(prices, return_inverse=True)
    places = [(line.base + line.place(float_key(p))) % 2**64 for p in distinct.tolist()]
    return np.array(places, np.uint64)[inverse]


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


PARTS: dict[str, Callable[[], None]] = {
    "hops": hops,
    "ranges": ranges,
    "small-domain": small_domain,
    "join": join,
    "costs": costs,
    "batching": batching,
    "balance": balance,
}


def main() -> None:
    """Run the parts asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join([*PARTS, "churn", "control"]))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    for part in options.parts or PARTS:
        if part == "churn":
            churn(seeds)
        elif part == "control":
            for copies in (1, 2):
                churn(seeds[:3], copies)
        elif part in PARTS:
            PARTS[part]()
        else:
            parser.error(f"no part {part!r}; there are {', '.join([*PARTS, 'churn', 'control'])}")


if __name__ == "__main__":
    main()
