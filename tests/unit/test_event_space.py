"""Event-space partitioning: signatures, routing, balance, and filters that have no signature."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pytest

from wherecast.engine.engine import Engine
from wherecast.errors import PlanError
from wherecast.language.events.events import EventBatch
from wherecast.language.events.schema import Schema
from wherecast.language.filters.columns import Column, Reading
from wherecast.language.filters.compile import Compiler
from wherecast.language.filters.filters import Filters, take_filters
from wherecast.partition import balance
from wherecast.partition.costs import choose_policy
from wherecast.partition.event_space import EventSpace
from wherecast.partition.signatures import MOST_SIGNATURES, choose_columns, sign_events, sign_filters

SCHEMA = Schema.of(
    {
        "symbol": "string",
        "price": "double",
        "volume": "integer",
        "halted": "boolean",
        "day": "date",
        "time": "timestamp",
        "tags": "array<string>",
    }
)


def compile_all(*texts: str) -> Filters:
    """Filters in the order of their texts."""
    compiled = Compiler(SCHEMA).compile_many(texts)
    assert not compiled.errors
    return take_filters(compiled.filters, compiled.filter_of)


def signatures_of(text: str, *names: str) -> set[int] | None:
    """The signatures of a filter; None: it is unrouted."""
    signatures = sign_filters(compile_all(text), SCHEMA, [SCHEMA.index(n) for n in names], 0)
    return None if signatures.unrouted[0] else set(signatures.hashes.tolist())


def signature_of(event: dict, *names: str) -> int:
    return int(sign_events(EventBatch.read(SCHEMA, [event]), [SCHEMA.index(n) for n in names], 0)[0])


def ones(filters: Filters) -> np.ndarray:
    return np.ones(filters.n_filters, np.int64)


NOON = dt.datetime(2024, 1, 31, 12, tzinfo=dt.UTC)
SAME_VALUE = [
    ("symbol = 'IBM'", {"symbol": "IBM"}),
    ("symbol = ''", {"symbol": ""}),
    ("symbol = 'é😀'", {"symbol": "é😀"}),
    ("symbol LIKE 'IBM'", {"symbol": "IBM"}),
    ("symbol IS NULL", {}),
    ("symbol IS NULL", {"symbol": None}),
    ("symbol <=> NULL", {"price": 1.0}),
    ("price = 1.5", {"price": 1.5}),
    ("price = 0", {"price": -0.0}),
    ("price = 3", {"price": 3}),
    ("volume = 9223372036854775807", {"volume": 2**63 - 1}),
    ("volume >= 9223372036854775807", {"volume": 2**63 - 1}),
    ("volume <= -9223372036854775808", {"volume": -(2**63)}),
    ("halted", {"halted": True}),
    ("NOT halted", {"halted": False}),
    ("halted <> TRUE", {"halted": False}),
    ("day = '2024-01-31'", {"day": dt.date(2024, 1, 31)}),
    ("time = TIMESTAMP '2024-01-31 12:00:00'", {"time": NOON}),
]


@pytest.mark.parametrize(("text", "event"), SAME_VALUE, ids=[t for t, _ in SAME_VALUE])
def test_a_value_hashes_alike_in_filters_and_events(text, event):
    """Whatever its type and spelling; and other values hash otherwise."""
    name = next(n for n in ("symbol", "price", "volume", "halted", "day", "time") if n in text)
    found = signatures_of(text, name)
    assert found == {signature_of(event, name)}
    others = [{}, {"symbol": "ibm"}, {"price": 2.5, "volume": 3, "halted": True, "day": dt.date(2024, 1, 30)}]
    assert sum(signature_of(other, name) in found for other in others if other.get(name) != event.get(name)) == 0


@pytest.mark.parametrize(
    ("text", "names", "count"),
    [
        ("symbol IN ('A', 'B', 'C', 'A')", ("symbol",), 3),
        ("symbol = 'A' OR symbol = 'B' AND price > 3", ("symbol",), 2),
        ("symbol = 'A' AND price < 1 OR symbol = 'A' AND price > 3", ("symbol",), 1),
        ("symbol IN ('A', 'B') OR symbol IS NULL", ("symbol",), 3),
        ("volume BETWEEN 3 AND 7", ("volume",), 5),
        ("volume BETWEEN 3 AND 7 AND volume <> 5", ("volume",), 4),
        ("day BETWEEN '2024-02-28' AND '2024-03-01'", ("day",), 3),
        ("halted IS NOT NULL", ("halted",), 2),
        ("symbol IN ('A', 'B') AND volume IN (1, 2, 3)", ("symbol", "volume"), 6),
        ("symbol = 'A' AND volume = 1 OR symbol = 'B' AND volume = 2", ("symbol", "volume"), 2),
        ("symbol = 'A' AND price > volume", ("symbol",), 1),
        ("symbol = 'A' AND symbol = 'B'", ("symbol",), 0),
        (f"volume BETWEEN 1 AND {MOST_SIGNATURES}", ("volume",), MOST_SIGNATURES),
    ],
)
def test_a_filter_has_a_signature_for_every_combination(text, names, count):
    """Of the values that its clauses allow, each once."""
    assert len(signatures_of(text, *names)) == count


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("price > 3", ("symbol",)),
        ("TRUE", ("symbol",)),
        ("symbol > 'A'", ("symbol",)),
        ("symbol LIKE 'A%'", ("symbol",)),
        ("symbol <> 'A'", ("symbol",)),
        ("symbol IS NOT NULL", ("symbol",)),
        ("symbol = 'A' OR price > 3", ("symbol",)),
        ("lower(symbol) = 'a'", ("symbol",)),
        ("symbol = 'A'", ("symbol", "volume")),
        ("volume <> 3", ("volume",)),
        ("price BETWEEN 1 AND 2", ("price",)),
        ("halted IS NULL OR symbol = 'A'", ("halted",)),
        (f"volume BETWEEN 0 AND {MOST_SIGNATURES}", ("volume",)),
        ("volume BETWEEN 1 AND 40 AND day BETWEEN '2024-01-01' AND '2024-01-31'", ("volume", "day")),
        ("volume < 0", ("volume",)),
    ],
)
def test_a_filter_that_leaves_a_routing_attribute_open_is_unrouted(text, names):
    """Or that allows too many values of it."""
    assert signatures_of(text, *names) is None


def test_signatures_do_not_depend_on_the_batch():
    """Ranks of strings do; the same filter has the same signature alone and among others."""
    together = compile_all("symbol = 'B'", "symbol = 'A'", "symbol IN ('C', 'B')")
    found = sign_filters(together, SCHEMA, [0], 0)
    assert set(found.hashes[found.ptr[0] : found.ptr[1]].tolist()) == signatures_of("symbol = 'B'", "symbol")
    assert set(found.hashes[found.ptr[2] : found.ptr[3]].tolist()) == signatures_of("symbol IN ('B', 'C')", "symbol")


class TestChoosing:
    def test_the_attribute_with_the_most_telling_constants(self):
        """Many symbols tell more than two states, and more than a price that few filters fix."""
        texts = [f"symbol = 'S{i}' AND halted = {i % 2 == 0}" for i in range(64)]
        texts += [f"symbol = 'S{i}' AND price = {i}.5" for i in range(20)]
        filters = compile_all(*texts)
        chosen, bits = choose_columns(filters, ones(filters), SCHEMA, 40, 0)
        assert chosen == (0,)
        assert bits == pytest.approx(np.log2(40))  # more cannot be used

    def test_subscriptions_weigh(self):
        """Volumes tell four filters apart; but nearly all subscriptions are to one of them."""
        filters = compile_all(*(f"volume = {i} AND day = '2024-01-0{1 + i % 2}'" for i in range(4)))
        assert choose_columns(filters, ones(filters), SCHEMA, 100, 0)[0][0] == 2
        heavy = np.array([10_000, 9_999, 1, 1])
        assert choose_columns(filters, heavy, SCHEMA, 100, 0)[1] == pytest.approx(1.0, abs=0.01)

    def test_two_attributes_where_one_does_not_fill_the_buckets(self):
        """Four volumes and four days are sixteen signatures."""
        filters = compile_all(*(f"volume = {i % 4} AND day = '2024-01-0{1 + i // 4}'" for i in range(16)))
        assert choose_columns(filters, ones(filters), SCHEMA, 100, 0) == ((2, 4), pytest.approx(4.0))
        assert len(choose_columns(filters, ones(filters), SCHEMA, 4, 0)[0]) == 1

    def test_without_any_equality_there_is_a_choice_all_the_same(self):
        """It routes nothing, and says so."""
        filters = compile_all("price > 3")
        assert choose_columns(filters, ones(filters), SCHEMA, 100, 0) == ((0,), 0.0)

    def test_arrays_are_refused(self):
        """An event has no one value of an array."""
        filters = compile_all("symbol = 'A'")
        with pytest.raises(PlanError, match="'tags' is an array"):
            EventSpace.build(filters, ones(filters), SCHEMA, 2, attributes=["tags"])
        arrays = Schema.of({"tags": "array<string>"})
        only = Compiler(arrays).compile("array_contains(tags, 'x')")
        with pytest.raises(PlanError, match="only arrays"):
            EventSpace.build(only, ones(only), arrays, 2)


def stocks(n: int, *more: str) -> Filters:
    return compile_all(*(f"symbol = 'S{i}' AND price > {i}" for i in range(n)), *more)


def quotes(*symbols: str | None) -> EventBatch:
    return EventBatch.read(SCHEMA, [{"symbol": s, "price": 1e9} for s in symbols])


class TestUnrouted:
    def test_replicated_filters_are_everywhere_and_no_event_is_dropped(self):
        """One server per event, that of its bucket, whether anybody asks for its symbol or not."""
        filters = stocks(50, "price > 3")
        partition = EventSpace.build(filters, ones(filters), SCHEMA, 4, attributes=["symbol"], unrouted="replicate")
        placement = partition.place(filters)
        assert placement.servers[placement.ptr[-2] :].tolist() == [0, 1, 2, 3]
        routes = partition.route(quotes("S1", "nobody", None))
        assert routes.event_ids.tolist() == [0, 1, 2]
        assert "on every server: 3 more copies, and no event can be dropped" in partition.explain()

    def test_residual_filters_are_on_a_server_that_sees_all(self):
        """And other servers see only what they asked for."""
        filters = stocks(50, "price > 3")
        partition = EventSpace.build(
            filters, ones(filters), SCHEMA, 4, attributes=["symbol"], unrouted="residual", summary="dictionary"
        )
        placement = partition.place(filters)
        assert placement.servers[placement.ptr[-2] :].tolist() == [0]
        assert placement.servers[: placement.ptr[-2]].min() == 1
        routes = partition.route(quotes("S1", "nobody"))
        assert routes.event_ids.tolist() == [0, 0, 1]
        assert routes.servers.tolist() == [0, placement.servers[1], 0]
        assert "server 0, which sees all events: every event is sent there too" in partition.explain()

    def test_an_unrouted_filter_that_comes_later_is_not_lost(self):
        """Events that were dropped before now arrive; and are dropped again when it is gone."""
        filters, late = stocks(50), compile_all("price > 3")
        partition = EventSpace.build(filters, ones(filters), SCHEMA, 4, summary="dictionary")
        assert partition.route(quotes("nobody")).servers.size == 0
        assert partition.insert(late, ones(late)).servers.tolist() == [0, 1, 2, 3]
        assert partition.route(quotes("nobody")).servers.size == 1
        partition.remove(late, ones(late))
        assert partition.route(quotes("nobody")).servers.size == 0

    def test_what_was_not_inserted_cannot_be_removed(self):
        """Or the event would be dropped that another unrouted filter still wants."""
        filters, other = stocks(50, "price > 3"), compile_all("price > 4", "price > 5")
        partition = EventSpace.build(filters, ones(filters), SCHEMA, 4, attributes=["symbol"])
        with pytest.raises(PlanError, match="2 unrouted subscriptions to remove of 1"):
            partition.remove(other, ones(other))
        assert partition.route(quotes("nobody")).servers.size == 1

    def test_few_are_replicated_and_many_are_set_apart(self):
        """Copies cost more than a server that sees all events once there are enough of them."""
        assert choose_policy(1_000_000, 0, 50) == "replicate"
        assert choose_policy(1_000_000, 100, 50) == "replicate"
        assert choose_policy(1_000_000, 30_000_000, 50) == "residual"
        assert choose_policy(1_000_000, 30_000_000, 1) == "replicate"
        filters = stocks(50, "price > 3")
        weights = ones(filters)
        weights[-1] = 30_000_000
        assert EventSpace.build(filters, weights, SCHEMA, 50).policy == "residual"

    def test_a_residual_set_needs_a_server_of_its_own(self):
        """With one server there is no place for the others."""
        filters = stocks(5)
        with pytest.raises(PlanError, match="1 servers are too few"):
            EventSpace.build(filters, ones(filters), SCHEMA, 1, unrouted="residual")


class TestLoad:
    def test_weights_are_signatures_times_subscriptions(self):
        """Bucket by bucket; equal symbols are one signature."""
        filters = compile_all("symbol = 'A'", "symbol = 'A' AND price > 1", "symbol = 'B'")
        partition = EventSpace.build(filters, np.array([3, 4, 5]), SCHEMA, 1, ratio=1, attributes=["symbol"])
        assert partition.weights().tolist() == [2 * 12]
        assert partition.loads().tolist() == [24]

    def test_replicated_subscriptions_weigh_in_every_bucket(self):
        """An event meets them wherever it goes; on a residual server it meets them there."""
        filters = compile_all("symbol = 'A'", "price > 1")
        settings = {"ratio": 1, "attributes": ["symbol"]}
        weights = np.array([3, 10])
        assert EventSpace.build(filters, weights, SCHEMA, 1, **settings).loads().tolist() == [13]
        apart = EventSpace.build(filters, weights, SCHEMA, 2, unrouted="residual", **settings)
        assert apart.loads().tolist() == [10, 3]

    def test_events_seen_take_over_from_the_estimate(self):
        """A symbol that all events are about becomes the heaviest bucket; events nobody asks for do not count."""
        filters = stocks(200)
        partition = EventSpace.build(filters, ones(filters), SCHEMA, 4)
        before = partition.weights()
        partition.observe(quotes(*["S7"] * 900, *["nobody"] * 900))
        grown = np.flatnonzero(partition.weights() > before)
        assert grown.size == 1
        assert partition.seen.sum() == 900
        assert partition.weights().argmax() == grown[0]
        assert np.delete(partition.weights(), grown).tolist() == np.delete(before, grown).tolist()

    def test_counting_anew_forgets_what_is_gone(self):
        """Loads, copies and summaries are those of a partition of what is left; buckets stay where they are."""
        filters = compile_all("symbol = 'A'", "symbol IN ('B', 'C')", "price > 1")
        partition = EventSpace.build(filters, ones(filters), SCHEMA, 3, attributes=["symbol"], unrouted="replicate")
        table = partition.table.copy()
        partition.recount(left := compile_all("symbol = 'B'"), ones(left))
        assert partition.table.tolist() == table.tolist()
        assert (partition.total, partition.unrouted, partition.copies) == (1, 0, 1)
        routes = partition.route(quotes("A", "B", "C"))
        assert routes.event_ids.tolist() == [1]
        assert routes.servers.tolist() == partition.place(left).servers.tolist()

    def test_events_seen_are_carried_over(self):
        """To a partition with the same buckets, and to no other."""
        filters = stocks(50)
        old = EventSpace.build(filters, ones(filters), SCHEMA, 4, attributes=["symbol"])
        old.observe(quotes("S7", "S7", "S8"))
        for servers, seen in ((4, 3), (5, 0)):
            new = EventSpace.build(filters, ones(filters), SCHEMA, servers, attributes=["symbol"])
            new.carry_over(old)
            assert new.seen.sum() == seen

    @pytest.mark.sampled
    @pytest.mark.parametrize(
        ("skew", "servers"),
        [("one key with a tenth", 50), ("three keys with all", 20), ("zipf", 50), ("one key", 7), ("halves", 16)],
    )
    def test_hot_keys_are_shared(self, skew, servers):
        """No server does 1.3 times the work of another, every event goes to one server, and few copies are made."""
        filters = stocks(3_000)
        weights = {
            "one key with a tenth": np.where(np.arange(3_000) == 7, 40_000, 120),
            "three keys with all": np.where(np.arange(3_000) < 3, 1_000_000, 1),
            "zipf": 10_000_000 // (1 + np.arange(3_000)),
            "one key": np.where(np.arange(3_000) == 7, 10**9, 1),
            "halves": np.maximum(10**9 // 2 ** np.minimum(np.arange(3_000), 60), 1),
        }[skew]
        partition = EventSpace.build(filters, weights, SCHEMA, servers, attributes=["symbol"])
        assert balance.imbalance(partition.loads()) <= 1.3
        routes = partition.route(quotes(*[f"S{i % 40}" for i in range(4_000)]))
        assert routes.event_ids.tolist() == list(range(4_000))
        hot = routes.servers[int(weights.argmax()) :: 40]
        assert len(set(hot.tolist())) > 1
        homes = np.diff(partition.place(filters).ptr)
        assert np.median(homes) == 1  # only keys in the bucket of a hot one have copies, too
        assert "hot keys" in partition.explain()

    def test_a_key_that_becomes_hot_is_shared_online(self):
        """Rebalancing cuts a bucket that no move could mend, and moves its shares; a plan saved before shares is read."""
        filters = stocks(400)
        partition = EventSpace.build(filters, ones(filters), SCHEMA, 8, attributes=["symbol"])
        assert partition.stats()["shared_buckets"] == 0
        partition.observe(quotes(*["S7"] * 50_000, *[f"S{i % 400}" for i in range(4_000)]))
        assert balance.imbalance(partition.loads()) > 5
        moves = partition.rebalance(1.5)
        assert 0 < moves.buckets.size < 30
        assert balance.imbalance(partition.loads()) <= 1.5
        assert partition.stats()["shared_buckets"] == 1
        assert len(set(partition.route(quotes(*["S7"] * 100)).servers.tolist())) > 2
        stored = partition.arrays()
        assert EventSpace.from_arrays(stored, SCHEMA).route(quotes("S1")).servers.size == 1
        fresh = EventSpace.build(filters, ones(filters), SCHEMA, 8, attributes=["symbol"]).arrays()
        del fresh["extra"]
        assert EventSpace.from_arrays(fresh, SCHEMA).extra.size == 0
        with pytest.raises(PlanError, match="contradict"):
            EventSpace.from_arrays({**stored, "extra": stored["extra"] + 10**6}, SCHEMA)

    def test_rebalancing_comes_back_within_the_threshold(self):
        """Skewed inserts unbalance; a few moves mend it, and filters go only where the moves say."""
        filters = stocks(2000)
        partition = EventSpace.build(filters, ones(filters), SCHEMA, 8, attributes=["symbol"])
        assert balance.imbalance(partition.loads()) < 1.2
        crowd = np.flatnonzero(partition.place(filters).servers == 3)[::2]
        weights = ones(filters)
        weights[crowd] = 6
        partition.insert(filters, weights)
        assert balance.imbalance(partition.loads()) > 1.5
        before, table = partition.place(filters).servers, partition.table.copy()
        moves = partition.rebalance(1.5)
        assert 0 < moves.buckets.size < 10
        assert balance.imbalance(partition.loads()) <= 1.5
        assert np.flatnonzero(table != partition.table).tolist() == moves.buckets.tolist()
        after = partition.place(filters).servers
        assert set(after[before != after].tolist()) <= set(moves.targets.tolist())
        assert partition.rebalance(1.5).buckets.size == 0

    @pytest.mark.parametrize("policy", ["replicate", "residual"])
    def test_servers_join_and_leave(self, policy):
        """A new server takes its share from the others; a leaver's goes to the others; nobody else's moves."""
        filters = stocks(2000, "price > 3")
        first = int(policy == "residual")
        partition = EventSpace.build(filters, ones(filters), SCHEMA, 5, attributes=["symbol"], unrouted=policy)
        before = partition.place(stocks(2000)).servers
        joined = partition.add_server()
        after = partition.place(stocks(2000)).servers
        assert partition.n_servers == 6
        assert set(joined.targets.tolist()) == {5}
        assert set(after[before != after].tolist()) == {5}
        assert balance.imbalance(partition.loads()[first:]) < 1.5
        left = partition.remove_server(2)
        assert partition.n_servers == 5
        assert set(left.sources.tolist()) == {2}
        stayed = after != 2
        gone_down = after[stayed] - (after[stayed] > 2)
        assert np.array_equal(partition.place(stocks(2000)).servers[stayed], gone_down)
        assert partition.loads().size == 5

    def test_the_residual_server_can_leave(self):
        """The next one takes its place and gives its buckets to the others."""
        filters = stocks(100, "price > 3")
        partition = EventSpace.build(filters, ones(filters), SCHEMA, 3, attributes=["symbol"], unrouted="residual")
        moves = partition.remove_server(0)
        assert set(moves.sources.tolist()) == {1}
        placement = partition.place(filters)
        assert placement.servers[: placement.ptr[-2]].tolist() == [1] * 100
        assert placement.servers[-1] == 0
        with pytest.raises(PlanError, match="no other would be left"):
            partition.remove_server(1)

    def test_no_such_server(self):
        """The message says which there are."""
        filters = stocks(5)
        with pytest.raises(PlanError, match="no server 7; there are 0 to 1"):
            EventSpace.build(filters, ones(filters), SCHEMA, 2).remove_server(7)


class TestSummaries:
    @pytest.mark.parametrize("summary", ["bloom", "dictionary"])
    def test_events_that_nobody_asks_for_are_dropped(self, summary):
        """At most one in a hundred passes, none with a dictionary."""
        filters = stocks(3000)
        partition = EventSpace.build(filters, ones(filters), SCHEMA, 10, summary=summary)
        events = quotes(*(f"X{i}" for i in range(5000)))
        share = partition.route(events).servers.size / 5000
        assert share < 0.01 if summary == "bloom" else share == 0
        assert partition.in_vain(events, partition.route(events)).all()
        assert partition.route(quotes(*(f"S{i}" for i in range(3000)))).servers.size == 3000

    @pytest.mark.parametrize("summary", ["bloom", "dictionary"])
    def test_an_empty_text_is_a_value_like_any_other(self, summary):
        """Its hash is 0, which no summary can hold."""
        filters = compile_all("symbol = ''", "symbol = 'A'")
        partition = EventSpace.build(filters, ones(filters), SCHEMA, 2, attributes=["symbol"], summary=summary)
        assert partition.route(quotes("", "A", "B")).event_ids.tolist() == [0, 1]

    def test_removed_filters_leave_at_the_next_rebuild(self):
        """Bloom filters cannot forget; the ledger can."""
        filters = stocks(3000)
        partition = EventSpace.build(filters, ones(filters), SCHEMA, 10)
        partition.remove(filters, ones(filters))
        assert partition.loads().tolist() == [0] * 10
        assert partition.route(quotes("S1", "S2")).servers.size == 2
        partition.rebuild()
        assert partition.route(quotes(*(f"S{i}" for i in range(3000)))).servers.size == 0
        assert partition.stats()["signatures"] == 0

    def test_it_grows_with_the_set(self):
        """Ten times the signatures pass no more unwanted events than before."""
        filters = stocks(3000)
        partition = EventSpace.build(stocks(300), ones(stocks(300)), SCHEMA, 10)
        partition.insert(filters, ones(filters))
        assert partition.stats()["false_positive_rate"] < 0.01

    def test_copies_are_counted(self):
        """IN over several servers makes copies; removing takes them back."""
        filters = compile_all("symbol = 'A'", f"symbol IN ({', '.join(repr(f'B{i}') for i in range(50))})")
        partition = EventSpace.build(filters, np.array([1, 3]), SCHEMA, 2)
        assert partition.stats()["replication"] == (1 + 3 * 2) / 4
        partition.remove(filters, np.array([1, 3]))
        assert partition.copies == 0


def test_the_arrays_are_the_whole_state():
    """A partition made of them answers and changes as the first one does."""
    filters = stocks(300, "price > 3", "symbol IN ('S1', 'S2')")
    first = EventSpace.build(filters, ones(filters), SCHEMA, 5, attributes=["symbol"], unrouted="residual", seed=9)
    first.observe(quotes("S1", "S2"))
    second = EventSpace.from_arrays(first.arrays(), SCHEMA)
    for partition in (first, second):
        partition.insert(stocks(400), ones(stocks(400)))
        partition.rebalance(1.0)
    assert first.stats() == second.stats()
    assert first.explain() == second.explain()
    events = quotes(*(f"S{i}" for i in range(500)))
    assert np.array_equal(first.route(events).servers, second.route(events).servers)
    assert np.array_equal(first.place(filters).servers, second.place(filters).servers)


@pytest.mark.parametrize("change", [{"table": np.array([0, 7], np.int32)}, {"seen": np.zeros(3, np.int64)}])
def test_arrays_that_contradict_each_other_are_refused(change):
    """A table that names no server, or is of another length than the rest."""
    filters = stocks(5)
    arrays = EventSpace.build(filters, ones(filters), SCHEMA, 2, ratio=1).arrays()
    with pytest.raises(PlanError, match="contradict"):
        EventSpace.from_arrays({**arrays, **change}, SCHEMA)


def test_a_filter_that_can_never_match_is_on_no_server():
    """It needs none, and it is not unrouted."""
    filters = compile_all("symbol = 'A' AND symbol = 'B'", "symbol = 'A'")
    partition = EventSpace.build(filters, ones(filters), SCHEMA, 3, attributes=["symbol"])
    assert np.diff(partition.place(filters).ptr).tolist() == [0, 1]
    assert partition.unrouted == 0


TOPICS = (
    "symbol MATCHES 'news/+/markets'",
    "symbol MATCHES 'news/#'",
    "symbol MATCHES 'sport/#' OR symbol MATCHES 'news/asia'",
    "symbol MATCHES '+/asia' AND symbol MATCHES 'sport/+'",
    "symbol = 'sport/asia' AND price > 3",
    "symbol MATCHES '/x' AND NOT symbol MATCHES '/y'",
)


class TestTopics:
    @pytest.mark.parametrize("unrouted", ["replicate", "residual"])
    @pytest.mark.parametrize("open_ones", [(), ("symbol MATCHES '+/asia'", "symbol MATCHES '#'", "price > 3")])
    def test_every_match_is_on_a_server_that_gets_the_event(self, unrouted, open_ones):
        """Patterns are routed by their first level; those that begin with a wildcard are where unrouted filters are."""
        texts = (*TOPICS, *(f"symbol MATCHES 'a{i}/b'" for i in range(20)), *open_ones)
        filters, schema = compile_all(*texts), SCHEMA
        partition = EventSpace.build(filters, ones(filters), schema, 4, attributes=["symbol"], unrouted=unrouted)
        assert "routed by the first level of symbol" in partition.explain()
        assert partition.unrouted == len(open_ones)
        names = (
            None,
            "",
            "news",
            "news/asia",
            "news/asia/markets",
            "sport/asia",
            "/x",
            "/y",
            "a3/b",
            "a4",
            "$news/asia",
        )
        events = [{"symbol": name, "price": 9.0} for name in names]
        partition = EventSpace.from_arrays(partition.arrays(), schema)
        routes = partition.route(EventBatch.read(schema, events))
        sent = set(zip(routes.event_ids.tolist(), routes.servers.tolist(), strict=True))
        placement = partition.place(filters)
        engine = Engine(schema)
        engine.subscribe_many(dict(enumerate(texts)))
        found = [(event, id) for event, ids in enumerate(engine.match_batch(events).to_lists()) for id in ids]
        assert {id for _, id in found} >= set(range(len(TOPICS)))
        for event, id in found:
            assert any(
                (event, s) in sent for s in placement.servers[placement.ptr[id] : placement.ptr[id + 1]].tolist()
            )

    def test_the_choice(self):
        """First levels are chosen where filters are patterns, and values where they are whole topics."""
        filters = compile_all(*TOPICS)
        number = SCHEMA.number_of(Column(0, Reading.TOPICS))
        assert choose_columns(filters, ones(filters), SCHEMA, 100, 0)[0] == (number,)
        filters = compile_all(*(f"symbol = 'news/{i}'" for i in range(8)))
        assert choose_columns(filters, ones(filters), SCHEMA, 100, 0)[0] == (0,)
