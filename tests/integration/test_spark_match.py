"""For every plan, what Spark finds is what the single engine finds, and what Spark's own WHERE finds."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from tests.integration.small_market import EVENTS, SCHEMA, STRATEGIES, SUBSCRIPTIONS, engine_pairs
from tests.property.columns import events_table
from tests.property.models import below, joined, keywords, negated, phrase, similar, similar_text, topic
from tests.property.strategies import Trial, make_trial
from tests.property.terms import text

from wherecast import spark as ws
from wherecast.engine.engine import Engine
from wherecast.errors import SchemaError, SubscriptionError
from wherecast.language.events.schema import Schema
from wherecast.spark.store import Store
from wherecast.spark.versions import from_arrow, to_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    return from_arrow(spark, table)


def subscriptions_frame(spark: SparkSession, rows: list[tuple[Any, Any]]) -> DataFrame:
    return frame(spark, pa.table({"id": [r[0] for r in rows], "filter": [r[1] for r in rows]}))


def build(
    spark: SparkSession, path: Path, strategy: str, rows: Any = SUBSCRIPTIONS, schema: Any = SCHEMA, **options: Any
) -> ws.Built:
    frame = subscriptions_frame(spark, rows)
    return ws.build_index(frame, schema, str(path), strategy=strategy, servers=3, **options)


@pytest.fixture(scope="module")
def built(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The folder of an index of the subscriptions, one for each plan, for tests that only read it."""

    @cache
    def make(strategy: str) -> str:
        folder = tmp_path_factory.mktemp(strategy)
        build(spark, folder, strategy)
        return str(folder)

    return make


def found_pairs(matches: DataFrame, key: str) -> Counter[tuple[Any, Any]]:
    table = to_arrow(matches.select(key, "subscription"))
    return Counter(zip(table[key].to_pylist(), table["subscription"].to_pylist(), strict=True))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_equals_the_engine(spark: SparkSession, built: Callable[[str], str], strategy: str) -> None:
    """Each pair is found once, and no other."""
    index = built(strategy)
    found = found_pairs(ws.match(frame(spark, EVENTS), index), "note")
    assert found == engine_pairs(SCHEMA, SUBSCRIPTIONS, EVENTS, "note")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_equals_sparks_own_where(spark: SparkSession, built: Callable[[str], str], strategy: str) -> None:
    """A union of one WHERE per subscription gives the same pairs."""
    index = built(strategy)
    events = frame(spark, EVENTS)
    expected: Counter[tuple[Any, Any]] = Counter()
    for id, filter in SUBSCRIPTIONS:
        expected.update((row.note, id) for row in events.where(filter).collect())
    assert found_pairs(ws.match(events, index), "note") == expected


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", range(2))
def test_random_schemas_filters_and_events(spark: SparkSession, tmp_path: Path, strategy: str, seed: int) -> None:
    """The single engine and Spark agree on random trials, whatever the plan."""
    trial: Trial = make_trial(random.Random(seed), 40, 60)
    engine = Engine(trial.space.schema)
    rows = [(i, text(f)) for i, f in enumerate(trial.filters)]
    refused = {q.id for q in engine.subscribe_many(rows).quarantined}
    events = events_table(trial.space, trial.events)
    events = events.append_column("__row__", pa.array(np.arange(len(events))))
    built = build(spark, tmp_path, strategy, rows, trial.space.schema)
    assert {int(row.id) for row in built.quarantine.collect()} == refused
    found = found_pairs(ws.match(frame(spark, events), str(tmp_path)), "__row__")
    event_rows, ids = engine.match_batch(events).pairs()
    assert found == Counter(zip(event_rows.tolist(), ids.tolist(), strict=True))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_topics_words_and_vectors(spark: SparkSession, tmp_path: Path, strategy: str) -> None:
    """What Spark SQL does not have goes through the pipeline as a naive evaluator says, partitioned, in a batch."""
    rare = {"chip": 9, "export": 1, "and": 10}
    leaves = [
        *(topic("topic", pattern) for pattern in ("a/#", "+/b", "a/+/c", "#", "$s/#", "a/b")),
        *(
            keywords("body", words, is_any=is_any, stem=str)
            for words in (["chip"], ["chip", "ÉXPORT"])
            for is_any in (False, True)
        ),
        phrase("body", ["chip", "export"], str),
        *(
            similar("vector", [1.0, 2.0, float(i % 9)], op, limit)
            for i in range(12)
            for op, limit in ((">=", 0.9), ("<", 0.2))
        ),
        *(
            similar_text("body", words, op, limit, str, 10, rare)
            for words in ("chip export", "chip", "weather and chip")
            for op, limit in ((">=", 0.4), ("<", 0.9))
        ),
    ]
    conditions = [
        *leaves,
        *map(negated, leaves),
        *(joined([leaf, below("price", i % 5)], is_and=i % 2 == 0) for i, leaf in enumerate(leaves)),
    ]
    rng = random.Random(3)
    events = [
        {
            "row": row,
            "topic": rng.choice([None, "a", "a/b", "a/b/c", "x/b", "$s/b"]),
            "body": rng.choice([None, "", "Chip export", "éxport: chip!", "chip", "e\u0301xport"]),
            "price": rng.choice([None, 1, 3]),
            "vector": rng.choice([None, [0.0, 0.0, 0.0], [1.0, 2.0, 3.0], [0.5, 1.0, 0.0], [-1.0, 0.0, 0.25]]),
        }
        for row in range(60)
    ]
    body = {"type": "string", "frequencies": {"texts": 10, "words": rare}}
    schema = {"topic": "string", "body": body, "price": "int", "vector": "vector(3)"}
    build(spark, tmp_path, strategy, [(i, c.text) for i, c in enumerate(conditions)], schema)
    types = pa.schema({
        "row": pa.int64(), "topic": pa.string(), "body": pa.string(), "price": pa.int32(), "vector": pa.list_(pa.float64()),
    })  # fmt: skip
    found = found_pairs(ws.match(frame(spark, pa.Table.from_pylist(events, types)), str(tmp_path)), "row")
    assert found == Counter((e["row"], i) for e in events for i, c in enumerate(conditions) if c.value(e) is True)


def test_columns_of_every_kind(spark: SparkSession, tmp_path: Path) -> None:
    """Values, literals and regular expressions of attributes and of expressions, partitioned, as Spark's own WHERE has them."""
    filters = [
        text.replace("#", str(i))
        for i in range(1, 41)
        for text in (
            "n = #",
            "a LIKE '%w#x%'",
            "a ILIKE '%W#X'",
            "trim(a) LIKE '%w#x'",
            "length(a) > 4 AND n > #",
            "a RLIKE '^ ?[v-x]{1}[0-9]+x{#}$'",
            "n % 7 = # AND NOT a LIKE '%w#%'",
        )
    ]
    rows = list(enumerate(filters))
    words = [f"{' ' * (i % 3)}w{i % 45}{'xX'[i % 2] * (i % 4)}" for i in range(60)]
    events = pa.table({"note": [str(i) for i in range(61)], "a": [*words, None], "n": [i % 50 for i in range(61)]})
    source = frame(spark, events)
    counts = source.selectExpr(*(f"count_if({text}) AS f{i}" for i, text in rows)).first()
    expected = Counter({i: counts[i] for i, _ in rows if counts[i]})
    assert len(expected) > 100
    for strategy in ("event-space", "filter-set"):
        built = build(spark, tmp_path / strategy, strategy, rows, {"a": "string", "n": "integer"})
        found = found_pairs(ws.match(source, built.index), "note")
        assert Counter(id for _, id in found.elements()) == expected


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_random_trials_as_a_stream(spark: SparkSession, tmp_path: Path, strategy: str) -> None:
    """The same from a stream, in several batches."""
    trial: Trial = make_trial(random.Random(3), 40, 60)
    engine = Engine(trial.space.schema)
    rows = [(i, text(f)) for i, f in enumerate(trial.filters)]
    engine.subscribe_many(rows)
    events = events_table(trial.space, trial.events)
    events = events.append_column("__row__", pa.array(np.arange(len(events))))
    source = frame(spark, events)
    source.repartition(3).write.parquet(str(tmp_path / "in"))
    index = build(spark, tmp_path / "index", strategy, rows, trial.space.schema).index
    stream = spark.readStream.schema(source.schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    out, checkpoint = ws.Parquet(str(tmp_path / "out")), str(tmp_path / "checkpoint")
    ws.stream(stream, index, out, checkpoint, trigger={"availableNow": True}).awaitTermination()
    found = found_pairs(spark.read.parquet(str(tmp_path / "out")), "__row__")
    event_rows, ids = engine.match_batch(events).pairs()
    assert found == Counter(zip(event_rows.tolist(), ids.tolist(), strict=True))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_output_forms_tell_the_same(spark: SparkSession, built: Callable[[str], str], strategy: str) -> None:
    """Lists and counts hold one row per event, with what pairs hold; unmatched events on request."""
    index = built(strategy)
    events = frame(spark, EVENTS)
    expected = engine_pairs(SCHEMA, SUBSCRIPTIONS, EVENTS, "note")
    per_event = Counter(note for note, _ in expected)
    lists = ws.match(events, index, output="lists").collect()
    assert {(row.note, i): 1 for row in lists for i in row.subscriptions} == dict(expected)
    counts = ws.match(events, index, output="counts", unmatched=True).collect()
    assert {row.note: row.matches for row in counts} == {note: per_event[note] for note in "abcdefg"}
    assert {row.note for row in lists} == set(per_event)


@pytest.mark.parametrize("unmatched", [False, True], ids=["matched", "all"])
@pytest.mark.parametrize(("output", "name"), [("lists", "subscriptions"), ("counts", "matches")])
def test_plain_answers_equal_counted_ones(
    spark: SparkSession, built: Callable[[str], str], output: Literal["lists", "counts"], name: str, unmatched: bool
) -> None:
    """A list or count that is added to events as it is gives the rows and columns that one beside other answers gives, whatever its name."""
    index, names = built("broadcast"), {name: "what's `found`.here"}
    events = frame(spark, EVENTS)
    plain = ws.match(events, index, output=output, unmatched=unmatched, names=names)
    counted = ws.match(events, index, output=output, unmatched=unmatched, names=names, numbers=ws.Numbers())
    assert plain.columns == counted.columns == [*events.columns, "what's `found`.here"]
    assert plain.schema == counted.schema
    assert sorted(map(repr, plain.collect())) == sorted(map(repr, counted.collect()))
    assert plain.count() == (len(EVENTS) if unmatched else len(ws.match(events, index, output=output).collect()))


def test_subscribers_are_joined(spark: SparkSession, built: Callable[[str], str]) -> None:
    """The columns of a subscriber stand beside each pair."""
    index = built("broadcast")
    people = frame(spark, pa.table({"id": [1, 2, 3, 4, 5, 6], "mail": [f"{n}@example.org" for n in range(1, 7)]}))
    rows = ws.match(frame(spark, EVENTS), index, subscribers=people).collect()
    assert rows
    assert all(row.mail == f"{row.subscription}@example.org" for row in rows)


@pytest.mark.parametrize("strategy", ["broadcast", "event-space"])
def test_explanations(spark: SparkSession, built: Callable[[str], str], strategy: str) -> None:
    """Every pair can say why."""
    index = built(strategy)
    rows = ws.match(frame(spark, EVENTS), index, explain=True).collect()
    assert sum(engine_pairs(SCHEMA, SUBSCRIPTIONS, EVENTS, "note").values()) == len(rows)
    assert all("symbol" in row.explanation or "price" in row.explanation for row in rows)


@pytest.mark.parametrize("strategy", ["broadcast", "event-space"])
def test_string_ids(spark: SparkSession, tmp_path: Path, strategy: str) -> None:
    """Ids that are strings come back as strings."""
    rows = [(f"s{id}", filter) for id, filter in SUBSCRIPTIONS]
    build(spark, tmp_path, strategy, rows)
    found = found_pairs(ws.match(frame(spark, EVENTS), str(tmp_path)), "note")
    assert found == engine_pairs(SCHEMA, rows, EVENTS, "note")


@pytest.mark.parametrize("strategy", ["broadcast", "event-space"])
def test_bad_subscriptions_are_quarantined(spark: SparkSession, tmp_path: Path, strategy: str) -> None:
    """What cannot be registered comes back with its reason; the rest is registered."""
    rows = [*SUBSCRIPTIONS, (7, "prise < 1"), (8, None), (9, "price <"), (10, "price > 1"), (10, "price > 2")]
    built = build(spark, tmp_path, strategy, rows)
    reasons = {(row.id, row.filter): row.reason for row in built.quarantine.collect()}
    assert set(reasons) == {("7", "prise < 1"), ("8", None), ("9", "price <"), ("10", "price > 1"), ("10", "price > 2")}
    assert "did you mean" in reasons["7", "prise < 1"]
    assert "more than once" in reasons["10", "price > 1"]
    found = found_pairs(ws.match(frame(spark, EVENTS), str(tmp_path)), "note")
    assert found == engine_pairs(SCHEMA, SUBSCRIPTIONS, EVENTS, "note")


@pytest.mark.parametrize("strategy", ["broadcast", "event-space"])
def test_poison_events(spark: SparkSession, built: Callable[[str], str], strategy: str) -> None:
    """An event that does not fit is kept with its reason, left out, or fails the query: as asked."""
    index = built(strategy)
    poison = EVENTS.set_column(2, "volume", pa.array(["1", "2", "x", "1000", "5", "6", "7"]))
    events = frame(spark, poison)
    kept = ws.match(events, index, on_error="keep").collect()
    assert {row.note for row in kept if row.error} == set("abcdefg")
    assert all("volume" in row.error and row.subscription is None for row in kept)
    assert ws.match(events, index, on_error="skip").count() == 0
    with pytest.raises(ValueError, match="'raise', 'skip' or 'keep'"):
        ws.match(events, index, on_error="drop")
    with pytest.raises(Exception, match="volume"):
        ws.match(events, index).collect()


def test_the_schema_is_that_of_the_events(spark: SparkSession, tmp_path: Path) -> None:
    """A DataFrame, a StructType or a file of types will do; a column that cannot be used counts when a filter names it."""
    events = frame(spark, EVENTS).selectExpr("*", "CAST(price AS DECIMAL(9, 2)) AS amount", "map(price, 1) AS marks")
    rows = [*SUBSCRIPTIONS, (7, "amount > 1000000"), (8, "marks IS NULL")]
    path = tmp_path / "schema.json"
    path.write_text(Schema.of(SCHEMA | {"note": "string", "amount": "decimal(9,2)"}).to_json())
    assert Schema.of(events) == Schema.of(events.schema) == Schema.of(path) == Engine(events).schema
    built = build(spark, tmp_path / "index", "broadcast", rows, events)
    reasons = {row.id: row.reason for row in built.quarantine.collect()}
    assert list(reasons) == ["8"]
    assert "the keys of a map cannot be of type float" in reasons["8"]
    wanted = engine_pairs(SCHEMA, SUBSCRIPTIONS, EVENTS, "note")
    assert found_pairs(ws.match(events.drop("marks"), str(tmp_path / "index")), "note") == wanted


def test_widths_and_decimals(spark: SparkSession, tmp_path: Path) -> None:
    """The schema of a DataFrame keeps its widths, DECIMALs are numbers, and what does not fit is a dead letter."""
    from pyspark.sql.types import StructField, StructType

    narrow = spark.range(1).selectExpr(
        "'a' AS note", "127Y AS t", "32767S AS h", "2147483647 AS i", "0.1F AS f", "0.1D AS d", "5L AS n"
    )
    schema = Schema.from_spark(narrow.schema)
    assert [a.type_name for a in schema][1:] == ["tinyint", "smallint", "int", "real", "float", "integer"]
    assert schema.to_spark() == StructType([StructField(f.name, f.dataType) for f in narrow.schema])
    filters = {
        1: "i + 1 IS NULL AND i > 0",
        2: "t * 2 = 254",
        3: "t + t IS NULL",
        4: "f = 0.1",
        5: "f + f > 0.2",
        6: "n = 5 AND d = 0.1",
    }
    build(spark, tmp_path, "broadcast", list(filters.items()), schema)
    found = {row.subscription for row in ws.match(narrow, str(tmp_path)).collect()}
    theirs = {k: f.replace("i + 1", "try_add(i, 1)").replace("t + t", "try_add(t, t)") for k, f in filters.items()}
    assert found == {k for k, f in theirs.items() if narrow.where(f).count()} == {1, 2, 3, 5, 6}
    wide = spark.sql(
        "SELECT * FROM VALUES ('b', 300, 0.10BD, 5.00BD), ('c', 127, 0.10BD, 5.50BD), ('d', -128, 0.10BD, 5.00BD) AS e(note, t, d, n)"
    )
    rows = ws.match(wide, str(tmp_path), on_error="keep").collect()
    assert {(row.note, row.subscription) for row in rows if row.error is None} == {("d", 3), ("d", 6)}
    assert {row.note: row.error.partition(", ")[2] for row in rows if row.error} == {
        "b": "attribute 't': expected tinyint, got integer 300, which is outside 8 bits",
        "c": "attribute 'n': expected integer, got decimal 5.50",
    }


def test_missing_and_extra_columns(spark: SparkSession, built: Callable[[str], str]) -> None:
    """A column that the events lack is NULL, one that no filter asks for passes through."""
    index = built("broadcast")
    events = EVENTS.drop_columns(["price"])
    found = found_pairs(ws.match(frame(spark, events), index), "note")
    assert found == engine_pairs(SCHEMA, SUBSCRIPTIONS, events, "note")
    with pytest.raises(SchemaError, match="none of the attributes"):
        ws.match(frame(spark, EVENTS.select(["note"])), index)
    with pytest.raises(SchemaError, match="rename"):
        ws.match(frame(spark, EVENTS.append_column("subscription", EVENTS["volume"])), index)


def test_wrong_subscriptions_frame(spark: SparkSession, tmp_path: Path) -> None:
    """A frame without filters, or with ids that are no ids, is refused before any work."""
    with pytest.raises(SubscriptionError, match="'filter'"):
        ws.build_index(frame(spark, pa.table({"id": [1]})), SCHEMA, str(tmp_path))
    with pytest.raises(SubscriptionError, match="cast it"):
        ws.build_index(frame(spark, pa.table({"id": [1.5], "filter": ["price > 1"]})), SCHEMA, str(tmp_path))
    rows = pa.table({"id": [1], "filter": ["price > 1"], "priority": ["high"]})
    with pytest.raises(SubscriptionError, match="priorities are numbers"):
        ws.build_index(frame(spark, rows), SCHEMA, str(tmp_path))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_changes_make_versions(spark: SparkSession, tmp_path: Path, strategy: str) -> None:
    """Upserts and deletes hold from the next version on; older versions stay as they were; replays change nothing."""
    build(spark, tmp_path, strategy)
    changes = frame(
        spark,
        pa.table(
            {
                "sequence": [1, 2, 3, 4, 5],
                "op": ["upsert", "delete", "upsert", "upsert", "upsert"],
                "id": [7, 2, 1, 7, 8],
                "filter": ["price < 0", None, "symbol = 'D'", "symbol IN ('C', 'D')", "nonsense <"],
            }
        ),
    )
    applied = ws.apply_changes(changes, str(tmp_path))
    assert (applied.manifest.version, applied.changes) == (2, 3)
    assert applied.quarantine["id"].to_pylist() == ["8"]
    assert ws.apply_changes(changes, str(tmp_path)).manifest.version == 2
    after = [(1, "symbol = 'D'"), *SUBSCRIPTIONS[2:], (7, "symbol IN ('C', 'D')")]
    events = frame(spark, EVENTS)
    assert found_pairs(ws.match(events, str(tmp_path)), "note") == engine_pairs(SCHEMA, after, EVENTS, "note")
    before = ws.match(events, str(tmp_path), version=1)
    assert found_pairs(before, "note") == engine_pairs(SCHEMA, SUBSCRIPTIONS, EVENTS, "note")
    compacted = ws.compact(spark, str(tmp_path))
    assert (compacted.version, {len(layers) for layers in compacted.servers}) == (3, {1})
    assert found_pairs(ws.match(events, str(tmp_path)), "note") == engine_pairs(SCHEMA, after, EVENTS, "note")
    assert ws.compact(spark, str(tmp_path)).version == 3


def test_a_rebuild_does_not_undo_changes(spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is refused while the index has changes that the table does not have, unless it is told to start over."""
    build(spark, tmp_path, "broadcast")
    log = "sequence long, op string, id long, filter string"
    changes = spark.createDataFrame([(3, "upsert", 99, "price > 0"), (4, "upsert", 1, "price < 0")], log)
    after = ws.apply_changes(changes, str(tmp_path)).manifest
    for sequence in (0, 3):
        with pytest.raises(ws.IndexStoreError, match=f"changes up to 4, the table of subscriptions up to {sequence}"):
            build(spark, tmp_path, "broadcast", sequence=sequence)
    assert ws.Index(str(tmp_path)).read() == after
    assert build(spark, tmp_path, "broadcast", sequence=4).manifest.sequence == 4
    assert ws.apply_changes(changes, str(tmp_path)).replayed == 2
    started = build(spark, tmp_path, "broadcast", start_over=True).manifest
    assert (started.sequence, started.gaps, started.parent) == (0, (), 3)
    assert "build starts over: changes undone, sequence=0 before=4" in caplog.text
    assert ws.apply_changes(changes, str(tmp_path)).applied == 2
    with pytest.raises(SubscriptionError, match="sequence is -1"):
        build(spark, tmp_path, "broadcast", sequence=-1)


def test_rows_of_changes(spark: SparkSession, tmp_path: Path) -> None:
    """Every row is counted once, whatever is wrong with it; a column of the wrong type is refused as a whole."""
    build(spark, tmp_path, "broadcast")
    log = "sequence int, op string, id int, filter string, priority double"
    rows = [
        (2, "upsert", 7, "price > 0", 1.0),
        (2, "upsert", 7, "price > 0", 1.0),
        (4, "delete", 5, None, None),
        (None, "upsert", 8, "price > 0", None),
        (5, "upsert", None, "price > 0", None),
        (6, "merge", 8, "price > 0", None),
        (-1, "delete", 8, None, None),
    ]
    changes = spark.createDataFrame(rows, log)
    broken = changes.where("sequence = 4").selectExpr(
        "9 AS sequence", "'upsert' AS op", "10 AS id", "CAST(unhex('70FF') AS STRING) AS filter", "priority"
    )
    changes = changes.union(broken)
    first, again = ws.apply_changes(changes, str(tmp_path)), ws.apply_changes(changes, str(tmp_path))
    assert (first.applied, first.refused, first.late, first.replayed) == (2, 5, 0, 1)
    assert (again.applied, again.refused, again.late, again.replayed) == (0, 5, 0, 3)
    assert again.quarantine.sort_by("reason") == first.quarantine.sort_by("reason")
    assert "the filter is not valid UTF-8" in first.quarantine["reason"].to_pylist()
    assert (first.manifest.sequence, first.manifest.gaps) == (4, ((1, 1), (3, 3)))
    late = ws.apply_changes(spark.createDataFrame([(3, "delete", 1, None, None)], log), str(tmp_path))
    assert (late.applied, late.late, late.quarantine["sequence"].to_pylist()) == (0, 1, [3])
    for column, message in {"CAST(sequence AS string) AS sequence": "'sequence'", "'a' AS id": "'id'"}.items():
        name = column.rpartition(" ")[2]
        others = [c for c in changes.columns if c != name]
        with pytest.raises(SubscriptionError, match=f"the column {message} of the changes holds string"):
            ws.apply_changes(changes.selectExpr(column, *others), str(tmp_path))
    with pytest.raises(SubscriptionError, match="the column 'priority' holds string"):
        ws.apply_changes(changes.selectExpr(*changes.columns[:4], "'high' AS priority"), str(tmp_path))


def test_compaction_counts_the_plan_anew(spark: SparkSession, tmp_path: Path) -> None:
    """Events that only a removed subscription asked for are not sent any more."""
    build(spark, tmp_path, "event-space", [(1, "symbol = 'A'"), (2, "symbol = 'B'"), (3, "symbol = 'B' AND price > 5")])
    ws.apply_changes(
        spark.createDataFrame([(1, "delete", 1, None)], "sequence long, op string, id long, filter string"),
        str(tmp_path),
    )
    ws.compact(spark, str(tmp_path))
    index = ws.Index(str(tmp_path))
    plan = index.plan(index.read())
    assert plan.stats()["subscriptions"] == 2
    numbers = ws.Numbers()
    events = frame(spark, pa.table({"symbol": ["A", "B", "A"], "price": [1.0, 9.0, 2.0]}))
    assert ws.match(events, index, numbers=numbers).count() == 2
    assert {name: numbers.get()[name] for name in ("events", "sent", "dropped", "errors", "matches")} == {
        "events": 3,
        "sent": 1,
        "dropped": 2,
        "errors": 0,
        "matches": 2,
    }


#: Which events come as known to be bad: none, the first (whose answer tells what was counted), all.
KNOWN = {"none": "NULL", "the first": "IF(note = 'a', 'cannot be read', NULL)", "all": "'cannot be read'"}


@pytest.mark.parametrize("known", KNOWN)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_numbers_count_every_event_once(
    spark: SparkSession, built: Callable[[str], str], strategy: str, known: str
) -> None:
    """Tasks count in pieces, whatever the result keeps: good events, bad ones, matches; in empty partitions, too."""
    volumes = [*map(Decimal, EVENTS["volume"].to_pylist()), Decimal("2.5"), Decimal(3)]  # one does not fit
    others = pa.table({"symbol": ["A", "B"], "price": [1.0, 2.0], "note": ["h", "i"]})
    table = pa.concat_tables([EVENTS.drop_columns("volume"), others])
    rows = frame(spark, table.append_column("volume", pa.array(volumes, pa.decimal128(20, 2))))
    events = rows.selectExpr("*", f"{KNOWN[known]} AS __wherecast_error").repartition(4, "symbol")
    kept = ws.match(events, built(strategy), on_error="keep").collect()
    errors = sum(row.error is not None for row in kept)
    for on_error, output in (("keep", "pairs"), ("skip", "lists"), ("skip", "counts")):
        numbers = ws.Numbers()
        ws.match(events, built(strategy), on_error=on_error, output=output, numbers=numbers).collect()
        found = numbers.get()
        assert (found["events"], found["errors"], found["matches"]) == (9, errors, len(kept) - errors)
        assert (found["candidates"] > 0) == (known != "all")
        assert found["dropped"] <= 9 - errors <= found["sent"] + found["dropped"]
    assert errors == {"none": 1, "the first": 2, "all": 9}[known]


def test_cleaning_keeps_what_is_needed(spark: SparkSession, tmp_path: Path) -> None:
    """Versions go with the layers that only they name."""
    build(spark, tmp_path, "broadcast")
    build(spark, tmp_path, "broadcast")
    index = ws.Index(str(tmp_path))
    assert index.clean(keep=1, grace_s=0) == [1]
    assert index.versions() == [2]
    assert len(Store(str(tmp_path)).names("layers")) == 1
    assert ws.match(frame(spark, EVENTS), index).count() > 0
    with pytest.raises(ws.IndexStoreError, match="no version 1"):
        index.read(1)


@pytest.mark.parametrize("damage", ["flip", "remove", "truncate"])
def test_a_damaged_index_is_refused(
    spark: SparkSession, tmp_path: Path, built: Callable[[str], str], damage: str
) -> None:
    """Half an index is never matched against: the query fails and names the file."""
    shutil.copytree(built("broadcast"), tmp_path / "index")
    [file] = (tmp_path / "index" / "layers").glob("*/engine/v*/segment0.arrow")
    content = file.read_bytes()
    if damage == "remove":
        file.unlink()
    else:
        file.write_bytes(content[:100] if damage == "truncate" else content[:-9] + b"\xff" + content[-8:])
    with pytest.raises(Exception, match="cannot be read"):
        ws.match(frame(spark, EVENTS), str(tmp_path / "index")).collect()


def test_no_index(spark: SparkSession, tmp_path: Path) -> None:
    """A folder without an index says how to make one."""
    with pytest.raises(ws.IndexStoreError, match="build_index"):
        ws.match(frame(spark, EVENTS), str(tmp_path))
