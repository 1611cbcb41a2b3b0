import numpy as np
import pytest

from wherecast import Engine, Schema
from wherecast.bench.workloads.form import WorkloadError
from wherecast.papers.edn.workload import CONTINUATIONS, Market, continuation, count_subscriptions, make_market


def slope(counts, first, last):
    """Slope of counts over rank between two ranks, both as logarithms."""
    rank = np.arange(first, last + 1)
    return np.polyfit(np.log(rank), np.log(counts[rank - 1]), 1)[0]


@pytest.fixture(scope="module")
def counts():
    return count_subscriptions(Market(), np.random.default_rng(1))


def test_the_market_has_the_sizes_of_the_paper(counts):
    """1.48 million subscriptions with 0.29 million filters on 21,741 of 43,734 symbols."""
    assert counts.subscriptions.sum() == 1_480_000
    assert counts.filters.sum() == 290_000
    assert np.count_nonzero(counts.subscriptions) == 21_741
    assert counts.subscriptions.size == 43_734


def test_a_symbol_has_at_least_one_filter_and_no_more_than_subscriptions(counts):
    """And none where nobody subscribed."""
    asked = counts.subscriptions > 0
    assert (counts.filters[asked] >= 1).all()
    assert (counts.filters <= counts.subscriptions).all()


def test_popularity_is_straight_in_the_middle_and_bends_at_both_ends(counts):
    """Slope -1.07 between ranks 30 and 3,000, flatter before, steeper after."""
    ordered = np.sort(counts.subscriptions)[::-1]
    assert slope(ordered, 30, 3000) == pytest.approx(-1.07, abs=0.03)
    assert slope(ordered, 1, 10) > -0.6
    assert slope(ordered, 10_000, 21_000) < -1.5


@pytest.mark.parametrize("name", CONTINUATIONS)
def test_a_continuation_is_a_distribution_over_all_symbols(name):
    """The same seed gives the same one."""
    one, two = (continuation(name, Market(), np.random.default_rng(3)) for _ in range(2))
    assert one.shape == (43_734,)
    assert one.sum() == pytest.approx(1)
    assert (one >= 0).all()
    assert (one == two).all()


def test_each_continuation_departs_from_the_anticipated_one_as_it_says():
    """Perturbed within 100 %, permuted within chunks, nothing new in the actual one."""
    market = Market()
    chances = {name: continuation(name, market, np.random.default_rng(3)) for name in CONTINUATIONS}
    anticipated = chances["anticipated"]
    ratio = chances["perturb100"] / anticipated
    assert ratio.max() < 2.1
    assert ratio.std() > 0.5
    for was, now in zip(np.array_split(anticipated, 7), np.array_split(chances["permute7"], 7), strict=True):
        assert (np.sort(now)[::-1] == was).all()
        assert (now != was).any()
    assert not chances["actual"][market.asked :].any()
    assert np.ptp(chances["uniform"]) == 0


def test_an_unknown_continuation_is_refused_with_those_there_are():
    """The message lists them."""
    with pytest.raises(WorkloadError, match="no continuation 'zipf'; there are: actual, anticipated"):
        continuation("zipf", Market(), np.random.default_rng(0))


def test_a_market_may_be_too_small():
    """At least one symbol must be left."""
    with pytest.raises(WorkloadError, match="use a larger scale"):
        Market().scaled(1e-6)


def test_the_subscriptions_themselves_have_the_counts_that_were_drawn():
    """Subscriptions and distinct filter texts, in total and by symbol."""
    market = Market().scaled(0.002)
    workload = make_market(market, 5, 100)
    drawn = count_subscriptions(market, np.random.default_rng(5))
    symbols = workload.predicates.value[::2].astype(int)
    assert len(workload) == market.subscriptions == 2960
    assert (np.bincount(symbols, minlength=market.symbols) == drawn.subscriptions).all()
    assert len(set(workload.filter_texts())) == market.filters


def test_the_texts_mean_what_the_numbers_say():
    """An engine that reads the filters and the Arrow batch finds what brute force finds in the arrays."""
    workload = make_market(Market().scaled(0.002), 5, 300)
    engine = Engine(Schema.of(workload.schema))
    engine.subscribe_many(workload.subscription_table())
    counts = engine.count(workload.event_batch())
    assert counts[:50].sum() > 0
    assert counts[:50].tolist() == workload.truth().counts.tolist()
