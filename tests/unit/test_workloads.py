"""The catalogue: every workload by name, the same wherever it is asked for, and in truth what it says."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from wherecast.bench.workloads import frames, reference
from wherecast.bench.workloads.catalogue import catalogue, find_entry, make_workload, open_source
from wherecast.bench.workloads.form import WorkloadError
from wherecast.cli.app import app
from wherecast.engine.engine import Engine
from wherecast.language.events.schema import Schema
from wherecast.language.filters.compile import Compiler
from wherecast.overlay.placement import RingPlacement
from wherecast.overlay.settings import RingSettings
from wherecast.papers.chord.churn import SCHEMA as OVERLAY_SCHEMA
from wherecast.papers.edn.quotes import Quotes, make_continuation, market_of
from wherecast.papers.edn.workload import CONTINUATIONS, PAPER_MARKET, make_market
from wherecast.papers.gryphon.workload import Simulation
from wherecast.papers.rapidmatch.workload import draw_light
from wherecast.papers.topss.workload import SPECIFICATIONS

CATALOGUE = catalogue()
IN_PARTS = [name for name, entry in CATALOGUE.items() if entry.source]
SMALL = 0.002


def same(one, two):
    """Whether two workloads are the same but for their name."""
    arrays = zip([*one.predicates, one.events], [*two.predicates, two.events], strict=True)
    return one.schema == two.schema and all(np.array_equal(a, b) for a, b in arrays)


def run(*arguments):
    """What a command prints."""
    result = CliRunner().invoke(app, ["bench", "workloads", *map(str, arguments)])
    return result.exit_code, result.output


# -- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.sampled
@pytest.mark.parametrize("name", CATALOGUE)
def test_a_name_gives_the_same_workload_every_time(name):
    """Of the size asked for, with events, under its own name."""
    one, two = (make_workload(name, SMALL) for _ in range(2))
    assert same(one, two)
    assert one.name == name
    assert len(one) == int(CATALOGUE[name].size * SMALL)
    assert len(one.events)


@pytest.mark.parametrize(
    "name", [name if name in ("stock", "gryphon") else pytest.param(name, marks=pytest.mark.slow) for name in CATALOGUE]
)
def test_the_engine_finds_what_brute_force_finds(name):
    """Texts, schema and Arrow events say what the numbers say."""
    workload = make_workload(name, SMALL)
    engine = Engine(Schema.of(workload.schema))
    engine.subscribe_many(workload.subscription_table())
    truth = workload.truth()
    assert engine.count(workload.event_batch())[: truth.counts.size].tolist() == truth.counts.tolist()


@pytest.mark.sampled
@pytest.mark.parametrize("name", reference.SOURCES)
@pytest.mark.parametrize("scale", [0.0013, 0.002])
def test_the_reference_workloads_are_the_reference(name, scale):
    """At any scale, subscription by subscription."""
    assert same(make_workload(name, scale), reference.make_workload(name, scale))


def test_the_papers_workloads_are_those_of_their_modules():
    """The catalogue adds nothing but a name."""
    assert same(make_workload("topss-w3", 0.001), SPECIFICATIONS["W3"].make(100))
    assert same(make_workload("gryphon-simulation", 0.001), Simulation().workload(100))
    light = draw_light(100, a=2.0, c=100, k=100, n_events=2000, seed=0)
    assert same(make_workload("rapidmatch-light", 0.001), light.workload(""))
    market = PAPER_MARKET.scaled(0.01)
    assert same(make_workload("edn", 0.01), make_market(market, 5))
    assert {f"edn-{name}" for name in CONTINUATIONS} < set(CATALOGUE)


def test_parameters_follow_the_name():
    """They change what they name, and are checked."""
    entry, parameters = find_entry("rapidmatch-light,a=1,k=50,c=20")
    assert (entry.name, parameters["a"], parameters["k"]) == ("rapidmatch-light", 1.0, 50)
    assert parameters["events"] == 2000
    workload = make_workload("rapidmatch-light,a=1,k=50,c=20,events=30,seed=3", 0.001)
    assert workload.name == "rapidmatch-light,a=1,k=50,c=20,events=30,seed=3"
    assert workload.events.shape == (30, 50)
    assert same(workload, draw_light(100, a=1.0, c=20, k=50, n_events=30, seed=3).workload(""))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("stocks", "no workload 'stocks'; there are: topss, stock,"),
        ("stock,seed=1", "'stock' has no parameter 'seed'; there are: none"),
        ("edn,bent=1", "'edn' has no parameter 'bent'; there are: slope, bend, events, seed"),
        ("edn,events=many", "events is 'many', not a whole number; write events=20000"),
        ("edn,bend=", "bend is '', not a number; write bend=13.0"),
    ],
)
def test_a_wrong_name_is_refused_with_those_there_are(name, message):
    """The message says what may be written instead."""
    with pytest.raises(WorkloadError, match=message):
        make_workload(name, SMALL)


def test_a_scale_that_leaves_nothing_is_refused():
    """As is a workload in parts that has none."""
    with pytest.raises(WorkloadError, match="use a larger scale"):
        make_workload("places", 1e-5)
    with pytest.raises(WorkloadError, match="'topss-w0' is drawn as a whole, not in parts; those in parts are: topss,"):
        open_source("topss-w0")


# -- quotes and the overlay -------------------------------------------------------------------------------------------


def test_drawn_one_by_one_subscriptions_ask_for_filters_of_the_market():
    """Every text is one of the market's own, and in time all of them come."""
    market = market_of(3000)
    known = set(make_market(market, 5).filter_texts())
    quotes = Quotes(market)
    workload = make_market(market, 5, 1)
    drawn = set(workload.filter_texts(quotes.filters(np.random.default_rng(1), 60_000)))
    assert drawn <= known
    assert len(drawn) > 0.99 * len(known)


@pytest.mark.parametrize("follows", CONTINUATIONS)
def test_new_subscriptions_follow_their_continuation(follows):
    """By symbol as often as its chance says, within the error of counting; never where it says never."""
    market = market_of(3000)
    chances = Quotes(market, follows).chances
    n = 200_000
    workload = make_continuation(follows, market, n, 10)
    found = np.bincount(workload.predicates.value[::2].astype(int), minlength=market.symbols)
    assert not found[chances == 0].any()
    errors = (found - n * chances)[chances > 0] / np.sqrt(n * chances[chances > 0])
    assert np.abs(errors).max() < 6
    assert errors.std() == pytest.approx(1, abs=0.25)


def test_a_new_subscription_brings_at_most_one_new_filter_per_symbol():
    """A symbol that nobody asked for gets its first."""
    market = market_of(3000)
    known = set(make_market(market, 5).filter_texts())
    new = set(make_continuation("uniform", market, 50_000, 10).filter_texts()) - known
    symbols = [text.split(" AND ")[0] for text in new]
    assert len(symbols) == len(set(symbols)) == market.symbols


def test_a_market_has_the_subscriptions_asked_for():
    """Also where rounding a scale would lose one."""
    for n in (1000, 12_345, 1_480_000, 1_480_001):
        assert market_of(n).subscriptions == n
    assert market_of(1_480_000) == PAPER_MARKET


def test_the_overlay_takes_every_one_of_its_filters():
    """They have a place on the ring under the schema with bounds, which has the same attributes."""
    workload = make_workload("overlay", 0.01)
    assert list(workload.schema) == [a.name for a in OVERLAY_SCHEMA.attributes]
    compiled = Compiler(OVERLAY_SCHEMA).compile_many(workload.filter_texts())
    assert (compiled.filter_of >= 0).all()
    values = workload.predicates.value[workload.predicates.attr == 1]
    assert values.min() >= 0
    assert values.max() <= 1000
    assert {len(text.split(" AND ")) for text in workload.filter_texts()} == {1, 2, 3, 4, 5}
    placement = RingPlacement(OVERLAY_SCHEMA, RingSettings())
    for number in range(compiled.filters.n_filters):
        assert all(placement.clauses(compiled.filters, number))


# -- in parts ---------------------------------------------------------------------------------------------------------


def batches(first, end, size):
    """Ids as Spark hands them over."""
    for start in range(first, end, size):
        yield pa.record_batch({"id": np.arange(start, min(start + size, end))})


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_PARTS)
def test_filters_in_parts_compile_and_are_the_workloads(name):
    """Every one is a filter of the workload's schema."""
    texts = frames.draw_block(name, 3).to_pylist()
    assert len(texts) == frames.BLOCK
    schema = Schema.of(make_workload(name, SMALL).schema)
    assert (Compiler(schema).compile_many(texts[:500]).filter_of >= 0).all()


@pytest.mark.slow
def test_a_subscription_depends_on_its_id_alone():
    """Whatever the batches and wherever a partition begins, across the borders of blocks."""
    end = 2 * frames.BLOCK + 100
    whole = pa.Table.from_batches(frames.draw_rows("edn", batches(0, end, 10_000)))
    assert whole["id"].to_pylist() == list(range(end))
    first = frames.BLOCK - 7
    part = pa.Table.from_batches(frames.draw_rows("edn", batches(first, end, 50_000)))
    assert part.equals(whole.slice(first))
    assert whole["filter"][0] != whole["filter"][frames.BLOCK]


def test_another_name_gives_other_filters():
    """And so do other parameters."""
    first = {name: frames.draw_block(name, 0) for name in ("edn", "edn-uniform", "edn,seed=6")}
    assert first["edn"] != first["edn-uniform"]
    assert first["edn"] != first["edn,seed=6"]


# -- the command ------------------------------------------------------------------------------------------------------


def test_the_command_lists_the_catalogue():
    """Every name, with its parameters."""
    code, output = run()
    assert code == 0
    names = [line.split()[0] for line in output.splitlines()[1:] if not line.startswith(" ")]
    assert names == list(CATALOGUE)
    assert "bend=13" in output


def test_the_command_writes_parquet_with_the_truth(tmp_path):
    """What is read back is the workload; the folder has the name as given."""
    name = "edn-uniform,events=60"
    code, _ = run("--out", tmp_path, name, "--scale", 0.001)
    assert code == 0
    workload, folder = make_workload(name, 0.001), tmp_path / name
    assert pq.read_table(folder / "subscriptions.parquet").equals(workload.subscription_table())
    assert pq.read_table(folder / "events.parquet").equals(pa.Table.from_batches([workload.event_batch()]))
    assert json.loads((folder / "schema.json").read_text()) == workload.schema
    assert json.loads((folder / "truth.json").read_text())["counts"] == workload.truth().counts.tolist()


def test_a_wrong_name_writes_nothing(tmp_path):
    """Not even the right ones before it."""
    code, _ = run("--out", tmp_path, "gryphon", "grifon", "--scale", 0.001)
    assert code != 0
    assert not any(tmp_path.iterdir())
