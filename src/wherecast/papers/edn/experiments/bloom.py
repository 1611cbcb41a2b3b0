"""Bloom filters at the dispatcher: what they let through, and what they weigh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from wherecast.papers.edn.experiments.network import PAPER, NetworkSettings
from wherecast.papers.lab.experiment import Claim, Experiment, Finding, Progress, show_spread
from wherecast.papers.lab.plots import PALETTE, show_plain
from wherecast.papers.lab.rows import Row, Rows, choose, group, numbers
from wherecast.partition.balance import server_loads
from wherecast.partition.summary import BITS_PER_SIGNATURE, Bloom

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "edn-bloom"


@dataclass(frozen=True, slots=True)
class BloomSettings(NetworkSettings):
    """Bloom filters per bucket, at several sizes; the product's own size is among them."""

    bits: tuple[int, ...] = (4, 7, BITS_PER_SIGNATURE, 28)


def run(settings: BloomSettings, progress: Progress) -> list[Row]:
    """What passes of events that fall on all symbols alike, and what the filters weigh."""
    rows: list[Row] = []
    for seed, network in settings.networks(NAME, progress):
        wanted = network.subscriptions > 0
        for bits in settings.bits:
            bloom = Bloom.build(network.signatures[wanted], network.n_buckets, bits)
            passed = bloom.may_hold(network.signatures)
            held = server_loads(bloom.bytes_per_bucket().astype(np.float64), network.table, network.n_servers)
            rows.append({
                "seed": seed,
                "bits": bits,
                "wanted_percent": 100 * float(wanted.mean()),
                "false_positive_percent": 100 * float((passed & ~wanted).mean()),
                "lost": int((wanted & ~passed).sum()),
                "traffic_cut_percent": 100 * float(1 - passed.mean()),
                "server_kb": float(held.max()) / 1024,
                "dispatcher_kb": bloom.nbytes / 1024,
            })  # fmt: skip
    return rows


def _claim_bloom(sentence: str, column: str, figure: str, low: float, high: float) -> Claim:
    """A claim on the product's own size: the median lies between two limits."""

    def judge(rows: Rows) -> Finding:
        found = numbers(choose(rows, bits=BITS_PER_SIGNATURE), column)
        return Finding(show_spread(found), bool(low <= np.median(found) <= high))

    return Claim(PAPER, NAME, sentence, figure, judge)


def plot(rows: Rows, axes: Axes) -> None:
    """False positives over memory; both logarithmic."""
    for bits, found in group(rows, "bits"):
        at = np.median(numbers(found, "dispatcher_kb")), np.median(numbers(found, "false_positive_percent"))
        axes.annotate(f"{bits} bits", at, xytext=(6, 4), textcoords="offset points", fontsize=8)
    points = numbers(rows, "dispatcher_kb"), numbers(rows, "false_positive_percent")
    axes.scatter(*points, s=10, color=PALETTE[0], label="by bits per symbol at least; a point per seed")
    axes.plot([215], [1], "v", color=PALETTE[1], label="the paper: less than 1 % with 215 KB")
    axes.set(xscale="log", yscale="log", xlabel="Bloom filters at the dispatcher (KB)")
    axes.set_ylabel("false positives (% of all events)")
    show_plain(axes.xaxis, (10, 20, 50, 100, 200))


EXPERIMENT = Experiment(
    NAME,
    PAPER,
    "Bloom filters: false positives over memory",
    {"small": BloomSettings(seeds=2), "paper": BloomSettings()},
    run,
    (
        _claim_bloom("Few events pass that nobody wants.", "false_positive_percent", "< 1 %", 0, 1),
        _claim_bloom("About half of the traffic is saved.", "traffic_cut_percent", "> 49.3 %", 49.3, 100),
        _claim_bloom("No event is lost.", "lost", "0", 0, 0),
        _claim_bloom("A server holds little.", "server_kb", "4.3 KB", 0, 4.3),
        _claim_bloom("The dispatcher holds little.", "dispatcher_kb", "215 KB", 0, 215),
    ),
    plot,
    seconds={"small": 1, "paper": 1},
)
