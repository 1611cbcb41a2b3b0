"""Filter-set traffic, dispatcher cost, dictionary or Bloom, the tree: what their rows and claims say."""

import numpy as np
import pyarrow as pa
import pytest
from matplotlib.figure import Figure

from wherecast.bench.measure import WrongCountError
from wherecast.engine.engine import Engine
from wherecast.papers.edn.experiments import dictionary_or_bloom, dispatcher_cost, filter_set_traffic, hierarchy
from wherecast.papers.edn.experiments.spread import N_EVENTS, prepare
from wherecast.papers.edn.places import make_places
from wherecast.papers.edn.workload import PAPER_MARKET
from wherecast.papers.lab.experiment import load_experiment
from wherecast.papers.lab.rows import choose, group, numbers
from wherecast.partition.protocol import Routes

pytestmark = pytest.mark.slow

SCALE = 0.002
DRAWN = ("edn-filter-set-traffic", "edn-dispatcher-cost", "edn-dictionary-or-bloom", "edn-hierarchy")


def silent(_):
    """Progress that nobody watches."""


@pytest.fixture(scope="module")
def traffic():
    return filter_set_traffic.run(
        filter_set_traffic.FilterSetTrafficSettings(("places", "range"), SCALE, servers=(3, 8), boxes=(1, 4)), silent
    )


@pytest.fixture(scope="module")
def costs():
    settings = dispatcher_cost.DispatcherCostSettings(
        PAPER_MARKET.scaled(0.02), 5, "places", SCALE, 500, (1, 500), rounds=1
    )
    return dispatcher_cost.run(settings, silent)


@pytest.fixture(scope="module")
def summaries():
    settings = dictionary_or_bloom.DictionaryOrBloomSettings(symbols=(100, 2000), n_events=1000, rounds=1)
    return dictionary_or_bloom.run(settings, silent)


@pytest.fixture(scope="module")
def tree():
    return hierarchy.run(hierarchy.HierarchySettings(("places",), SCALE, n_servers=6, fanout=3, boxes=(1, 8)), silent)


# -- who needs which event --------------------------------------------------------------------------------------------


def test_what_is_needed_is_what_the_engine_matches():
    """The pairs of event and server, from a filter-by-filter placement, equal those of an engine on the same events."""
    workload = make_places(int(300_000 * SCALE), 2 * N_EVENTS)
    spread = prepare("places", SCALE)
    servers = (np.arange(spread.filters.n_filters) % 3).astype(np.int32)
    engine = Engine(workload.schema)
    texts = workload.filter_texts()
    assert len(set(texts)) == spread.filters.n_filters == len(texts), "no filter comes twice: ids are filters"
    engine.subscribe_many(pa.table({"id": np.arange(len(texts)), "filter": texts}))
    lists = engine.match_batch(workload.event_batch().slice(N_EVENTS, N_EVENTS)).to_lists()
    expected = {(event, int(servers[f])) for event, ids in enumerate(lists) for f in ids}
    needed = spread.needed(servers, 3)
    assert expected
    assert set(zip(needed.event_ids.tolist(), needed.servers.tolist(), strict=True)) == expected
    assert needed.servers.size == len(expected)


@pytest.mark.parametrize("name", ["places", "range", "stock"])
def test_the_sample_and_the_counted_events_are_others(name):
    """As many as are wanted of both, whatever the workload has of its own."""
    spread = prepare(name, SCALE)
    assert len(spread.events) == N_EVENTS
    assert 0 < len(spread.sample) <= N_EVENTS
    assert spread.weights.sum() == int({"places": 300_000, "range": 500_000, "stock": 1_480_000}[name] * SCALE)


# -- rows -------------------------------------------------------------------------------------------------------------


def test_nobody_receives_less_than_exact_routing_sends_or_more_than_flooding(traffic):
    """In both placements; the saving is what the two columns say."""
    assert len(traffic) == 2 * 2 * 2
    for row in traffic:
        assert row["exact"] <= row["sent"] <= row["servers"]
        assert row["exact_random"] <= row["sent_random"] <= row["servers"]
        assert row["cut_percent"] == pytest.approx(100 * (1 - row["sent"] / row["sent_random"]))
        assert row["lost"] == 0
    assert numbers(choose(traffic, workload="places"), "cut_percent").min() > 0


def test_a_missing_pair_is_counted():
    """One of two that are needed."""
    needed = Routes(np.array([0, 1]), np.array([2, 0], np.int32))
    routes = Routes(np.array([0, 1]), np.array([2, 1], np.int32))
    assert filter_set_traffic._count_missing(needed, routes, 3) == 1
    assert filter_set_traffic._count_missing(needed, needed, 3) == 0


def test_every_way_is_timed_at_every_batch_and_sends_enough(costs):
    """The exact ones send nothing in vain."""
    assert {row["way"] for row in costs} == {"bloom", "dictionary", "boxes", dispatcher_cost.PYTHON}
    assert len(costs) == 4 * 2
    assert (numbers(costs, "us_per_event") > 0).all()
    by_way = {way: own[0] for way, own in group(costs, "way")}
    assert by_way["dictionary"]["in_vain_percent"] == by_way[dispatcher_cost.PYTHON]["in_vain_percent"] == 0
    assert 0 <= by_way["bloom"]["in_vain_percent"] < 5
    assert by_way["bloom"]["servers_per_event"] >= by_way["dictionary"]["servers_per_event"] > 0.4
    assert by_way["bloom"]["dispatcher_bytes"] < by_way["dictionary"]["dispatcher_bytes"]


@pytest.mark.parametrize(
    ("kind", "reached"),
    [("bloom", [0, 0, 1]), ("bloom", [1]), ("dictionary", [0, 1, 2])],
    ids=["twice", "dropped", "in vain"],
)
def test_a_way_that_routes_wrongly_is_not_timed(kind, reached):
    """Events 0 and 1 are asked for, event 2 is not."""
    routes = Routes(np.array(reached), np.zeros(len(reached), np.int32))
    with pytest.raises(WrongCountError, match="nothing is timed"):
        dispatcher_cost._check_reached(kind, np.array([True, True, False]), routes)


def test_summaries_pass_what_is_wanted_and_the_dictionary_nothing_else(summaries):
    """55 % of the events, and for Bloom filters few more; messages are bounded by the link."""
    for row in summaries:
        assert row["passed_percent"] > 54.99
        assert row["messages_per_s"] <= 1e6 / 55 + 1e-6
        if row["way"] != "bloom":
            assert row["passed_percent"] == pytest.approx(55)
            assert row["false_positive_percent"] == 0
    assert numbers(choose(summaries, way="bloom"), "false_positive_percent").max() < 5
    for _, own in group(summaries, "symbols"):
        sizes = {row["way"]: row["bytes"] for row in own}
        assert sizes["bloom"] < sizes["dictionary"]


def test_the_processor_or_the_link_bounds_the_messages():
    """Whichever takes longer."""
    wanted = np.array([True] * 55 + [False] * 45)
    assert dictionary_or_bloom._row(1, "bloom", 4.0, 1, 1, wanted, wanted)["messages_per_s"] == pytest.approx(
        18_181.8, abs=0.1
    )
    assert dictionary_or_bloom._row(1, "dictionary", 653.0, 1, 1, wanted, wanted)["messages_per_s"] == pytest.approx(
        1_531.4, abs=0.1
    )


def test_links_carry_what_is_needed_and_no_more_than_flooding(tree):
    """At both levels, for every pair of precisions; finer summaries are larger and let less through."""
    assert len(tree) == 4 * 2
    assert (numbers(tree, "needed") <= numbers(tree, "sent")).all()
    assert (numbers(tree, "sent") <= numbers(tree, "flooded")).all()
    assert not numbers(tree, "lost").any()
    assert set(numbers(choose(tree, links_to="servers"), "links")) == {6}
    assert set(numbers(choose(tree, links_to="regions"), "links")) == {2}
    coarse = choose(tree, server_boxes=1, region_boxes=1, links_to="servers")[0]
    fine = choose(tree, server_boxes=8, region_boxes=8, links_to="servers")[0]
    assert fine["sent"] <= coarse["sent"]
    assert fine["nbytes"] > coarse["nbytes"]


# -- claims and drawings ----------------------------------------------------------------------------------------------


def traffic_rows(cuts, false_positives, lost):
    shared = {"workload": "range", "servers": 4, "lost": lost}
    return [
        {**shared, "boxes": boxes, "cut_percent": cut, "false_positive_percent": wrong}
        for boxes, cut, wrong in zip((1, 10), cuts, false_positives, strict=True)
    ]


def cost_rows(us):
    return [{"way": way, "batch": batch, "us_per_event": us} for way in ("bloom", "boxes") for batch in (1, 1000)]


def summary_rows(bloom, dictionary, searched, wrong):
    times = {"bloom": bloom, "dictionary": dictionary, "list": searched}
    return [
        {"symbols": 100_000, "way": way, "us_per_event": us, "passed_percent": 55.0, "false_positive_percent": wrong, "messages_per_s": 1e6 / max(us, 55)}
        for way, us in times.items()
    ]  # fmt: skip


def tree_rows(sent, lost):
    return [
        {"workload": "places", "server_boxes": b, "region_boxes": b, "links_to": "servers", "sent": s, "flooded": 100, "needed": 1, "nbytes": b, "sent_percent": s, "lost": lost}
        for b, s in zip((1, 8), sent, strict=True)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("module", "rows", "holds"),
    [
        (filter_set_traffic, traffic_rows((10, 25), (5, 4), 0), [True, True, True]),
        (filter_set_traffic, traffic_rows((30, 19), (4, 5), 1), [False, False, False]),
        (dispatcher_cost, cost_rows(2.9), [True, True, True]),
        (dispatcher_cost, cost_rows(3.3), [True, False, True]),
        (dispatcher_cost, cost_rows(101), [False, False, False]),
        (dictionary_or_bloom, summary_rows(4, 653, 653, 0.1), [True, True, True, True, True]),
        (dictionary_or_bloom, summary_rows(5, 1, 500, 2), [False, False, False, False, False]),
        (hierarchy, tree_rows((40, 30), 0), [True, True, True]),
        (hierarchy, tree_rows((40, 60), 2), [False, False, False]),
    ],
)
def test_claims_tell_good_figures_from_bad(module, rows, holds):
    """Made-up rows on either side of the paper's figures."""
    assert [finding.holds for _, finding in module.EXPERIMENT.judge(rows)] == holds


@pytest.mark.parametrize("name", DRAWN)
def test_every_drawing_has_labelled_axes_and_a_legend(request, name):
    """The further ones too."""
    fixtures = dict(zip(DRAWN, ("traffic", "costs", "summaries", "tree"), strict=True))
    rows, experiment = request.getfixturevalue(fixtures[name]), load_experiment(name)
    if name == "edn-filter-set-traffic":  # it is drawn at the product's own precision
        rows = [{**row, "boxes": 10 if row["boxes"] == 4 else row["boxes"]} for row in rows]
    for drawing in experiment.drawings:
        axes = Figure().add_subplot()
        drawing.plot(rows, axes)
        assert axes.get_xlabel()
        assert axes.get_ylabel()
        assert axes.get_legend_handles_labels()[1]
        assert axes.lines
