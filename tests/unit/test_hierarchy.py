"""A tree of dispatchers: merged and coarser summaries, updates that end early, traffic per link."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from wherecast.language.events.events import EventBatch
from wherecast.language.events.schema import Schema
from wherecast.language.filters.compile import Compiler
from wherecast.language.filters.filters import Filters, take_filters
from wherecast.partition.dispatch import SignatureCover
from wherecast.partition.event_space import EventSpace
from wherecast.partition.filter_set import FilterSet
from wherecast.partition.hierarchy import Hierarchy, false_positive_rate
from wherecast.partition.protocol import Routes

SCHEMA = Schema.of({"x": "double", "symbol": "string"})


def compile_texts(*texts: str) -> Filters:
    compiled = Compiler(SCHEMA).compile_many(texts)
    assert not compiled.errors
    return take_filters(compiled.filters, compiled.filter_of)


def ones(filters: Filters) -> np.ndarray:
    return np.ones(filters.n_filters, np.int64)


def make_ranges() -> FilterSet:
    """Server s of four wants x from 10 s to 10 s + 1 and from 10 s + 5 to 10 s + 6."""
    filters = compile_texts(*(f"x BETWEEN {10 * s + d} AND {10 * s + d + 1}" for s in range(4) for d in (0, 5)))
    servers = np.repeat(np.arange(4, dtype=np.int32), 2)
    built = FilterSet.build(filters, ones(filters), SCHEMA, 4)
    return FilterSet.of_placement(built.axes, filters, ones(filters), servers, 4)


#: One event each: wanted by servers 0, 0, 1, 3; between the boxes of server 0; between servers; nowhere near.
EVENTS = EventBatch.read(SCHEMA, [{"x": x} for x in (0.5, 5.5, 10.5, 35.5, 3.0, 8.0, 100.0)])
NEEDED = Routes(np.array([0, 1, 2, 3]), np.array([0, 0, 1, 3], np.int32))


def covers(partition: FilterSet) -> list:
    return [partition.cover(s) for s in range(partition.n_servers)]


class TestTraffic:
    def test_precise_summaries_send_what_is_needed(self) -> None:
        """Where nothing is coarsened, boxes that are exact make exact routing."""
        traffic = Hierarchy(covers(make_ranges()), [2], [None, None]).simulate(EVENTS, NEEDED)
        assert traffic.level.tolist() == [0, 0, 0, 0, 1, 1]
        assert traffic.node.tolist() == [0, 1, 2, 3, 0, 1]
        assert traffic.sent.tolist() == traffic.needed.tolist() == [2, 1, 0, 1, 3, 1]
        assert traffic.flooded.tolist() == [7] * 6

    def test_every_level_has_its_own_precision(self) -> None:
        """A region known by one box draws what lies between its servers' boxes; they do not let it further."""
        traffic = Hierarchy(covers(make_ranges()), [2], [None, 1]).simulate(EVENTS, NEEDED)
        assert traffic.sent.tolist() == [2, 1, 0, 1, 5, 1]
        coarse = Hierarchy(covers(make_ranges()), [2], [1, 1]).simulate(EVENTS, NEEDED)
        assert coarse.sent.tolist() == [3, 1, 0, 1, 5, 1]
        assert coarse.totals()["nbytes"] < traffic.totals()["nbytes"]
        assert traffic.totals(1) == {"links": 2, "sent": 6, "flooded": 14, "needed": 4, "nbytes": 16}

    def test_a_flat_tree_routes_as_the_partition_does(self) -> None:
        """With the servers directly below the edge, what arrives is what the dispatcher routes."""
        partition = make_ranges()
        arrived = Hierarchy(covers(partition), [], [None]).deliver(EVENTS)[0]
        event_ids, servers = np.nonzero(arrived.T)
        routes = partition.route(EVENTS)
        assert (event_ids.tolist(), servers.tolist()) == (routes.event_ids.tolist(), routes.servers.tolist())

    def test_fanouts_need_not_divide(self) -> None:
        """What is left over has a dispatcher of its own."""
        tree = Hierarchy(covers(make_ranges()), [3, 1], [None, None, None])
        assert [p.tolist() for p in tree.parents] == [[0, 0, 0, 1], [0, 1], [0, 0]]
        assert tree.simulate(EVENTS, NEEDED).sent.tolist() == [2, 1, 0, 1, 3, 1, 3, 1]

    def test_a_precision_for_every_level(self) -> None:
        """The error says how many there must be."""
        with pytest.raises(ValueError, match="1 fanouts make 2 levels of links, but there are 1 precisions"):
            Hierarchy(covers(make_ranges()), [2], [4])

    def test_the_table_is_for_people(self) -> None:
        """One line per level and one for all."""
        lines = Hierarchy(covers(make_ranges()), [2], [None, None]).simulate(EVENTS, NEEDED).describe().splitlines()
        assert [line.split()[0] for line in lines] == ["links", "servers", "level", "all"]
        assert "81.0%" in lines[-1]

    def test_false_positives_are_a_share_of_the_unwanted(self) -> None:
        """Of five events that server 0 does not want, one lies between its boxes."""
        cover = make_ranges().cover(0)
        matched = np.array([True, True, False, False, False, False, False])
        assert false_positive_rate(cover, EVENTS, matched) == 0.0
        assert false_positive_rate(cover.coarsen(1), EVENTS, matched) == 0.2


class TestUpdates:
    def test_an_update_ends_where_it_changes_nothing(self) -> None:
        """A box within what a region has told already goes no further than the region."""
        partition = make_ranges()
        tree = Hierarchy(covers(partition), [2], [None, 1])
        assert tree.update(0, partition.cover(0)) == 0
        # All of what server 0 wants in one box: new to its region, within the one box that the edge has of the region.
        assert tree.update(0, partition.cover(0).coarsen(1)) == 1
        assert tree.simulate(EVENTS, NEEDED).sent.tolist() == [3, 1, 0, 1, 5, 1]

    def test_an_update_that_matters_reaches_the_edge(self) -> None:
        """After it, events that nobody wanted arrive."""
        partition = make_ranges()
        tree = Hierarchy(covers(partition), [2], [None, None])
        new = compile_texts("x BETWEEN 99 AND 101")
        server = int(partition.insert(new, ones(new)).servers[0])
        assert tree.update(server, partition.cover(server)) == 2
        assert tree.deliver(EVENTS)[0][server, 6]


@pytest.mark.sampled
@pytest.mark.parametrize("summary", ["bloom", "dictionary"])
@pytest.mark.parametrize("open_filter", [False, True])
@pytest.mark.parametrize("policy", ["replicate", "residual"])
@pytest.mark.parametrize("precision", [(None, None), (None, 64), (300, 100), (1, 1)])
def test_signatures_travel_like_boxes(
    summary: Literal["bloom", "dictionary"],
    open_filter: bool,
    policy: Literal["replicate", "residual"],
    precision: tuple[int | None, int | None],
) -> None:
    """Event-space partitions use the same tree: nothing is lost at any precision, and uncoarsened it routes alike."""
    texts = [f"symbol = 's{i}'" for i in range(40)] + ["x > 1"] * open_filter
    filters = compile_texts(*texts)
    partition = EventSpace.build(
        filters, ones(filters), SCHEMA, 5, attributes=["symbol"], summary=summary, unrouted=policy
    )
    tree = Hierarchy([SignatureCover.of(partition.dispatcher(), s) for s in range(5)], [2], precision)
    events = EventBatch.read(SCHEMA, [{"symbol": f"s{i}", "x": 0.0} for i in range(80)] + [{"x": 2.0}])
    arrived = tree.deliver(events)[0]
    routes = partition.route(events)
    assert np.all(arrived[routes.servers, routes.event_ids])
    if precision == (None, None):
        assert arrived.sum() == routes.servers.size
    traffic = tree.simulate(events, routes)
    assert np.all(traffic.needed <= traffic.sent)
    assert tree.update(1, SignatureCover.of(partition.dispatcher(), 1)) == 0
