"""Plan: a partition with its schema, chosen by cost, saved and sent, changed and migrated.

A plan works on compiled filters in value space, so parts of a set can be placed in parallel and nobody needs a common
index. On disk it is a snapshot directory (`index.snapshot`: checked sums, replaced in one step); as bytes it travels to
tasks.
"""

from __future__ import annotations

import io
import json
import math
import os
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from wherecast.errors import PlanError, SchemaError
from wherecast.index.snapshot import open_snapshot, write_snapshot
from wherecast.kernels.arrays import Longs
from wherecast.language.events.events import EventBatch
from wherecast.language.events.schema import Schema
from wherecast.language.filters.compile import Compiled
from wherecast.language.filters.filters import Filters
from wherecast.partition.balance import Moves
from wherecast.partition.costs import Cost, estimate_cost, probe_events
from wherecast.partition.event_space import EventSpace
from wherecast.partition.filter_set import FilterSet
from wherecast.partition.protocol import Broadcast, Partition, Placement, Routes

Strategy = Literal["auto", "broadcast", "event-space", "filter-set"]

STRATEGIES: dict[str, type[Partition]] = {p.strategy: p for p in (Broadcast, EventSpace, FilterSet)}
_KIND = "wherecast-plan"


class Plan:
    """Which servers hold which filters, and where events go.

    `version` grows with every change. `considered` are the costs of the strategies that were weighed, the chosen one first;
    `sampled` says whether they were weighed on events of the user's, or on probes made of the filters' constants.
    """

    def __init__(
        self,
        schema: Schema,
        partition: Partition,
        considered: Sequence[Cost] = (),
        *,
        sampled: bool = False,
        version: int = 1,
    ) -> None:
        self.schema = schema
        self.partition = partition
        self.considered = tuple(considered)
        self.sampled = sampled
        self.version = version

    @classmethod
    def build(
        cls,
        filters: Filters,
        weights: Longs,
        schema: Schema,
        n_servers: int,
        *,
        strategy: Strategy = "auto",
        events: EventBatch | None = None,
        attributes: Sequence[str] | None = None,
    ) -> Self:
        """Plan a set of filters.

        Args:
            filters: What to spread, see `language.filters.compile`.
            weights: Subscriptions per filter, at least 1 each (`weigh` counts those of compiled texts).
            schema: The schema of the filters.
            n_servers: How many servers there are.
            strategy: One of `STRATEGIES`, or `auto` for the one that costs least.
            events: A sample of the traffic; without one, events are made of the filters' constants.
            attributes: The routing attributes of event-space; None: chosen by entropy.

        Raises:
            PlanError: There are no servers, weights do not fit, or the strategy cannot serve this schema.
        """
        if n_servers < 1:
            raise PlanError(f"{n_servers} servers; a plan needs at least 1")
        if strategy != "auto" and strategy not in STRATEGIES:
            raise PlanError(f"no strategy {strategy!r}; there are: auto, {', '.join(STRATEGIES)}")
        _check_weights(filters, weights)
        sample = probe_events(filters, schema) if events is None else events
        partitions: list[Partition] = []
        for name in STRATEGIES if strategy == "auto" else (strategy,):
            try:
                partitions.append(_build(name, filters, weights, schema, n_servers, events, attributes))
            except PlanError:
                if strategy != "auto":
                    raise
        costs = [estimate_cost(p, filters, weights, sample) for p in partitions]
        order = sorted(range(len(costs)), key=lambda i: costs[i].us_per_event)
        return cls(schema, partitions[order[0]], [costs[i] for i in order], sampled=events is not None)

    # -- the partition's own --------------------------------------------------------------------------------------

    @property
    def strategy(self) -> str:
        return self.partition.strategy

    @property
    def n_servers(self) -> int:
        return self.partition.n_servers

    @property
    def sends_to_one(self) -> bool:
        """Whether every event goes to one server at most."""
        return self.partition.sends_to_one

    def place(self, filters: Filters) -> Placement:
        """Where filters live or would live."""
        return self.partition.place(filters)

    def insert(self, filters: Filters, weights: Longs) -> Placement:
        """Take in new filters; events that match them are routed from now on."""
        _check_weights(filters, weights)
        self.version += 1
        return self.partition.insert(filters, weights)

    def remove(self, filters: Filters, weights: Longs) -> None:
        """Take filters out."""
        _check_weights(filters, weights)
        self.version += 1
        self.partition.remove(filters, weights)

    def route(self, events: EventBatch) -> Routes:
        """Where events go."""
        return self.partition.route(events)

    def rebuild(self, filters: Filters, weights: Longs) -> None:
        """Shrink the summaries to these filters, which are all that are left; servers keep what they have."""
        self.version += 1
        if isinstance(self.partition, EventSpace):
            self.partition.recount(filters, weights)
        elif isinstance(self.partition, FilterSet):
            self.partition.rebuild(filters, weights)

    def rebalance(self, threshold: float = 2.0) -> Moves:
        """Move buckets until the largest load is at most `threshold` times the smallest; event-space only."""
        if not isinstance(self.partition, EventSpace):
            raise PlanError(f"{self.strategy} has no buckets to move; build a new plan and migrate to it")
        self.version += 1
        return self.partition.rebalance(threshold)

    def stats(self) -> dict[str, Any]:
        """The figures of the partition."""
        return {"strategy": self.strategy, "servers": self.n_servers, "version": self.version, **self.partition.stats()}

    def explain(self) -> str:
        """What the plan does, what it costs and what was weighed against it, for a person."""
        if not self.considered:
            return self.partition.explain()
        basis = (
            "the sample of events" if self.sampled else "events made of the filters' constants (no sample was given)"
        )
        titles = ("strategy", "us/event", "servers/event", "dropped", "copies", "most held", "imbalance")
        rows = [titles, *map(_cost_cells, self.considered)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(titles))]
        table = ["  " + "  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in rows]
        return "\n".join([self.partition.explain(), "", f"expected on {basis}:", *table])

    # -- saving and sending ---------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan to a directory; an older one there is replaced in one step."""
        arrays = self.partition.arrays()
        # A snapshot holds arrays of two dimensions at most.
        shapes = {name: array.shape for name, array in arrays.items() if array.ndim > 2}
        stored = {f"plan/{n}": array.ravel() if n in shapes else array for n, array in arrays.items()}
        write_snapshot(path, stored, {**self._facts(), "shapes": shapes})

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """The plan in a directory. Raises SnapshotError if it is damaged, PlanError if it is not a plan."""
        snapshot = open_snapshot(path)
        arrays = {name.removeprefix("plan/"): np.asarray(array) for name, array in snapshot.arrays.items()}
        try:
            arrays |= {name: arrays[name].reshape(shape) for name, shape in snapshot.facts.get("shapes", {}).items()}
        except (KeyError, TypeError, ValueError) as error:
            raise PlanError(f"{path}: not a readable plan ({error}); save it again") from None
        return cls._restore(str(path), snapshot.facts, arrays)

    def to_bytes(self) -> bytes:
        """The plan as bytes, for a task elsewhere."""
        facts = np.frombuffer(json.dumps(self._facts()).encode(), np.uint8)
        out = io.BytesIO()
        arrays: dict[str, Any] = {"__facts__": facts, **self.partition.arrays()}
        np.savez(out, **arrays)
        return out.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The plan that `to_bytes` wrote. Raises PlanError if the bytes are damaged or something else."""
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
            facts = json.loads(arrays.pop("__facts__").tobytes())
        except (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile) as error:
            raise PlanError(f"these bytes are not a plan ({error}); send what `to_bytes` returned") from None
        return cls._restore("the bytes", facts, arrays)

    def copy(self) -> Self:
        """A plan of its own that does the same."""
        return self.from_bytes(self.to_bytes())

    def _facts(self) -> dict[str, Any]:
        considered = [[_finite(value) for value in cost] for cost in self.considered]
        return {
            "kind": _KIND,
            "strategy": self.strategy,
            "schema": self.schema.to_json(),
            "version": self.version,
            "sampled": self.sampled,
            "considered": considered,
        }

    @classmethod
    def _restore(cls, place: str, facts: Mapping[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> Self:
        if facts.get("kind") != _KIND:
            raise PlanError(f"{place}: a snapshot, but not of a plan; make one with `wherecast partition plan`")
        try:
            schema = Schema.from_json(facts["schema"])
            partition = STRATEGIES[facts["strategy"]].from_arrays(arrays, schema)
            considered = [Cost._make(math.inf if v is None else v for v in cost) for cost in facts["considered"]]
            return cls(schema, partition, considered, sampled=bool(facts["sampled"]), version=int(facts["version"]))
        except (KeyError, TypeError, ValueError, IndexError, SchemaError) as error:
            raise PlanError(f"{place}: not a readable plan ({error}); save it again") from None


def weigh(compiled: Compiled) -> Longs:
    """Subscriptions per filter of compiled texts, one for each text that compiled."""
    return np.bincount(compiled.filter_of[compiled.filter_of >= 0], minlength=compiled.filters.n_filters)


def _check_weights(filters: Filters, weights: Longs) -> None:
    if weights.shape != (filters.n_filters,):
        raise PlanError(
            f"{weights.size} weights for {filters.n_filters} filters; give the subscriptions of each filter"
        )
    if weights.size and weights.min() < 1:
        raise PlanError(f"a filter with {weights.min()} subscriptions; leave out filters without subscriptions")


def _build(
    strategy: str,
    filters: Filters,
    weights: Longs,
    schema: Schema,
    n_servers: int,
    events: EventBatch | None,
    attributes: Sequence[str] | None,
) -> Partition:
    if strategy == "broadcast":
        return Broadcast(n_servers, int(weights.sum()))
    if strategy == "filter-set":
        return FilterSet.build(filters, weights, schema, n_servers, events)
    return EventSpace.build(filters, weights, schema, n_servers, attributes=attributes)


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cost_cells(cost: Cost) -> tuple[str, ...]:
    return (
        cost.strategy,
        f"{cost.us_per_event:.3g}",
        f"{cost.servers_per_event:.3g}",
        f"{100 * cost.dropped:.1f} %",
        f"{cost.replication:.2f}",
        f"{cost.most_held:,}",
        f"{cost.imbalance:.2f}",
    )
