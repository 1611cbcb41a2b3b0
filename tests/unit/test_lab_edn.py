"""The experiments on the Event Distribution Network at their small scale, and the simulation they stand on."""

import json

import numpy as np
import pytest
from matplotlib.figure import Figure

from wherecast.papers.edn.experiments import (
    bend,
    bloom,
    growth,
    models,
    overpartitioning,
    popularity,
    rebalancing,
    servers,
)
from wherecast.papers.edn.experiments.network import Network
from wherecast.papers.edn.workload import PAPER_MARKET
from wherecast.papers.lab.experiment import EXPERIMENTS, Claim, Experiment, LabError, load_experiment, show_spread
from wherecast.papers.lab.plots import save_plot
from wherecast.papers.lab.rows import choose, group, levels, numbers
from wherecast.partition.balance import Moves, server_loads

pytestmark = pytest.mark.slow

EDN = [name for name in EXPERIMENTS if name.startswith("edn-")]
SMALL = PAPER_MARKET.scaled(0.02)


def silent(_):
    """Progress that nobody watches."""


@pytest.fixture(scope="module")
def found():
    """Rows of every experiment at its small scale."""
    loaded = {name: load_experiment(name) for name in EDN}
    return {name: experiment.run(experiment.at("small"), silent) for name, experiment in loaded.items()}


@pytest.mark.parametrize("name", EDN)
def test_rows_are_flat_and_alike(found, name):
    """Every row has the same columns, of JSON's scalar types; JSON gives them back as they were."""
    rows = found[name]
    assert len({tuple(row) for row in rows}) == 1
    assert json.loads(json.dumps(rows)) == rows


@pytest.mark.parametrize("name", EDN)
def test_every_claim_can_be_judged(found, name):
    """A claim names its experiment; its finding is a figure and a truth value."""
    experiment = load_experiment(name)
    assert experiment.name == name
    for claim, finding in experiment.judge(found[name]):
        assert claim.name == name
        assert isinstance(finding.ours, str | float)
        assert isinstance(finding.holds, bool)


@pytest.mark.parametrize("name", EDN)
def test_every_experiment_is_drawn_on_labelled_axes(found, name):
    """Both axes say what they show."""
    axes = Figure().add_subplot()
    load_experiment(name).plot(found[name], axes)
    assert axes.get_xlabel()
    assert axes.get_ylabel()
    assert axes.get_legend_handles_labels()[1]


def test_a_plot_is_saved_as_its_suffix_says(found, tmp_path):
    """PNG and SVG, with the title of the experiment."""
    experiment = load_experiment("edn-popularity")
    for suffix, start in ((".png", b"\x89PNG"), (".svg", b"<?xml")):
        save_plot(experiment, found["edn-popularity"], tmp_path / f"plot{suffix}")
        assert (tmp_path / f"plot{suffix}").read_bytes().startswith(start)


def test_an_unknown_experiment_or_scale_is_refused_with_those_there_are():
    """The messages list them."""
    with pytest.raises(LabError, match="no experiment 'edn-9'; there are: edn-popularity"):
        load_experiment("edn-9")
    with pytest.raises(LabError, match="edn-bloom has no scale 'large'; there are: small, paper"):
        load_experiment("edn-bloom").at("large")


def test_claims_are_judged_on_the_rows_given():
    """The predicate sees the rows of the run, nothing else."""
    claim = Claim("p", "e", "Rows are many.", "2", lambda rows: (float(len(rows)), len(rows) > 1))
    experiment = Experiment("e", "p", "t", {}, lambda settings, progress: [], (claim,), lambda rows, axes: None)
    assert experiment.judge([{"a": 1}]) == [(claim, (1.0, False))]
    assert experiment.judge([{"a": 1}, {"a": 2}]) == [(claim, (2.0, True))]


def test_rows_are_chosen_grouped_and_read_by_column():
    """Also with a cell that no row has."""
    rows = [{"a": 1, "b": 2}, {"a": 2, "b": 3}, {"a": 1, "b": 5}]
    assert choose(rows, a=1) == [rows[0], rows[2]]
    assert choose(rows, a=1, b=9) == []
    assert levels(rows, "a") == [1, 2]
    assert numbers(rows, "b").tolist() == [2.0, 3.0, 5.0]
    assert dict(group(rows, "a")) == {1: [rows[0], rows[2]], 2: [rows[1]]}
    assert show_spread(numbers(rows, "b"), " %") == "3 % (2 to 5)"


def test_the_network_weighs_buckets_as_the_paper_does():
    """Distinct symbols times subscriptions, recomputed symbol by symbol."""
    network = Network(SMALL, 4, 3, seed=1)
    symbols, subscriptions = np.zeros(12), np.zeros(12)
    for bucket, count in zip(network.buckets, network.subscriptions, strict=True):
        symbols[bucket] += count > 0
        subscriptions[bucket] += count
    assert (network.weights() == symbols * subscriptions).all()
    assert (network.loads() == server_loads(symbols * subscriptions, network.table, 4)).all()


def test_what_migrates_is_the_share_of_the_moved_buckets():
    """Here of bucket 5 alone."""
    network = Network(SMALL, 4, 3, seed=1)
    source = network.table[5]
    target = (source + 1) % 4
    moved = network.move(Moves(*(np.array([x]) for x in (5, source, target))))
    share = network.subscriptions[network.buckets == 5].sum() / network.subscriptions.sum()
    assert moved == {"buckets_moved": 1, "migrated_percent": pytest.approx(100 * share)}
    assert network.table[5] == target


def test_each_continuation_starts_from_the_same_network(found):
    """The imbalance at nought new subscriptions is that of the offline assignment, whatever comes after."""
    for _, own in group(choose(found["edn-growth"], new=0), "seed"):
        assert len(set(numbers(own, "imbalance"))) == 1
    assert levels(found["edn-growth"], "new") == [i * 1_000_000 for i in range(6)]


def test_the_same_seeds_give_the_same_rows():
    """And other seeds others."""
    settings = growth.GrowthSettings(market=SMALL, seeds=2, n_new=10_000, steps=2)
    rows = growth.run(settings, silent)
    assert rows == growth.run(settings, silent)
    one, two = (numbers(own, "imbalance").tolist() for _, own in group(rows, "seed"))
    assert one != two


def test_without_rebalancing_the_imbalance_is_that_of_figure_5():
    """A threshold that is never passed moves nothing; a low one lowers the imbalance at every step it is passed."""
    calm = rebalancing.RebalancingSettings(market=SMALL, seeds=1, threshold=1e9, n_new=1_000_000, steps=4)
    rows = rebalancing.run(calm, silent)
    assert not numbers(rows, "buckets_moved").any()
    assert (numbers(rows, "before") == numbers(rows, "imbalance")).all()
    eager = rebalancing.RebalancingSettings(market=SMALL, seeds=1, threshold=1.1, n_new=1_000_000, steps=4)
    moved = [row for row in rebalancing.run(eager, silent) if row["buckets_moved"]]
    assert moved
    assert (numbers(moved, "imbalance") < numbers(moved, "before")).all()


def test_bloom_filters_lose_nothing_and_more_bits_let_less_through(found):
    """What is saved, wanted and wrongly passed adds up to all events."""
    rows = found["edn-bloom"]
    assert not numbers(rows, "lost").any()
    parts = [numbers(rows, name) for name in ("wanted_percent", "false_positive_percent", "traffic_cut_percent")]
    assert sum(parts) == pytest.approx(100)
    by_bits = [numbers(own, "false_positive_percent").mean() for _, own in group(rows, "bits")]
    assert by_bits == sorted(by_bits, reverse=True)
    sizes = [numbers(own, "dispatcher_kb").mean() for _, own in group(rows, "bits")]
    assert sizes == sorted(sizes)


def test_servers_join_and_leave_one_at_a_time():
    """Three up, three down, on a network that ends with as many as it began with."""
    rows = servers.run(servers.ServersSettings(market=SMALL, n_servers=5, seeds=1, changes=3), silent)
    assert [row["servers"] for row in rows] == [6, 7, 8, 7, 6, 5]
    assert np.isfinite(numbers(rows, "imbalance")).all()


def test_the_fitted_bend_is_the_one_nearest_to_the_paper():
    """The distance is nought where the medians are the paper's figures, and log 2 where they are twice as large."""
    exact = [{"continuation": n, "new": 1, "imbalance": x} for n, x in growth.PAPER_FIGURES.items()]
    double = [{**row, "imbalance": 2 * row["imbalance"]} for row in exact]
    rows = [{"bend": 1.0, **row} for row in exact] + [{"bend": 2.0, **row} for row in double]
    assert bend.distances(rows) == pytest.approx({1.0: 0.0, 2.0: np.log(2)})


@pytest.mark.parametrize(
    ("module", "rows", "holds"),
    [
        (overpartitioning, [{"servers": 50, "ratio": r, "imbalance": x} for r, x in ((1, 5), (10, 1.1), (20, 1.1))], [True] * 3),
        (overpartitioning, [{"servers": 50, "ratio": r, "imbalance": x} for r, x in ((1, 2), (10, 1.9), (20, 1.1))], [False] * 3),
        (bloom, [{"bits": bloom.BITS_PER_SIGNATURE, "false_positive_percent": 2.0, "traffic_cut_percent": 48.0, "lost": 1, "server_kb": 5.0, "dispatcher_kb": 300.0}], [False] * 5),
    ],
)  # fmt: skip
def test_claims_tell_good_figures_from_bad(module, rows, holds):
    """Made-up rows on either side of the paper's figures."""
    assert [finding.holds for _, finding in module.EXPERIMENT.judge(rows)] == holds


def test_a_straight_line_has_the_slope_it_was_drawn_with():
    """The fit looks at the middle only: the ends may bend."""
    ranks = [1, 10, 100, 200, 500, 1000, 3000, 20_000]
    rows = [{"seed": 0, "rank": r, "subscriptions": 1e6 * r**-1.07 if 100 <= r <= 3000 else 1.0} for r in ranks]
    assert popularity.fit_line(rows) == pytest.approx((-1.07, np.log(1e6)))
    assert [finding.holds for _, finding in popularity.EXPERIMENT.judge(rows)] == [True, True, True]


def test_six_models_in_one_index(found):
    """Each kind finds what the naive evaluator finds, and something; what all find together is the sum."""
    for _, rows in group(found["edn-models"], "subscriptions_per_kind"):
        by_set = {row["kinds"]: row["matches_per_event"] for row in rows}
        alone = [by_set[kind] for kind in models.KINDS]
        assert by_set[models.ALL] == pytest.approx(sum(alone))
    assert all(alone)  # of the larger size
    assert not numbers(found["edn-models"], "wrong").any()
    assert max(numbers(found["edn-models"], "checked_events")) > 0
