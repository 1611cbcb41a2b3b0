"""The experiments on Chord and OPChord at their small scale."""

import json

import numpy as np
import pytest
from matplotlib.figure import Figure

from wherecast.papers.chord.experiments import balance, hops, membership, operations, ranges
from wherecast.papers.chord.static import BITS, StaticRing
from wherecast.papers.lab.experiment import EXPERIMENTS, load_experiment
from wherecast.papers.lab.rows import choose, numbers

pytestmark = pytest.mark.slow

CHORD = [name for name in EXPERIMENTS if name.startswith("chord-")]


def silent(_):
    """Progress that nobody watches."""


@pytest.fixture(scope="module")
def found():
    """Rows of every experiment at its small scale."""
    loaded = {name: load_experiment(name) for name in CHORD}
    return {name: experiment.run(experiment.at("small"), silent) for name, experiment in loaded.items()}


@pytest.mark.parametrize("name", CHORD)
def test_rows_are_flat_and_alike(found, name):
    """Every row has the same columns, of JSON's scalar types; JSON gives them back as they were."""
    rows = found[name]
    assert len({tuple(row) for row in rows}) == 1
    assert json.loads(json.dumps(rows)) == rows


@pytest.mark.parametrize("name", CHORD)
def test_every_claim_holds(found, name):
    """At the small scale already: counts of messages do not depend on the machine."""
    experiment = load_experiment(name)
    for claim, finding in experiment.judge(found[name]):
        assert claim.name == name
        assert isinstance(finding.holds, bool)
        assert finding.holds, (claim.claim, finding.ours)


@pytest.mark.parametrize("name", CHORD)
def test_every_experiment_is_drawn_on_labelled_axes(found, name):
    """Both axes say what they show."""
    axes = Figure().add_subplot()
    load_experiment(name).plot(found[name], axes)
    assert axes.get_xlabel()
    assert axes.get_ylabel()
    assert axes.get_legend_handles_labels()[1]


def test_the_claims_can_fail(found):
    """Rows as a worse overlay would give them are judged as such."""

    def judged(module, rows):
        return [finding.holds for _, finding in module.EXPERIMENT.judge(rows)]

    worse = [dict(row, hops=row["hops"] * 1.2) for row in found["chord-hops"]]
    assert judged(hops, worse)[:2] == [False, False]
    assert judged(hops, [dict(row, most_hops=3 * row["log2_nodes"]) for row in worse])[2] is False
    worse = [dict(row, chord=row["ours"], ours=row["chord"]) for row in found["chord-ranges"]]
    assert judged(ranges, worse) == [False, False, False]
    worse = [dict(row, messages=row["messages"] * 1.5) for row in found["chord-operations"]]
    assert judged(operations, worse) == [False] * 5
    worse = [dict(row, messages=row["messages"] * row["log2_nodes"]) for row in found["chord-membership"]]
    assert judged(membership, worse) == [False] * 3
    swapped = {balance.STRAIGHT: balance.BENT, balance.BENT: balance.STRAIGHT, balance.HASHED: balance.HASHED}
    worse = [dict(row, hash=swapped[row["hash"]]) for row in found["chord-balance"]]
    assert judged(balance, worse)[:2] == [False, False]


def test_a_leave_is_counted_as_its_definition_says():
    """Finger by finger: whoever had the node as the owner of id + 2^e, and is not its predecessor, looks it up again."""
    ring = StaticRing(40, 3)
    state = ring.rng.bit_generator.state
    counted = membership._leave_cost(ring, 5)
    ring.rng.bit_generator.state = state
    total = 0
    for node in ring.rng.integers(0, ring.count, 5).tolist():
        total += 2
        for other in set(range(40)) - {node, (node - 1) % 40}:
            positions = ring.ids[other] + (np.uint64(1) << np.arange(BITS, dtype=np.uint64))
            mine = positions[ring.owners(positions) == node]
            total += 2 * int(ring.hops(np.full(mine.size, other), mine).sum())
    assert counted == total / 5


def test_before_and_after_are_of_the_same_trials(found):
    """Both ways of storing see the same ranges on the same ring: without a small domain they cost about the same."""
    rows = choose(found["chord-ranges"], nodes=2**10)
    assert np.allclose(numbers(rows, "opchord"), numbers(rows, "ours"), rtol=0.35)
