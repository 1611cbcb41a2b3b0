"""The engine's public surface."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

from wherecast import Engine, EventError, FilterError, SubscriptionError
from wherecast.errors import MatcherError, SnapshotError
from wherecast.index.snapshot import open_snapshot, write_snapshot
from wherecast.matchers.registry import MATCHERS

SCHEMA = {"symbol": "string", "price": "double", "volume": "integer", "tags": "array<string>"}


#: For what a matcher itself does. The rest is the engine's, whatever its matcher: two are enough.
EVERY_MATCHER = pytest.mark.parametrize("engine", sorted(MATCHERS), indirect=True)


@pytest.fixture(params=["adaptive", "scan"])
def engine(request) -> Engine:
    return Engine(SCHEMA, matcher=request.param)


@EVERY_MATCHER
def test_ids_come_back_as_given(engine):
    """Strings and integers, 7 and "7" among them, are ids of their own."""
    engine.subscribe_many({7: "price > 1", "7": "price > 1", -(2**63): "price > 1", "": "price > 1"})
    assert set(engine.match({"price": 2.0})) == {7, "7", -(2**63), ""}
    engine.unsubscribe(7)
    assert set(engine.match({"price": 2.0})) == {"7", -(2**63), ""}


@pytest.mark.parametrize("id", [None, 1.5, True, ["x"], b"x"])
def test_other_ids_are_refused(engine, id):
    """An id is a string or an integer."""
    with pytest.raises(SubscriptionError, match="an id is a string or an integer"):
        engine.subscribe(id, "price > 1")
    with pytest.raises(SubscriptionError):
        engine.unsubscribe(id)
    assert engine.subscribe_many([(id, "price > 1")]).registered == 0
    assert len(engine) == 0


def test_an_id_used_twice_is_an_error_unless_replaced(engine):
    """The second subscription of an id changes nothing, or all of it."""
    engine.subscribe("a", "price > 1")
    with pytest.raises(SubscriptionError, match="replace=True"):
        engine.subscribe("a", "price > 5")
    assert engine.match({"price": 2.0}) == ["a"]
    engine.subscribe("a", "price > 5", replace=True)
    assert engine.match({"price": 2.0}) == []
    assert engine.match({"price": 6.0}) == ["a"]
    assert len(engine) == 1


def test_a_bad_filter_changes_nothing(engine):
    """Nothing half registered remains, also when the id was there before."""
    engine.subscribe("a", "price > 1")
    for replace in (False, True):
        with pytest.raises(FilterError):
            engine.subscribe("a", "prise > 1", replace=replace)
    assert engine.match({"price": 2.0}) == ["a"]


def test_one_of_two_equal_filters_can_go(engine):
    """Equal filters are stored once and belong to each of their subscribers."""
    engine.subscribe_many([("a", "price > 1 AND volume = 3"), ("b", "volume = 3 AND 1 < price")])
    assert engine.stats()["segments"][0]["filters"] == 1
    engine.unsubscribe("a")
    assert engine.match({"price": 2.0, "volume": 3}) == ["b"]
    engine.merge(everything=True)
    assert engine.match({"price": 2.0, "volume": 3}) == ["b"]


def test_a_batch_sets_bad_rows_aside(engine):
    """Rows that cannot be registered come back with row, id and reason; the others are registered."""
    rows = pa.table({"id": [1, 2, 2, 3, 4], "filter": ["price > 1", "price >", "price > 2", None, "volume = 'x'"]})
    outcome = engine.subscribe_many(rows)
    assert outcome.registered == 2
    assert [(q.row, q.id) for q in outcome.quarantined] == [(1, 2), (3, 3), (4, 4)]
    again = engine.subscribe_many(rows)
    assert [q.row for q in again.quarantined] == [0, 1, 2, 3, 4]
    assert sorted(engine.match({"price": 3.0})) == [1, 2]


@EVERY_MATCHER
def test_contradictions_and_tautologies(engine):
    """A filter that never matches is registered and silent; one that always does is told of every event."""
    engine.subscribe_many({"never": "price > 5 AND price < 3", "always": "price > 5 OR NOT price > 5 OR price IS NULL"})
    assert len(engine) == 2
    assert engine.match({"price": 4.0}) == ["always"]
    assert engine.match({}) == ["always"]
    assert "can never match" in str(engine.explain({}, "never"))
    assert engine.explain({}, "always").matches


def test_explain_says_which_predicate_fails(engine):
    """The failing predicate is named with the value that failed it."""
    engine.subscribe("a", "symbol = 'IBM' AND price < 120 AND volume + 1 > 10")
    outcome = engine.explain({"symbol": "IBM", "price": 130.0, "volume": 3}, "a")
    assert not outcome.matches
    failed = [p.predicate for p in outcome.clauses[0].predicates if not p.holds]
    assert failed == ["price < 120.0", "(volume + 1) > 10"]
    assert "(is 130.0)" in str(outcome)
    with pytest.raises(SubscriptionError, match="no subscription"):
        engine.explain({}, "nobody")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("volume * 1.10 > -3", "(volume * 1.10) > -3"),
        ("price + 1e0 IN (2.5, 3)", "(price + 1.0D) IN (2.5D, 3.0D)"),
        ("upper(symbol) IN ('x''y', 'b')", "upper(symbol) IN ('b', 'x''y')"),
        ("volume + 1 IN (2, 1.5)", "(volume + 1) IN (1.5, 2BD)"),
        ("symbol RLIKE '^a'", "symbol RLIKE '^a'"),
    ],
)
def test_explain_shows_residuals_as_sql(engine, text, shown):
    """Literals of a residual are shown as they would be written."""
    engine.subscribe("a", text)
    assert engine.explain({}, "a").clauses[0].predicates[-1].predicate == shown


def test_events_with_wrong_values(engine):
    """An error names row and attribute; skipped rows are listed and the others keep their numbers."""
    engine.subscribe("a", "volume > 1")
    events = [{"volume": 2}, {"volume": "x"}, {"volume": 3}]
    with pytest.raises(EventError, match="event 1, attribute 'volume'"):
        engine.match_batch(events)
    matches = engine.match_batch(events, on_error="skip")
    assert matches.rows.tolist() == [0, 2]
    assert matches.to_arrow().to_pydict() == {"event": [0, 2], "subscription": ["a", "a"]}
    assert [e.row for e in matches.errors] == [1]
    assert engine.count(events, on_error="skip").tolist() == [1, 1]
    with pytest.raises(EventError, match="volume"):
        engine.match({"volume": 1.5})
    with pytest.raises(EventError):
        engine.match([1, 2])


@pytest.mark.sampled
@pytest.mark.parametrize("text_ids", [False, True], ids=["integers", "strings"])
@pytest.mark.parametrize("segments", [1, 2])
def test_runs_of_any_length_are_copied_whole(engine, segments, text_ids):
    """Filters with 1 to 40 subscribers, in one segment or spread over two: every event gets its ids, each once."""
    rows = [(run * 100 + i, f"price > {run % 7} and volume = {run}") for run in range(1, 41) for i in range(run)]
    rows += [(10_000 + i, f"volume < {i}") for i in range(41)]
    rows = [(f"s{id}" if text_ids else id, text) for id, text in rows]
    for part in range(segments):
        engine.subscribe_many(rows[part::segments])
    events = [{"price": float(p), "volume": v} for p in (0, 3, 9) for v in range(42)]
    wanted_by = {text: compile(text.replace(" = ", " == "), text, "eval") for _, text in rows}  # they are Python, too
    found = engine.match_batch(events)
    for event, ids, count in zip(events, found.to_lists(), engine.count(events).tolist(), strict=True):
        holds = {text for text, program in wanted_by.items() if eval(program, {}, event)}
        wanted = [id for id, text in rows if text in holds]
        assert sorted(ids) == sorted(wanted)
        assert count == len(wanted)


def test_matches_stay_those_of_their_version(engine):
    """What is asked of a result later is answered as of the moment of matching, whatever changed since."""
    engine.subscribe_many({i: f"volume < {i}" for i in range(20)})
    events = [{"volume": v} for v in range(20)]
    found = engine.match_batch(events)
    engine.unsubscribe(10)
    engine.subscribe(99, "volume < 99")
    engine.plan(events)
    engine.merge(everything=True)
    assert [sorted(ids) for ids in found.to_lists()] == [list(range(v + 1, 20)) for v in range(20)]
    assert found.counts().tolist() == [19 - v for v in range(20)]
    assert 10 not in engine.match({"volume": 0})


@pytest.mark.sampled
@EVERY_MATCHER
def test_threads_find_the_same(engine):
    """A batch cut over threads gives what one thread gives, ids and counts."""
    draw = np.random.default_rng(1)
    texts = {i: f"volume > {draw.integers(50)} AND price < {draw.integers(50)}" for i in range(300)}
    engine.subscribe_many({**texts, "r": "price > volume", "t": "array_contains(tags, 'x')"})
    events = pa.table(
        {
            "volume": draw.integers(0, 50, 3000),
            "price": draw.random(3000) * 50,
            "tags": [["x"] if i % 3 else None for i in range(3000)],
        }
    )
    one, four = engine.match_batch(events), engine.match_batch(events, threads=4)
    found = [set(ids) for ids in one]
    assert found == [set(ids) for ids in four]
    counts = [len(ids) for ids in found]
    assert one.counts().tolist() == four.counts().tolist() == counts
    assert engine.count(events, threads=4).tolist() == engine.count(events).tolist() == counts


def test_highest_priorities_first(engine):
    """`top` returns at most so many ids of each event, by descending priority."""
    engine.subscribe("low", "price > 1", priority=1)
    engine.subscribe("none", "price > 1")
    engine.subscribe_many(pa.table({"id": ["high"], "filter": ["price > 1"], "priority": [5.0]}))
    matches = engine.match_batch([{"price": 2.0}, {"price": 0.0}, {"price": 3.0}])
    assert matches.top(2) == [["high", "low"], [], ["high", "low"]]
    assert matches.top(9)[0] == ["high", "low", "none"]
    assert matches.total() == 6


def test_versions_grow_with_changes(engine):
    """Every change is one version; a batch is one change; what is refused is none."""
    engine.subscribe("a", "price > 1")
    engine.subscribe_many({"b": "price > 1", "c": "price > 1"})
    assert engine.version == 2
    with pytest.raises(SubscriptionError):
        engine.unsubscribe("x")
    engine.unsubscribe("a")
    assert engine.version == 3
    assert engine.match_batch([{}]).version == 3


@EVERY_MATCHER
def test_the_plan_can_be_read(engine):
    """The plan names its size; an engine without subscriptions has none."""
    assert engine.explain_plan() == "no subscriptions"
    engine.subscribe_many({i: f"volume = {i} AND price < {i}" for i in range(500)})
    assert "500" in engine.explain_plan()


@EVERY_MATCHER
def test_nothing_registered(engine):
    """An engine without subscriptions matches nothing, and says so in every form."""
    matches = engine.match_batch([{"price": 1.0}, {}])
    assert matches.to_lists() == [[], []]
    assert matches.to_arrow().num_rows == 0
    assert engine.count([{}]).tolist() == [0]
    assert engine.match({}) == []
    assert list(engine) == []


def test_unknown_matcher():
    """The error lists what there is."""
    with pytest.raises(MatcherError, match="adaptive"):
        Engine(SCHEMA, matcher="nope")


@pytest.mark.sampled
def test_readers_see_whole_changes_only(engine):
    """While a writer replaces batches, every match sees each of them wholly or not at all."""
    group = [f"s{i}" for i in range(20)]
    engine.subscribe_many(dict.fromkeys(group, "price > 0"))
    stop, seen = threading.Event(), []

    def read() -> None:
        while not (seen and stop.is_set()):
            seen.append(frozenset(engine.match_batch([{"price": 5.0, "volume": 1}]).to_lists()[0]))

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read)
        try:
            for turn in range(30):
                engine.subscribe_many(dict.fromkeys(group, "price > 0" if turn % 2 else "price < 0"), replace=True)
                engine.subscribe(f"x{turn}", "price < 0")
        finally:
            stop.set()
    reader.result()  # raises what the reader raised
    assert seen
    assert set(seen) <= {frozenset(group), frozenset()}


class TestSaved:
    """Saved engines."""

    @pytest.fixture
    def saved(self, engine, tmp_path):
        engine.subscribe_many({"a": "symbol = 'IBM' AND price < 120", "b": "symbol LIKE '%x%'", 3: "volume IN (1, 2)"})
        engine.unsubscribe("b")
        engine.subscribe("c", "array_contains(tags, 'n')", priority=2)
        engine.save(tmp_path / "snapshot")
        return tmp_path / "snapshot"

    @EVERY_MATCHER
    def test_opened_is_the_same(self, engine, saved):
        """Matches, size, version and matcher are those of the saved engine, and changes go on."""
        opened = Engine.open(saved)
        event = {"symbol": "IBM", "price": 100.0, "volume": 2, "tags": ["n"]}
        assert sorted(map(str, opened.match(event))) == ["3", "a", "c"]
        assert (len(opened), opened.version, opened.matcher) == (3, engine.version, engine.matcher)
        assert set(opened) == {"a", "c", 3}
        opened.subscribe("b", "price > 0")
        opened.unsubscribe("a")
        assert sorted(map(str, opened.match(event))) == ["3", "b", "c"]
        opened.save(saved)
        assert sorted(map(str, Engine.open(saved).match(event))) == ["3", "b", "c"]

    def test_flipped_bit(self, saved):
        """One bit of one array is enough to be refused."""
        for file in saved.rglob("*.arrow"):
            content = bytearray(file.read_bytes())
            content[len(content) // 2] ^= 1
            file.write_bytes(content)
        with pytest.raises(SnapshotError):
            Engine.open(saved)

    def test_foreign(self, tmp_path):
        """What is no snapshot, or no engine's, is refused."""
        with pytest.raises(SnapshotError):
            Engine.open(tmp_path / "nothing")
        write_snapshot(tmp_path / "other", {"x": np.arange(3)}, {"hello": 1})
        with pytest.raises(SnapshotError, match="not a saved engine"):
            Engine.open(tmp_path / "other")

    @pytest.mark.sampled
    @pytest.mark.parametrize(
        ("name", "change"),
        [
            ("boxes/attr", lambda a: a + 50),
            ("boxes/lo", lambda a: a[:-1]),
            ("boxes/ptr", lambda a: a * 2),
            ("boxes/ptr", lambda a: a[:0]),
            ("boxes/number", lambda _: np.full(1000, 255)),
            ("boxes/widths", lambda a: a + 1),
            ("ids/ptr", lambda a: a + 1),
            ("ids/ptr", lambda a: a[::-1].copy()),
            ("ids/order", lambda a: a + 100),
        ],
    )
    def test_arrays_that_contradict_each_other(self, saved, tmp_path, name, change):
        """Arrays with right checksums and wrong contents are refused before a kernel reads them."""
        snapshot = open_snapshot(saved)
        arrays = {n: snapshot.arrays[n] for n in snapshot.arrays}
        key = f"segment0/{name}"
        arrays[key] = change(np.array(arrays[key])).astype(arrays[key].dtype)
        write_snapshot(tmp_path / "bad", arrays, snapshot.facts)
        with pytest.raises(SnapshotError, match="contradict"):
            Engine.open(tmp_path / "bad")
