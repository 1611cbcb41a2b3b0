import numpy as np
import pytest

from wherecast.partition.balance import (
    Moves,
    add_server,
    apply_moves,
    assign_buckets,
    imbalance,
    rebalance,
    server_loads,
)


def floats(*values):
    return np.array(values, float)


def table_of(*servers):
    return np.array(servers, np.int32)


@pytest.mark.parametrize(
    ("loads", "expected"),
    [((3, 3, 3), 1.0), ((2, 6, 4), 3.0), ((0, 5), np.inf), ((0, 0), 1.0), ((7,), 1.0)],
)
def test_imbalance_is_the_largest_load_over_the_smallest(loads, expected):
    """Without any load there is nothing to be uneven; with an idle server beside a busy one it is infinite."""
    assert imbalance(floats(*loads)) == expected


def test_the_heaviest_bucket_is_dealt_first_and_each_goes_to_the_least_loaded_server():
    """Graham's textbook case: 7 6 5 5 4 3 on two servers makes 15 and 15."""
    weights = floats(3, 7, 5, 6, 4, 5)
    table = assign_buckets(weights, 2)
    assert table.dtype == np.int32
    assert table.tolist() == [0, 0, 1, 1, 1, 0]
    assert server_loads(weights, table, 2).tolist() == [15.0, 15.0]


@pytest.mark.parametrize("weights", [np.zeros(20), np.r_[8.0, 8.0, 1.0, 1.0, np.zeros(16)]])
def test_empty_buckets_are_dealt_to_all_servers(weights):
    """They will fill up, so that no server is given all of them."""
    empty = np.bincount(assign_buckets(weights, 2)[weights == 0], minlength=2)
    assert abs(empty[0] - empty[1]) <= 1


def test_nothing_moves_until_the_threshold_is_passed():
    """An imbalance of exactly the threshold is still allowed."""
    weights, table = floats(1, 1, 1, 1, 1, 1), table_of(0, 0, 0, 0, 1, 1)
    assert rebalance(weights, table, 2, 2.0).buckets.size == 0
    moves = rebalance(weights, table, 2, 1.9)
    assert (moves.sources.tolist(), moves.targets.tolist()) == ([0], [1])


def test_a_bucket_heavier_than_all_else_cannot_be_balanced():
    """It is as heavy on any other server: no move, although the threshold is passed."""
    weights, table = floats(100, 1, 1), table_of(0, 1, 2)
    assert rebalance(weights, table, 3, 2.0).buckets.size == 0


def test_beside_a_bucket_too_heavy_to_move_the_others_are_levelled():
    """The light buckets next to it help nobody; one of another server raises the smallest load from 1 to 6."""
    weights = floats(10, 0.1, 0.1, 5, 6, 1)
    table = table_of(0, 0, 0, 1, 1, 2)
    moves = rebalance(weights, table, 3, 3.0)
    assert moves == Moves(*map(np.array, ([3], [1], [2])))


def test_a_new_server_does_not_take_what_would_leave_the_giver_short():
    """A bucket of nearly a whole load stays, though it would fill the newcomer at once; ten light ones go."""
    weights = np.r_[0.9, 0.1, np.full(90, 0.1)]
    table = np.r_[0, 0, np.repeat(np.arange(1, 10), 10)].astype(np.int32)
    moves = add_server(weights, table, 10)
    loads = server_loads(weights, apply_moves(table, moves), 11)
    assert 0 not in moves.buckets
    assert moves.buckets.size == 9
    assert imbalance(loads) < 1.2


def test_a_new_server_stays_idle_if_no_bucket_fits_its_share():
    """One bucket per server: taking one would only move the load."""
    assert add_server(np.ones(4), np.arange(4, dtype=np.int32), 4).buckets.size == 0
