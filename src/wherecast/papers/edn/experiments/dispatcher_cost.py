"""What routing an event costs at the dispatcher: by Bloom filters, by dictionary and by boxes, beside a Python dictionary.

Events are routed in batches; reading the Arrow columns and hashing the strings is part of the time. Every way is asked about the same
pairs of event and server before anything is timed, and all are timed in turns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from wherecast.bench.measure import Contestant, Timing, WrongCountError, time_in_turns
from wherecast.language.events.events import EventBatch
from wherecast.language.events.schema import Schema
from wherecast.language.filters.compile import Compiler
from wherecast.papers.edn.experiments.network import PAPER
from wherecast.papers.edn.experiments.spread import prepare
from wherecast.papers.edn.workload import PAPER_MARKET, Market
from wherecast.papers.lab.experiment import Claim, Experiment, Finding, Progress, show_number
from wherecast.papers.lab.plots import PALETTE, show_plain
from wherecast.papers.lab.rows import Row, Rows, choose, group, numbers
from wherecast.partition.event_space import EventSpace, SummaryKind
from wherecast.partition.protocol import Routes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "edn-dispatcher-cost"
#: Microseconds per event with 50 servers, on a machine of 2002.
PAPER_US = {"bloom": 3.6, "boxes": 3.0}
#: The Python dictionary, which shows what the machine is worth.
PYTHON = "python dictionary"
SCHEMA = Schema.of({"symbol": "string"})


@dataclass(frozen=True, slots=True)
class DispatcherCostSettings:
    """The paper's market over 50 servers; boxes are those of a workload of ranges."""

    market: Market = PAPER_MARKET
    n_servers: int = 50
    boxes_of: str = "places"
    boxes_scale: float = 1.0
    n_events: int = 10_000
    batches: tuple[int, ...] = (1, 10, 100, 1000, 10_000)
    rounds: int = 21


class RoutingMethod(NamedTuple):
    """One way to route."""

    name: str
    route: Callable[[int, int], int]  # routes of the events from the first number to before the second
    sent: int  # routes of all events
    needed: int  # of which so many lead to somebody who asks
    nbytes: int  # at the dispatcher

    def run(self, batch: int, n: int) -> int:
        """Route the first n events, `batch` at a time."""
        return sum(self.route(first, min(first + batch, n)) for first in range(0, n, batch))


def run(settings: DispatcherCostSettings, progress: Progress) -> list[Row]:
    """Microseconds per event for every way and batch, with what is sent and what it takes to know where."""
    progress(f"{NAME}: building")
    ways = [*_equality_ways(settings), _box_way(settings)]
    rows: list[Row] = []
    for batch in settings.batches:
        progress(f"{NAME}: {batch:,} events at once")
        contestants = [Contestant(way.name, partial(way.run, batch)) for way in ways]
        timings = time_in_turns(contestants, settings.n_events, rounds=settings.rounds, budget_s=0.1)
        rows += [_row(way, batch, timings[way.name], settings.n_events) for way in ways]
    return rows


def _row(way: RoutingMethod, batch: int, timing: Timing, n_events: int) -> Row:
    return {
        "way": way.name,
        "batch": batch,
        "us_per_event": timing.us_per_event,
        "best_us_per_event": timing.best_us_per_event,
        "servers_per_event": way.sent / n_events,
        "in_vain_percent": 100 * (way.sent - way.needed) / n_events,
        "dispatcher_bytes": way.nbytes,
    }


def _equality_ways(settings: DispatcherCostSettings) -> list[RoutingMethod]:
    """Event-space partitions with both summaries, and a dictionary of symbol to server that is given str for nothing."""
    market = settings.market
    symbols = [f"S{i:05d}" for i in range(market.symbols)]
    drawn = np.random.default_rng(1).integers(0, market.symbols, settings.n_events)
    names, asked = [symbols[i] for i in drawn.tolist()], drawn < market.asked
    table = pa.table({"symbol": names})
    compiled = Compiler(SCHEMA).compile_many([f"symbol = '{name}'" for name in symbols[: market.asked]])
    weights = np.ones(market.asked, np.int64)
    kinds: tuple[SummaryKind, ...] = ("bloom", "dictionary")
    ways = []
    for kind in kinds:
        partition = EventSpace.build(
            compiled.filters, weights, SCHEMA, settings.n_servers, attributes=["symbol"], summary=kind
        )
        dispatcher = partition.dispatcher()
        routes = dispatcher.route(EventBatch.read(SCHEMA, table))
        _check_reached(kind, asked, routes)
        route = _router(SCHEMA, table, dispatcher.route)
        ways.append(RoutingMethod(kind, route, routes.servers.size, int(asked.sum()), dispatcher.nbytes))
    servers = (np.arange(market.asked) % settings.n_servers).tolist()  # which ones does not matter to the time
    owners = dict(zip(symbols[: market.asked], servers, strict=True))

    def look_up(first: int, end: int) -> int:
        return len([(i, owners[name]) for i, name in enumerate(names[first:end]) if name in owners])

    found = look_up(0, settings.n_events)
    return [*ways, RoutingMethod(PYTHON, look_up, found, int(asked.sum()), owners.__sizeof__())]


def _box_way(settings: DispatcherCostSettings) -> RoutingMethod:
    """A filter-set partition with its ten boxes per server."""
    spread = prepare(settings.boxes_of, settings.boxes_scale)
    partition = spread.build(settings.n_servers)
    columns = {a.name: spread.events.array(i) for i, a in enumerate(spread.schema.attributes)}
    table = pa.table(columns).slice(0, settings.n_events).combine_chunks()
    n, routes = settings.n_servers, partition.route(EventBatch.read(spread.schema, table))
    needed = spread.needed(partition.place(spread.filters).servers, n)
    kept = needed.event_ids < settings.n_events
    wanted = needed.event_ids[kept] * n + needed.servers[kept]
    if np.setdiff1d(wanted, routes.event_ids * n + routes.servers).size:
        raise WrongCountError("boxes: an event that somebody asks for is dropped; nothing is timed")
    route = _router(spread.schema, table, partition.route)
    return RoutingMethod("boxes", route, routes.servers.size, wanted.size, partition.maps().nbytes)


def _router(schema: Schema, table: pa.Table, route: Callable[[EventBatch], Routes]) -> Callable[[int, int], int]:
    """Events from Arrow to routes."""
    (events,) = table.to_batches()
    return lambda first, end: route(EventBatch.read(schema, events.slice(first, end - first))).servers.size


def _check_reached(kind: str, asked: np.ndarray[tuple[int], np.dtype[np.bool_]], routes: Routes) -> None:
    reached = np.bincount(routes.event_ids, minlength=asked.size)
    exact = kind == "dictionary"
    if reached.max() > 1 or not reached[asked].all() or (exact and reached[~asked].any()):
        raise WrongCountError(f"{kind}: an event is sent twice, dropped or sent in vain; nothing is timed")


def _claim_time(way: str, sentence: str) -> Claim:
    def judge(rows: Rows) -> Finding:
        times = {int(row["batch"]): float(row["us_per_event"]) for row in choose(rows, way=way)}
        most = max(times)
        ours = f"{show_number(times[most])} us in batches of {most:,}"
        if 1 in times:
            ours += f", {show_number(times[1])} us one by one"
        return Finding(ours, times[most] <= PAPER_US[way])

    return Claim(PAPER, NAME, sentence, f"{PAPER_US[way]:g} us", judge)


def _judge_link(rows: Rows) -> Finding:
    """The link takes a message of 1 KB in 100 us; batches of one are the worst that can happen."""
    slowest = max((row for row in rows if row["way"] != PYTHON), key=lambda row: float(row["us_per_event"]))
    us, batch = float(slowest["us_per_event"]), int(slowest["batch"])
    return Finding(f"{show_number(us)} us at most ({slowest['way']}, batches of {batch:,})", us < 100)


def plot(rows: Rows, axes: Axes) -> None:
    """Time over the batch, both logarithmic; the paper's times as broken lines of the same colour."""
    for (way, own), color in zip(group(rows, "way"), PALETTE, strict=False):
        axes.plot(numbers(own, "batch"), numbers(own, "us_per_event"), "o-", color=color, label=str(way))
        if way in PAPER_US:
            us = PAPER_US[str(way)]
            axes.axhline(us, linestyle="--", linewidth=1, color=color, label=f"the paper's {way}: {us:g} us")
    axes.set(xscale="log", yscale="log", xlabel="events at once", ylabel="time per event (us)")
    show_plain(axes.yaxis, (0.02, 0.1, 1, 10, 50))


EXPERIMENT = Experiment(
    NAME,
    PAPER,
    "Dispatcher: time to route an event to 50 servers",
    {
        "small": DispatcherCostSettings(boxes_scale=0.02, rounds=5, batches=(1, 100, 10_000)),
        "paper": DispatcherCostSettings(),
        "large": DispatcherCostSettings(market=Market(symbols=4 * PAPER_MARKET.symbols, asked=4 * PAPER_MARKET.asked)),
    },
    run,
    (
        _claim_time("bloom", "Bloom filters take microseconds an event, in batches."),
        _claim_time("boxes", "Ten boxes per server take microseconds an event, in batches."),
        Claim(
            PAPER, NAME, "The dispatcher routes faster than its link of 100 Mbit/s sends 1 KB.", "3.6 < 100 us", _judge_link,
            why_not="One event alone pays for a call into Python and its Arrow columns; in batches of ten and more it does not.",
        ),
    ),
    plot,
    seconds={"small": 4, "paper": 15},
)  # fmt: skip
