"""Load balance under order-preserving hashing, which section 4.3 of the paper leaves open.

Theory of operation
-------------------
SHA-1 spreads any values evenly; the order-preserving hash keeps their distribution, and with it every crowd. Two
remedies, which can be combined:

- *Equi-depth lines.* From a sample of the values that are asked for, the line from cells to the ring is bent so that
  equally many values lie on equal arcs. Order is kept, so a range is still one arc. All nodes must use the same knots,
  as they must use the same schema. A single value that is everybody's favourite stays on one node: no order-preserving
  hash can split it.
- *Virtual nodes.* A peer joins as `v` nodes with independent ids; its share is then an average of v shares. This evens out
  arcs of different lengths and helps little against crowds of values, but it needs no sample.
"""

from __future__ import annotations

from collections.abc import Sequence

from wherecast.overlay.positions import Key, Line

#: This much of the arc is given out by the sample, the rest by the domain: values that the sample missed keep some room.
_BY_SAMPLE = 15 / 16


def equi_depth(line: Line, sample: Sequence[Key], arcs: int = 1024) -> tuple[tuple[int, int], ...]:
    """Knots that give each of `arcs` equal shares of the sample an equal arc of the ring."""
    cells = sorted(line.cell(key) for key in sample)
    if not cells:
        return ()
    knots = [(0, 0)]
    for number in range(1, arcs):
        # A knot stands before the first cell of its share.
        cell = cells[number * len(cells) // arcs]
        depth = _BY_SAMPLE * number / arcs + (1 - _BY_SAMPLE) * cell / line.cells
        offset = int(depth * (1 << 52)) * line.width >> 52
        if cell > knots[-1][0] and offset > knots[-1][1]:
            knots.append((cell, offset))
    return (*knots, (line.cells, line.width))
