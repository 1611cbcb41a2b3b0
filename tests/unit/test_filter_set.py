"""Filter-set partitioning: axes, cuts, covers, routing, and filters that come and go."""

from __future__ import annotations

import numpy as np
import pytest

from wherecast.errors import PlanError
from wherecast.index.boxes import EventCodes
from wherecast.index.keys import KeyCodes
from wherecast.kernels.covers import cut_boxes, join_boxes
from wherecast.language.events.events import EventBatch
from wherecast.language.events.schema import Schema
from wherecast.language.filters.compile import Compiler
from wherecast.language.filters.filters import Filters, take_filters
from wherecast.partition.axes import EQUALITY, MOST_AXES, MOST_CUTS, RANGE, Axes
from wherecast.partition.cover import BoxMaps, Cover
from wherecast.partition.filter_set import FilterSet

SCHEMA = Schema.of({"x": "double", "y": "double", "symbol": "string", "tags": "array<string>"})


def compile_texts(*texts: str, schema: Schema = SCHEMA) -> Filters:
    compiled = Compiler(schema).compile_many(texts)
    assert not compiled.errors
    return take_filters(compiled.filters, compiled.filter_of)


def ones(filters: Filters) -> np.ndarray:
    return np.ones(filters.n_filters, np.int64)


def choose(*texts: str) -> tuple[Axes, Filters]:
    filters = compile_texts(*texts)
    return Axes.choose(filters, ones(filters), SCHEMA), filters


def build(*texts: str, servers: int, **options: object) -> tuple[FilterSet, Filters]:
    filters = compile_texts(*texts)
    return FilterSet.build(filters, ones(filters), SCHEMA, servers, **options), filters  # type: ignore[arg-type]


def servers_of(partition: FilterSet, **event: object) -> list[int]:
    return partition.route(EventBatch.read(SCHEMA, event)).servers.tolist()


def grid_axes(width: int, n_axes: int) -> Axes:
    """Axes of integers, all cells equally likely."""
    schema = Schema.of({f"a{i}": "integer" for i in range(n_axes)})
    texts = [f"a{i} = {value}" for i in range(n_axes) for value in range(width - 3)]
    filters = compile_texts(*texts, schema=schema)
    axes = Axes.choose(filters, ones(filters), schema)
    assert axes.widths.tolist() == [width] * n_axes
    return axes


class TestAxes:
    def test_few_constants_are_all_cuts(self) -> None:
        """With few constants, filters that differ lie in different cells, and NULL is cell 0."""
        axes, filters = choose("x < 1", "x = 1", "x > 1", "x IS NULL", "x >= 1")
        items = axes.cover(filters)
        assert [(int(lo), int(hi)) for lo, hi in zip(items.lo[:, 0], items.hi[:, 0], strict=True)] == [
            (1, 1), (2, 2), (3, 3), (0, 0), (2, 3),
        ]  # fmt: skip

    def test_many_constants_are_thinned(self) -> None:
        """Cells hold about equally many constants, and an interval is rounded to the cells it touches."""
        n = 5 * MOST_CUTS
        axes, filters = choose(*(f"x BETWEEN {i} AND {i}.5" for i in range(n)))
        assert MOST_CUTS // 2 < axes.widths[0] <= MOST_CUTS + 2
        items = axes.cover(filters)
        points = axes.encode(EventBatch.read(SCHEMA, [{"x": i + 0.25} for i in range(n)])).codes[:, 0]
        assert np.all((items.lo[:, 0] <= points) & (points <= items.hi[:, 0]))
        assert np.all(items.hi[:, 0] - items.lo[:, 0] <= 1)

    def test_strings_that_come_later_lie_in_gaps(self) -> None:
        """A string that is no cut has the cell between its neighbours, for filters and events alike."""
        axes, _ = choose("symbol = 'b'", "symbol = 'd'")
        later = axes.cover(compile_texts("symbol = 'c'", "symbol < 'c'", "symbol > 'a'", "symbol LIKE 'b%'"))
        assert later.lo[:, 0].tolist() == [3, 1, 1, 2]
        assert later.hi[:, 0].tolist() == [3, 3, 5, 3]
        assert axes.encode(EventBatch.read(SCHEMA, [{"symbol": "c"}, {"symbol": "b"}, {}])).codes[:, 2].tolist() == [
            3,
            2,
            0,
        ]

    def test_lists_are_split_where_their_hull_is_wasteful(self) -> None:
        """IN over distant values makes several items, <> one."""
        values = [f"symbol = 's{i:02d}'" for i in range(50)]
        axes, _ = choose(*values, "x = 1", "x = 2")
        items = axes.cover(compile_texts("symbol IN ('s01', 's40', 's45') AND x > 1", "x <> 1", "x = 1 OR y = 2"))
        assert items.owner.tolist() == [0, 0, 0, 1, 2, 2]
        assert items.lo[:3, 1].tolist() == items.hi[:3, 1].tolist()

    def test_a_filter_that_never_matches_has_no_items(self) -> None:
        """Its hull is empty."""
        axes, filters = choose("x > 1 AND x < 0", "x = 3")
        items = axes.cover(filters)
        lo, hi = items.hulls(2, axes.widths)
        assert items.owner.tolist() == [1]
        assert np.all(lo[0] > hi[0])

    def test_the_most_selective_attributes_become_axes(self) -> None:
        """Of too many attributes those are left out whose constraints hold off the fewest events."""
        names = [f"a{i}" for i in range(MOST_AXES + 3)]
        schema = Schema.of(dict.fromkeys(names, "integer"))
        weak = [f"{name} <> 7" for name in names[:3]]
        filters = compile_texts(*weak, *(f"{n} = {v}" for n in names[3:] for v in range(5)), schema=schema)
        axes = Axes.choose(filters, ones(filters), schema)
        assert axes.attributes == list(range(3, MOST_AXES + 3))

    def test_chances_follow_the_sample(self) -> None:
        """A cell's chance is about the share of the sample in it, and never zero."""
        filters = compile_texts("x < 1", "x >= 1")
        sample = EventBatch.read(SCHEMA, [{"x": 0.0}] * 3 + [{"x": 5.0}])
        chances = Axes.choose(filters, ones(filters), SCHEMA, sample).chances[0]
        assert chances.sum() == pytest.approx(1)
        assert chances[1] == pytest.approx(0.75, abs=0.05)
        assert chances.min() > 0


class TestBoxTree:
    def test_cuts_run_between_clusters(self) -> None:
        """Four clusters of boxes make four parts, whatever their order."""
        axes = grid_axes(100, 2)
        rng = np.random.default_rng(1)
        cluster = rng.permutation(np.repeat(np.arange(4), 25))
        corner = np.array([[5, 5], [5, 60], [60, 5], [60, 60]])[cluster] + rng.integers(0, 20, (100, 2))
        lo, part = corner.astype(np.int32), np.empty(100, np.int32)
        cut_boxes(lo, lo + np.int32(5), np.ones(100), 4, axes.shares, axes.share_ptr, part)
        assert len(set(zip(cluster.tolist(), part.tolist(), strict=True))) == 4
        assert np.bincount(part).tolist() == [25] * 4

    def test_the_cheapest_pair_is_joined_first(self) -> None:
        """Neighbours become one box before distant ones do; what lies inside another vanishes."""
        axes = grid_axes(50, 1)
        lo = np.array([[2], [4], [30], [31], [40]], np.int32)
        hi = np.array([[3], [5], [33], [32], [41]], np.int32)
        n = join_boxes(lo, hi, np.zeros(5, np.int64), 3, False, axes.shares, axes.share_ptr)
        assert sorted(zip(lo[:n, 0].tolist(), hi[:n, 0].tolist(), strict=True)) == [(2, 5), (30, 33), (40, 41)]

    def test_kinds_are_joined_last(self) -> None:
        """Boxes of different kinds are joined only when there are fewer boxes than kinds."""
        axes = grid_axes(50, 1)
        lo, hi = (np.array([[c] for c in ends], np.int32) for ends in ((2, 20, 3, 40), (2, 20, 3, 40)))
        cover = Cover(axes, lo, hi, np.array([0, 0, 1, 1]))
        two = cover.coarsen(2)
        assert sorted(zip(two.lo[:, 0].tolist(), two.hi[:, 0].tolist(), two.kinds.tolist(), strict=True)) == [
            (2, 20, 0), (3, 40, 1),
        ]  # fmt: skip
        one = cover.coarsen(1)
        assert (one.lo.tolist(), one.hi.tolist()) == ([[2]], [[40]])

    @pytest.mark.parametrize("n", [1, 63, 64, 65, 300])
    def test_routes_are_those_of_the_boxes(self, n: int) -> None:
        """Bitmaps say what comparing every box with every event says, for arrays too."""
        axes, rng = grid_axes(40, 3), np.random.default_rng(n)
        lo = rng.integers(0, 40, (n, 3)).astype(np.int32)
        hi = np.minimum(lo + rng.integers(0, 25, (n, 3)), 39).astype(np.int32)
        servers = np.sort(rng.integers(0, 9, n)).astype(np.int32)
        codes = rng.integers(0, 40, (50, 3)).astype(np.int32)
        lists = [rng.integers(0, 40, rng.integers(1, 4)) for _ in range(50)]
        codes[:, 1] = ~np.arange(50)
        ptr = np.concatenate(([0], np.cumsum([len(x) for x in lists])))
        routes = BoxMaps(axes, lo, hi, servers).route(EventCodes(codes, ptr, np.concatenate(lists).astype(np.int32)))
        wanted = set()
        for e in range(50):
            for b in range(n):
                held = [
                    any(lo[b, a] <= c <= hi[b, a] for c in (lists[e] if a == 1 else [codes[e, a]])) for a in range(3)
                ]
                if all(held):
                    wanted.add((e, int(servers[b])))
        assert list(zip(routes.event_ids.tolist(), routes.servers.tolist(), strict=True)) == sorted(wanted)


TOWNS = [(10, 10), (10, 90), (90, 10), (90, 90)]
AROUND_TOWNS = [f"x BETWEEN {x - r} AND {x + r} AND y BETWEEN {y - r} AND {y + r}" for r in (1, 2, 3) for x, y in TOWNS]


class TestFilterSet:
    def test_filters_that_are_alike_live_together(self) -> None:
        """An event in a town goes to the one server of that town, one elsewhere to none."""
        partition, filters = build(*AROUND_TOWNS, servers=4)
        homes = partition.place(filters).servers.reshape(3, 4)
        assert np.all(homes == homes[0])
        for (x, y), server in zip(TOWNS, homes[0].tolist(), strict=True):
            assert servers_of(partition, x=x, y=y) == [server]
        assert servers_of(partition, x=50, y=50) == servers_of(partition) == []

    def test_more_boxes_are_more_precise(self) -> None:
        """One box around two towns holds what is between them, two do not."""
        coarse, _ = build(*AROUND_TOWNS, servers=1, boxes_per_server=1)
        fine, _ = build(*AROUND_TOWNS, servers=1, boxes_per_server=4)
        assert servers_of(coarse, x=50, y=50) == [0]
        assert servers_of(fine, x=50, y=50) == []
        assert fine.stats()["summary_bytes"] == 4 * coarse.stats()["summary_bytes"]

    def test_equality_and_range_are_kept_apart(self) -> None:
        """Filters by symbol and filters by ranges share no server where weights allow, and no box."""
        texts = [f"symbol = 's{i:02d}'" for i in range(30)] + [f"x > {i}" for i in range(30)]
        partition, filters = build(*texts, servers=2, boxes_per_server=2)
        assert partition.place(filters).servers.tolist() == [0] * 30 + [1] * 30
        alone, _ = build(*texts, servers=1, boxes_per_server=2)
        assert sorted(alone.cover(0).kinds.tolist()) == [RANGE, EQUALITY]

    def test_a_new_filter_goes_to_the_most_similar_server(self) -> None:
        """It goes where the boxes grow least, and events reach it."""
        partition, filters = build(*AROUND_TOWNS, servers=4, slack=1.0, boxes_per_server=1)
        homes = partition.place(filters).servers[:4].tolist()
        new = compile_texts("x BETWEEN 88 AND 95 AND y BETWEEN 5 AND 12")
        before = partition.arrays()
        assert partition.place(new).servers.tolist() == [homes[2]]
        assert all(np.array_equal(before[name], array) for name, array in partition.arrays().items())
        assert partition.insert(new, np.array([1])).servers.tolist() == [homes[2]]
        assert servers_of(partition, x=95, y=5) == [homes[2]]

    def test_balance_comes_before_likeness(self) -> None:
        """Once a server is full, what resembles its filters goes elsewhere."""
        partition, filters = build(*AROUND_TOWNS, servers=4, slack=0.1)
        home = int(partition.place(filters).servers[0])
        alike = compile_texts(*(f"x BETWEEN 9 AND 1{i}" for i in range(1, 9)))
        partition.insert(alike, ones(alike))
        loads = partition.loads()
        assert loads.sum() == 20
        assert loads[home] <= 1.1 * loads.mean() + 1

    def test_equal_filters_share_a_server(self) -> None:
        """However they are spelled, whenever they come, and their subscriptions add up."""
        partition, filters = build("x > 1 AND y > 2", "y > 2 AND x > 1", "x > 5", "y < 3", servers=3)
        first, second, *_ = partition.place(filters).servers.tolist()
        assert first == second
        again = compile_texts("NOT (y <= 2 OR x <= 1) AND x IS NOT NULL")
        load = partition.loads()[first]
        assert partition.insert(again, np.array([5])).servers.tolist() == [first]
        assert partition.loads()[first] == load + 5

    def test_removing_lowers_the_load_and_rebuilding_shrinks_the_cover(self) -> None:
        """A removed filter's events still come until the covers are rebuilt."""
        partition, filters = build(*AROUND_TOWNS, servers=4)
        gone, left = (
            take_filters(filters, np.arange(0, 12, 4)),
            take_filters(filters, np.flatnonzero(np.arange(12) % 4)),
        )
        home = int(partition.place(gone).servers[0])
        partition.remove(gone, ones(gone))
        assert partition.loads()[home] == 0
        assert servers_of(partition, x=10, y=10) == [home]
        partition.rebuild(left, ones(left))
        assert servers_of(partition, x=10, y=10) == []
        assert partition.loads().tolist() == [0 if s == home else 3 for s in range(4)]
        assert [servers_of(partition, x=x, y=y) for x, y in TOWNS[1:]] == [
            [s] for s in partition.place(left).servers[:3].tolist()
        ]

    def test_rebuilding_with_events_chooses_axes_anew(self) -> None:
        """A partition that was built of nothing routes by what came later, once it is rebuilt with a sample."""
        partition, _ = build(servers=2)
        new = compile_texts("x < 1", "x > 2")
        homes = partition.insert(new, ones(new)).servers.tolist()
        assert servers_of(partition, x=1.5) == [0, 1]
        partition.rebuild(new, ones(new), EventBatch.read(SCHEMA, [{"x": float(v)} for v in range(5)]))
        assert [servers_of(partition, x=v) for v in (0, 1.5, 3)] == [[homes[0]], [], [homes[1]]]

    def test_filters_that_no_axis_bounds_see_every_event(self) -> None:
        """The box of a comparison between attributes holds whatever has them; one that never matches has none."""
        partition, filters = build("x > y", "symbol = 'a'", "symbol = 'a' AND symbol = 'b'", servers=1)
        assert servers_of(partition, x=1, y=2) == [0]
        assert servers_of(partition, x=1) == servers_of(partition, symbol="b") == []
        assert partition.place(filters).servers.tolist() == [0, 0, 0]

    def test_arrays_are_bounded_by_any_element(self) -> None:
        """An event goes where one of its elements is asked for."""
        partition, filters = build("array_contains(tags, 'a')", "array_contains(tags, 'q')", servers=2)
        a, q = partition.place(filters).servers.tolist()
        assert servers_of(partition, tags=["q"]) == [q]
        assert servers_of(partition, tags=["q", "a"]) == sorted([a, q])
        assert servers_of(partition, tags=None) == []

    def test_unknown_filters_cannot_be_removed(self) -> None:
        """The error says which."""
        partition, filters = build("x > 1", servers=2)
        with pytest.raises(PlanError, match="filter 1 of the batch is not in this partition"):
            partition.remove(compile_texts("x > 1", "x > 2"), np.array([1, 1]))
        assert partition.loads().sum() == filters.n_filters

    @pytest.mark.parametrize(
        ("name", "change"),
        [
            ("slots.hi", lambda a: a + 1000),
            ("slots.lo", lambda a: a - 100),
            ("slots.lo", lambda a: a[:, :, :0]),
            ("slots.counts", lambda a: a[:1]),
            ("slots.counts", lambda a: a + 1000),
            ("homes", lambda a: a + 7),
            ("loads", lambda a: a[:1]),
        ],
    )
    def test_damaged_arrays_are_refused(self, name: str, change) -> None:
        """What a kernel would follow out of bounds is an error."""
        partition, _ = build(*AROUND_TOWNS, servers=2)
        arrays = partition.arrays()
        arrays[name] = change(arrays[name])
        with pytest.raises(PlanError, match="plan anew"):
            FilterSet.from_arrays(arrays, SCHEMA)

    def test_it_says_what_it_does(self) -> None:
        """Figures and a text for people."""
        partition, _ = build(*AROUND_TOWNS, servers=4)
        stats = partition.stats()
        assert (stats["servers"], stats["filters"], stats["replication"], stats["imbalance"]) == (4, 12, 1.0, 1.0)
        assert stats["axes"] == ["x", "y"]
        assert 0 < stats["servers_per_event"] < 1
        assert "12 filters (12 subscriptions) on 4 servers" in partition.explain()
        assert "x, y" in partition.explain()


def test_the_share_of_arrays_counts_every_element_and_every_null() -> None:
    """NULL and empty arrays at either end of a sample are counted like the others."""
    schema = Schema.of({"tags": "array<integer>"})
    filters = Compiler(schema).compile("array_contains(tags, 1)")
    rows = [{"tags": None}, {"tags": [1, 1]}, {"tags": []}, {"tags": [1, 7]}]
    for sample in (rows, rows[::-1], rows[1:], rows[:1]):
        axes = Axes.choose(filters, ones(filters), schema, EventBatch.read(schema, sample))
        codes = axes.codebook.codes[0]
        assert isinstance(codes, KeyCodes)
        first, there, asked = axes.chances[0][[0, 1, codes.encode_key(1)]]
        nulls, ones_in = sum(r["tags"] is None for r in sample), sum(1 in (r["tags"] or []) for r in sample)
        assert first == pytest.approx(nulls / len(sample), abs=0.05)
        assert there == pytest.approx(1 - nulls / len(sample), abs=0.05)
        assert asked == pytest.approx(ones_in / len(sample), abs=0.05)
