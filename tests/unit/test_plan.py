"""Plans: chosen by cost, saved, sent, measured and migrated."""

from __future__ import annotations

import datetime as dt
import math

import numpy as np
import pyarrow as pa
import pytest

from wherecast import Engine
from wherecast.cli.demo_market import SCHEMA as MARKET
from wherecast.cli.demo_market import AlertMarket
from wherecast.errors import PlanError, SnapshotError
from wherecast.language.events.events import EventBatch
from wherecast.language.events.schema import Schema
from wherecast.language.filters.compile import Compiler
from wherecast.language.filters.filters import Filters
from wherecast.partition.costs import (
    HOLD_US,
    MATCH_US,
    MEET_US,
    PROBES,
    RECEIVE_US,
    SEND_US,
    cost_us,
    met_clauses,
    probe_events,
)
from wherecast.partition.evaluate import evaluate, needed_pairs
from wherecast.partition.event_space import EventSpace
from wherecast.partition.migrate import migrate
from wherecast.partition.picture import picture_loads, save_picture
from wherecast.partition.plan import STRATEGIES, Plan, weigh

SCHEMA = Schema.of({"symbol": "string", "price": "double", "volume": "integer"})
strategies = pytest.mark.parametrize("strategy", STRATEGIES)


def compile_all(texts: list[str]) -> tuple[Filters, np.ndarray]:
    compiled = Compiler(SCHEMA).compile_many(texts)
    return compiled.filters, weigh(compiled)


def keyed(n: int) -> list[str]:
    return [f"symbol = 'S{i % 97}' AND price > {i}" for i in range(n)]


def ranged(n: int) -> list[str]:
    return [f"price > {i % 83} AND price < {i % 83 + 4} AND volume > {i}" for i in range(n)]


def quotes(n: int) -> EventBatch:
    rng = np.random.default_rng(0)
    symbols = [f"S{i}" for i in rng.integers(0, 200, n).tolist()]
    return EventBatch.read(
        SCHEMA, pa.table({"symbol": symbols, "price": rng.random(n) * 100, "volume": rng.integers(0, 1000, n)})
    )


class TestChoice:
    @pytest.mark.parametrize(
        ("texts", "weight", "wanted"),
        [
            (keyed(300), 1, "broadcast"),
            (keyed(3000), 500, "event-space"),
            (ranged(300), 5000, "filter-set"),
        ],
        ids=["small", "equality", "ranges"],
    )
    def test_by_cost(self, texts, weight, wanted):
        """Small sets are copied, equality partitions the event space, ranges the filters."""
        filters, weights = compile_all(texts)
        plan = Plan.build(filters, weights * weight, SCHEMA, 8, events=quotes(2000))
        assert plan.strategy == wanted
        assert sorted(c.strategy for c in plan.considered) == sorted(STRATEGIES)
        assert plan.considered[0].strategy == wanted
        assert plan.considered[0].us_per_event == min(c.us_per_event for c in plan.considered)
        assert "expected on the sample of events" in plan.explain()

    def test_without_a_sample_the_constants_are_the_sample(self):
        """And the plan says so."""
        filters, weights = compile_all(keyed(300))
        plan = Plan.build(filters, weights, SCHEMA, 8, strategy="event-space")
        assert plan.considered[0].dropped == 0  # all of them are asked for
        assert "no sample was given" in plan.explain()

    def test_a_schema_of_arrays_has_no_event_space(self):
        """Auto leaves it out, asking for it is an error."""
        schema = Schema.of({"tags": "array<string>"})
        filters = Compiler(schema).compile("array_contains(tags, 'x')")
        plan = Plan.build(filters, np.ones(1, np.int64), schema, 2)
        assert "event-space" not in [c.strategy for c in plan.considered]
        with pytest.raises(PlanError, match="only arrays"):
            Plan.build(filters, np.ones(1, np.int64), schema, 2, strategy="event-space")

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"n_servers": 0}, "0 servers; a plan needs at least 1"),
            ({"strategy": "best"}, "no strategy 'best'; there are: auto, broadcast"),
            ({"weights": np.ones(3, np.int64)}, "3 weights for 5 filters"),
            ({"weights": np.array([1, 1, 0, 1, 1])}, "a filter with 0 subscriptions"),
        ],
    )
    def test_what_cannot_be_planned(self, change, message):
        """The message says what is wrong and what there is."""
        filters, weights = compile_all(keyed(5))
        asked = {"filters": filters, "weights": weights, "schema": SCHEMA, "n_servers": 2, **change}
        with pytest.raises(PlanError, match=message):
            Plan.build(**asked)

    def test_the_cost_is_the_formula(self):
        """The busiest server for all, the dispatcher if there is one, and every copy."""
        reach, held = np.array([0.5, 0.25]), np.array([100.0, 40_000.0])
        busiest = max(0.5 * (RECEIVE_US + MATCH_US * 10), 0.25 * (RECEIVE_US + MATCH_US * 200))
        here = 2 * busiest + HOLD_US * 40_100
        assert cost_us(reach, held, None) == pytest.approx(here)
        assert cost_us(reach, held, 0.75) == pytest.approx(here + RECEIVE_US + 0.75 * SEND_US)

    def test_events_meet_the_filters_of_their_own_value(self):
        """The rarest equality or IN counts; spreading by that value leaves what an event meets as it is."""
        texts = [f"symbol = 'S{i % 10}' AND price > {i}" for i in range(40)]
        texts += ["symbol IN ('S1', 'S2')", "symbol = 'S3' OR price > 99", "volume IN (1, 2, 3) AND symbol < 'B'"]
        filters, weights = compile_all(texts)
        whole = Plan.build(filters, weights, SCHEMA, 4, strategy="broadcast").place(filters)
        met = met_clauses(whole, filters, np.full(4, 0.25), dealt=True)
        assert met == pytest.approx(40 / 10 + 2 / 10 + 1 / 10 + 1 + 1)
        filters, weights = compile_all(texts[:40])
        spread = Plan.build(filters, weights, SCHEMA, 5, strategy="event-space", attributes=["symbol"]).place(filters)
        keys = np.bincount(spread.servers, minlength=5) / 40
        met = met_clauses(spread, filters, keys, dealt=False)
        assert met[keys > 0] == pytest.approx(4)
        reach, held = np.full(2, 0.5), np.full(2, 1e6)
        assert cost_us(reach, held, None, 4.0) == pytest.approx(RECEIVE_US + 4 * MEET_US + HOLD_US * 2e6)

    def test_alerts_of_symbols_are_not_sent_around(self):
        """The alerts of the demo: an event meets those of its symbol on one server as on eight, so sending it is not worth it."""
        schema = Schema.of(MARKET)
        compiled = Compiler(schema).compile_many(AlertMarket(1).subscriptions(4_000)["filter"].to_pylist())
        assert Plan.build(compiled.filters, 25 * weigh(compiled), schema, 8).strategy == "broadcast"

    def test_one_server_that_does_all_the_work_is_no_plan(self):
        """Ranges that event-space cannot route go to filter-set, not to one residual server."""
        filters, weights = compile_all(ranged(3000))
        plan = Plan.build(filters, weights * 30, SCHEMA, 50, events=quotes(1000))
        assert plan.strategy == "filter-set"


def test_probes_are_made_of_the_constants():
    """Every attribute that filters compare, in its type; NULL where they compare nothing."""
    schema = Schema.of(
        {
            "s": "string", "x": "double", "n": "integer", "f": "boolean", "d": "date", "t": "timestamp",
            "a": "array<integer>", "none": "string",
        }
    )  # fmt: skip
    texts = [
        "s = 'A'", "s > 'B'", "x > 1.5", "n = 7", "f", "d = '2024-01-31'",
        "t = TIMESTAMP '2024-01-31 12:00:00'", "array_contains(a, 3)", "s IS NULL",
    ]  # fmt: skip
    filters = Compiler(schema).compile_many(texts).filters
    events = probe_events(filters, schema)
    values = {a.name: set(map(str, events.array(i).to_pylist())) for i, a in enumerate(schema)}
    noon = dt.datetime(2024, 1, 31, 12, tzinfo=dt.UTC)
    assert len(events) == PROBES
    assert values["s"] == {"A", "B"}
    assert values["n"] == {"7"}
    assert values["f"] == {"True"}
    assert values["d"] == {"2024-01-31"}
    assert values["t"] == {str(noon)}
    assert values["a"] == {"[3]"}
    assert values["none"] == {"None"}
    assert 1.5 < float(*values["x"]) < 1.5000001  # the first double above


def test_probes_fit_their_width():
    """A constant outside the width of its attribute makes probes at the end of the width, not events that are refused."""
    schema = Schema.of({"n": "tinyint", "x": "real", "a": "array<int>"})
    texts = ["n < 300", "NOT n > -300", "x < 1e300", "NOT x > 1e300", "array_contains(a, 3000000000)"]
    events = probe_events(Compiler(schema).compile_many(texts).filters, schema)
    values = {a.name: set(map(str, events.array(i).to_pylist())) for i, a in enumerate(schema)}
    assert values == {"n": {"127", "-128"}, "x": {"inf"}, "a": {"[2147483647]"}}


class TestSaving:
    @strategies
    def test_a_saved_plan_is_the_plan(self, strategy, tmp_path):
        """From a directory, and from bytes."""
        filters, weights = compile_all(keyed(200) + ranged(50))
        plan = Plan.build(filters, weights, SCHEMA, 4, strategy=strategy, events=quotes(500))
        plan.insert(filters, weights)
        plan.save(tmp_path / "plan")
        events = quotes(1000)
        for other in (Plan.open(tmp_path / "plan"), Plan.from_bytes(plan.to_bytes()), plan.copy()):
            assert other.version == plan.version == 2
            assert other.explain() == plan.explain()
            assert other.schema == plan.schema
            for mine, theirs in zip(plan.route(events), other.route(events), strict=True):
                assert np.array_equal(mine, theirs)
            for mine, theirs in zip(plan.place(filters), other.place(filters), strict=True):
                assert np.array_equal(mine, theirs)
            other.insert(filters, weights)  # an opened plan can be changed
            other.remove(filters, weights)

    def test_a_copy_is_a_plan_of_its_own(self):
        """What happens to it does not happen to the other."""
        filters, weights = compile_all(keyed(200))
        plan = Plan.build(filters, weights, SCHEMA, 4, strategy="event-space")
        loads = plan.partition.loads()
        plan.copy().insert(filters, weights)
        assert plan.partition.loads().tolist() == loads.tolist()

    def test_a_damaged_plan_is_refused(self, tmp_path):
        """By the checksum of its file."""
        filters, weights = compile_all(keyed(20))
        Plan.build(filters, weights, SCHEMA, 2, strategy="event-space").save(tmp_path)
        (file,) = tmp_path.glob("v*/*.arrow")
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
        with pytest.raises(SnapshotError, match="checksum"):
            Plan.open(tmp_path)

    def test_another_snapshot_is_no_plan(self, tmp_path):
        """An engine is refused with a hint."""
        engine = Engine(SCHEMA)
        engine.subscribe(1, "price > 1")
        engine.save(tmp_path)
        with pytest.raises(PlanError, match="not of a plan; make one with"):
            Plan.open(tmp_path)

    @pytest.mark.parametrize("cut", [0, 100, -1])
    def test_bytes_that_are_no_plan(self, cut):
        """Cut off, or nothing at all."""
        filters, weights = compile_all(keyed(20))
        data = Plan.build(filters, weights, SCHEMA, 2, strategy="event-space").to_bytes()
        with pytest.raises(PlanError, match="not a plan"):
            Plan.from_bytes(data[:cut])

    def test_changed_bytes_are_refused(self):
        """Every array is behind a checksum."""
        filters, weights = compile_all(keyed(200))
        data = bytearray(Plan.build(filters, weights, SCHEMA, 2, strategy="event-space").to_bytes())
        data[len(data) // 2] ^= 1
        with pytest.raises(PlanError):
            Plan.from_bytes(bytes(data))


class TestEvaluation:
    @strategies
    def test_figures_are_those_of_brute_force(self, strategy):
        """Deliveries, drops and matches counted event by event."""
        texts = keyed(200) + ranged(50)
        filters, weights = compile_all(texts)
        events = quotes(400)
        plan = Plan.build(filters, weights, SCHEMA, 4, strategy=strategy)
        found = evaluate(plan, events, (filters, weights))
        compiled = Compiler(SCHEMA).compile_many(texts)
        engine = Engine(SCHEMA, matcher="scan")
        engine.subscribe_many([(int(f), text) for f, text in zip(compiled.filter_of, texts, strict=True)])
        rows = pa.table({a.name: events.array(i) for i, a in enumerate(SCHEMA)}).to_pylist()
        placement, routes = plan.place(filters), plan.route(events)
        needed = {
            (event, server)
            for event, row in enumerate(rows)
            for f in engine.match(row)
            for server in placement.servers[placement.ptr[f] : placement.ptr[f + 1]].tolist()
        }
        sent = set(zip(routes.event_ids.tolist(), routes.servers.tolist(), strict=True))
        pairs = needed_pairs(plan, events, filters)
        assert {(int(p) // 4, int(p) % 4) for p in pairs} == needed
        assert {event for event, _ in needed} <= {event for event, _ in sent}
        assert found.unmatched == pytest.approx(len(sent - needed) / len(sent))
        assert found.servers_per_event == len(sent) / 400
        assert found.dropped == pytest.approx(1 - len({event for event, _ in sent}) / 400)
        copies = (np.diff(placement.ptr) * weights).sum() / weights.sum()
        assert found.replication == pytest.approx(copies)
        assert found.us_per_event > 0
        if strategy != "event-space":
            assert found.false_positives == (0.0 if strategy == "broadcast" else found.unmatched)

    def test_event_space_knows_its_false_positives(self):
        """Without the subscriptions: what an exact dictionary would have dropped."""
        filters, weights = compile_all(keyed(97))
        partition = EventSpace.build(filters, weights, SCHEMA, 4, ratio=1, bits=2, attributes=["symbol"])
        events = quotes(2000)
        found = evaluate(Plan(SCHEMA, partition), events)
        asked = np.array([int(s[1:]) < 97 for s in events.array(0).to_pylist()])
        sent = np.zeros(2000, bool)
        sent[partition.route(events).event_ids] = True
        assert found.false_positives == pytest.approx((sent & ~asked).sum() / sent.sum())
        assert found.false_positives > 0.05  # two bits are few
        assert found.unmatched is None

    def test_no_events(self):
        """Nothing is divided by zero."""
        filters, weights = compile_all(keyed(5))
        found = evaluate(Plan.build(filters, weights, SCHEMA, 2), EventBatch.read(SCHEMA, []))
        assert found.servers_per_event == found.dropped == found.us_per_event == 0


class TestMoves:
    def test_a_migration_lists_what_goes_where(self):
        """From one server per filter to copies everywhere: each filter is copied from where it is."""
        filters, weights = compile_all(keyed(30))
        old = Plan.build(filters, weights, SCHEMA, 3, strategy="event-space")
        new = Plan.build(filters, weights, SCHEMA, 3, strategy="broadcast")
        moves = migrate(old, new, filters, weights)
        assert moves.size == 60
        assert moves.keeps.all()
        assert moves.sources.tolist() == np.repeat(old.place(filters).servers, 2).tolist()
        assert moves.share == 1.0
        back = migrate(new, old, filters, weights)
        assert back.size == 60
        assert (back.targets == -1).all()
        assert back.share == 0.0
        assert migrate(old, old, filters, weights).size == 0

    def test_rebalancing_is_a_migration(self):
        """Filters of the buckets that moved, and no others."""
        filters, weights = compile_all(keyed(970))
        old = Plan.build(filters, weights, SCHEMA, 4, strategy="event-space")
        crowded = np.where(old.place(filters).servers == 1, 5, 1)
        old.insert(filters, crowded)
        new = old.copy()
        moved = new.rebalance(1.2)
        moves = migrate(old, new, filters, weights)
        assert moved.buckets.size
        assert new.version == old.version + 1
        assert not moves.keeps.any()
        assert set(moves.sources.tolist()) == set(moved.sources.tolist())
        assert moves.share == pytest.approx(weights[moves.filter_ids].sum() / weights.sum())

    @pytest.mark.parametrize("strategy", ["broadcast", "filter-set"])
    def test_only_buckets_can_be_moved(self, strategy):
        """The message says what to do instead."""
        filters, weights = compile_all(keyed(10))
        with pytest.raises(PlanError, match="build a new plan and migrate"):
            Plan.build(filters, weights, SCHEMA, 2, strategy=strategy).rebalance()


class TestPicture:
    def test_loads_before_and_after(self, tmp_path):
        """The plan stays as it is; the page shows every server; the suffix says the format."""
        filters, weights = compile_all(keyed(970))
        plan = Plan.build(filters, weights, SCHEMA, 4, strategy="event-space")
        plan.insert(filters, np.where(plan.place(filters).servers == 1, 5, 1))
        before = plan.partition.loads()
        picture = picture_loads(plan, 1.2)
        assert plan.partition.loads().tolist() == picture.before.tolist() == before.tolist()
        assert picture.moved > 0
        assert picture.after.max() / picture.after.min() <= 1.2
        save_picture(picture, tmp_path / "load.html")
        page = (tmp_path / "load.html").read_text()
        assert page.count("<tr>") == 5
        assert picture.caption in page
        with pytest.raises(PlanError, match=r"unknown suffix '\.gif'"):
            save_picture(picture, tmp_path / "load.gif")

    @pytest.mark.sampled
    @strategies
    def test_every_strategy_can_be_drawn(self, strategy, tmp_path):
        """As a PNG, with matplotlib."""
        pytest.importorskip("matplotlib")
        filters, weights = compile_all(keyed(100))
        picture = picture_loads(Plan.build(filters, weights, SCHEMA, 3, strategy=strategy), 1.2)
        assert (picture.after is None) == (strategy != "event-space")
        save_picture(picture, tmp_path / "load.png")
        assert (tmp_path / "load.png").read_bytes().startswith(b"\x89PNG")
        assert math.isfinite(picture.before.sum())
