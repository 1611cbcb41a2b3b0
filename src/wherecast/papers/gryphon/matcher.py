"""The matching tree of Gryphon: clauses share the tests on their way from the root.

Theory of operation
-------------------
M. K. Aguilera, R. E. Strom, D. C. Sturman, M. Astley, T. D. Chandra: Matching Events in a Content-based Subscription
System, PODC 1999.

Naively, an event is tested against every clause. Clauses that begin with the same test share it here: an inner node
is a test, its edges are results, a `*` edge leads to the clauses that do not care, and clauses hang where their last
test is passed. A search follows the edges that agree with the event, and every `*` edge.

- The *level tree* (section 4) tests one attribute per level, in one order for all clauses: most constrained first. An
  edge carries a code or, for ranges, inequalities and lists, a set of codes.
- The *general tree* (section 3) has one test per node, a value or whether it lies in a set. A clause follows the
  result that it implies (`x = 3` implies `x > 1`), so no test is repeated that follows from those above it.

Three optimisations (section 5), each a setting: chains of `*` edges collapse (`kernels.grow`), successors say at
each node where the search goes on (`kernels.links`), factoring keeps one subtree per combination of the values
of the most popular attributes (`clauses`).

Clauses come and go one at a time. Successors are a property of the whole tree: a change discards them, and matching
goes on without until `analyse` finds them again. Matching writes nothing but its own results, so threads may share a
matcher that nobody changes.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from wherecast.errors import MatcherError
from wherecast.index.bounds import StoredArrays
from wherecast.index.boxes import Boxes, EventCodes
from wherecast.index.packed import PackedBoxes
from wherecast.kernels.arrays import Ints, Longs
from wherecast.kernels.jit import frozen
from wherecast.matchers.projection import Projection, project
from wherecast.matchers.protocol import Arrays, Hits, Matcher, each_once
from wherecast.papers.gryphon.clauses import (
    TreeConstraints,
    arrange,
    check_levels,
    choose_levels,
    extend_levels,
    make_workspace,
    order_clauses,
    read_constraints,
)
from wherecast.papers.gryphon.kernels.grow import (
    BY_LEVELS,
    BY_TESTS,
    COLLAPSED,
    Levels,
    insert_clauses,
    remove_clauses,
    take_ids,
)
from wherecast.papers.gryphon.kernels.links import MOST, link_nodes, measure_depths
from wherecast.papers.gryphon.kernels.search import Links, search
from wherecast.papers.gryphon.kernels.sets import intern_sets, release_labels
from wherecast.papers.gryphon.kernels.tree import (
    CLAUSES,
    LIVE_CLAUSES,
    LIVE_ENTRIES,
    LIVE_NODES,
    LIVE_SETS,
    NODES,
    NONE,
    POINTS,
    Tree,
)
from wherecast.papers.gryphon.store import (
    check_tree,
    empty_tree,
    grow_clauses,
    grow_nodes,
    grow_sets,
    trimmed,
    writable,
)

_NO_LINKS = Links(*(frozen(np.zeros(0, dtype)) for dtype in (np.int64, np.int64, np.int32)))


@dataclass(frozen=True, slots=True)
class TreeSettings:
    """Which tree, and which of the paper's optimisations."""

    general: bool = False
    collapse: bool = True  # of a general tree, which makes no chains, only what removals leave
    successors: bool = False
    factors: int | None = None  # attributes to factor; None: as many as pay


class Visits(NamedTuple):
    """What matching takes, per event."""

    nodes: float
    edges: float  # lookups of a value, tests of a set, `*` edges and successors followed


class TreeMatcher(Matcher):
    """A live matching tree."""

    name: ClassVar[str] = "tree"
    settings: ClassVar[TreeSettings] = TreeSettings()

    def __init__(
        self, tree: Tree, levels: Levels, links: Links, widths: Ints, settings: TreeSettings, depth: int
    ) -> None:
        self._levels, self._links, self._widths, self._depth = levels, links, widths, depth
        self._settings = settings
        self._way = BY_TESTS if settings.general else COLLAPSED if settings.collapse else BY_LEVELS
        self._visits: Visits | None = None
        self._use(tree)

    def _use(self, tree: Tree) -> None:
        """Take a tree, and read-only views of it for the search, which is compiled for these alone."""
        self._tree = tree
        self._read = Tree(*(frozen(array) for array in tree))
        self._read_levels = Levels(*(frozen(array) for array in self._levels))
        width, n = self._read_levels.width, self._levels.attribute.size
        table_ptr, table = np.zeros(n + 1, np.int64), np.zeros(0, np.int32)
        self._projection = Projection(self._read_levels.attribute, width, width, frozen(table_ptr), frozen(table))

    @classmethod
    def build(
        cls,
        boxes: Boxes,
        sample: EventCodes | None = None,
        weights: Ints | None = None,  # noqa: ARG003 - a tree has nowhere to use them
        settings: TreeSettings | None = None,
    ) -> Self:
        """Insert all clauses into an empty tree; `sample` is only used to count visits."""
        chosen = settings or cls.settings
        given = read_constraints(boxes)
        levels = choose_levels(given, boxes.n_clauses, boxes.widths, chosen.factors)
        depth = levels.attribute.size - levels.factored.size
        matcher = cls(empty_tree(), levels, _NO_LINKS, boxes.widths, chosen, depth)
        matcher._insert(given, boxes.n_clauses)
        if chosen.successors:
            matcher.analyse()
        if sample is not None and sample.n_events:
            matcher._visits = matcher.tally(sample)
        return matcher

    @property
    def n_clauses(self) -> int:
        """Clauses that are there."""
        return int(self._tree.counts[LIVE_CLAUSES])

    def insert(self, boxes: Boxes) -> Ints:
        """Add clauses over the same attributes and codes; the ids they get, those of removed clauses first."""
        if not np.array_equal(boxes.widths, self._widths):
            raise MatcherError(
                "clauses over other attributes or codes than the tree's; build a new matcher from all of them"
            )
        return self._insert(read_constraints(boxes), boxes.n_clauses)

    def _insert(self, given: TreeConstraints, n_clauses: int) -> Ints:
        self._change()
        self._levels = extend_levels(self._levels, given, self._widths)
        tree = grow_clauses(writable(self._tree), int(self._tree.counts[CLAUSES]) + n_clauses)
        labels, done = np.empty(given.clause.size, np.int32), 0
        while (done := intern_sets(tree, given.row_ptr, given.lo, given.hi, done, labels)) < labels.size:
            tree = grow_sets(tree, int(np.diff(given.row_ptr).max()))
        ids, clauses = np.empty(n_clauses, np.int32), arrange(self._levels, given, labels, n_clauses)
        take_ids(tree, ids)
        order = np.arange(n_clauses) if self._settings.general else order_clauses(clauses)
        how, done = (self._way, self._depth, make_workspace(self._levels)), 0
        while (done := insert_clauses(tree, self._levels, clauses, order, ids, done, *how)) < n_clauses:
            tree = grow_nodes(tree)
        release_labels(tree, labels)
        self._use(tree)
        return ids

    def remove(self, clause_ids: Ints) -> None:
        """Take clauses out. Raises MatcherError, and changes nothing, if one of them is not there."""
        ids = np.ascontiguousarray(clause_ids, np.int32)
        known = (ids >= 0) & (ids < self._tree.counts[CLAUSES])
        known[known] = self._tree.clauses[ids[known]] >= 0
        if not known.all():
            raise MatcherError(f"no clause {ids[~known][0]} to remove; remove ids that build or insert gave, each once")
        values, times = np.unique(ids, return_counts=True)
        if values.size < ids.size:
            raise MatcherError(f"clause {values[times > 1][0]} is to be removed twice; name each clause once")
        self._change()
        tree = writable(self._tree)
        remove_clauses(tree, ids, self._way != BY_LEVELS)
        self._use(tree)

    def _change(self) -> None:
        self._links, self._visits = _NO_LINKS, None

    def analyse(self) -> None:
        """Find the successors of all nodes; they are used until the next change."""
        n = int(self._tree.counts[NODES])
        depth = np.full(n, NONE, np.int32)
        measure_depths(self._read.nodes, depth)
        order = np.argsort(depth, kind="stable")
        order = order[np.searchsorted(depth[order], 1) :]
        links = Links(np.zeros(n, np.int64), np.zeros(n, np.int64), np.empty(4 * n + 2 * MOST, np.int32))
        stack, done, size = np.empty(4 * MOST, np.int32), 0, 0
        while True:
            done, size = link_nodes(self._read, order, done, size, links, stack)
            if done == order.size:
                break
            links = links._replace(ids=np.concatenate([links.ids, np.empty(links.ids.size + MOST, np.int32)]))
        self._links = Links(*(frozen(array) for array in (links.first, links.end, links.ids[:size].copy())))

    def match(self, events: EventCodes) -> Hits:
        """Clauses that hold, each once per event."""
        return self._search(events)[0]

    def _search(self, events: EventCodes) -> tuple[Hits, Longs]:
        """Matches of a batch, and nodes and edges visited in total; a full output is continued in a further piece."""
        batch = project(self._projection, events)
        counts, visits = np.zeros(events.n_events, np.int64), np.zeros(2, np.int64)
        stack = np.empty(int(self._tree.counts[NODES]) + 1, np.int32)
        pieces, start, size = [np.zeros(0, np.int32)], 0, 1024 + 16 * events.n_events
        while start < events.n_events:
            out = np.empty(size, np.int32)
            stop = search(self._read, self._read_levels, self._links, batch, start, stack, out, counts, visits)
            pieces.append(out[: counts[start:stop].sum()])
            start, size = stop, 4 * size
        ids = pieces[1] if len(pieces) == 2 else np.concatenate(pieces)
        ptr = np.concatenate([[0], np.cumsum(counts)])
        if batch.list_codes.size and self._levels.factored.size:
            return each_once(Hits(ptr, ids), self._tree.clauses.size), visits
        return Hits(ptr, ids), visits

    def tally(self, events: EventCodes) -> Visits:
        """Nodes and edges visited per event, on average over these events."""
        nodes, edges = (self._search(events)[1] / max(events.n_events, 1)).tolist()
        return Visits(nodes, edges)

    def arrays(self) -> Arrays:
        """The whole state, by name."""
        groups = {"tree": trimmed(self._tree)._asdict(), "level": self._levels._asdict(), "link": self._links._asdict()}
        parts = {f"{group}_{name}": array for group, arrays in groups.items() for name, array in arrays.items()}
        general, collapse, successors, factors = astuple(self._settings)
        facts = general, collapse, successors, -1 if factors is None else factors, self._depth
        return {**parts, "widths": self._widths, "facts": np.array(facts, np.int64)}

    @classmethod
    def check(cls, arrays: Arrays, boxes: PackedBoxes, weights: Ints | None) -> None:  # noqa: ARG003
        stored = StoredArrays(arrays, f"matcher {cls.name!r}")
        widths = stored.column("widths", np.int32)
        stored.require(np.array_equal(widths, boxes.widths), "widths", "is not that of the codes")
        *settings, depth = stored.column("facts", np.int64, size=5).tolist()
        general, collapse, successors, factors = astuple(cls.settings)
        expected = [general, collapse, successors, -1 if factors is None else factors]
        stored.require(settings == expected and depth >= 0, "facts", "is not what this matcher is built with")
        check_tree(stored, check_levels(stored, widths), boxes.n_clauses)
        for name in Links._fields:  # found by `analyse`, which the engine does not ask for
            stored.column(f"link_{name}", np.int32, np.int64, size=0)

    @classmethod
    def from_arrays(cls, arrays: Arrays, boxes: PackedBoxes | None = None) -> Self:  # noqa: ARG003 - it keeps its own
        """The matcher whose `arrays()` these are; the tree is copied only when it changes."""
        tree = Tree(**{k: arrays[f"tree_{k}"] for k in Tree._fields})
        levels = Levels(**{k: np.array(arrays[f"level_{k}"]) for k in Levels._fields})
        links = Links(**{k: frozen(arrays[f"link_{k}"]) for k in Links._fields})
        general, collapse, successors, factors, depth = arrays["facts"].tolist()
        settings = TreeSettings(bool(general), bool(collapse), bool(successors), None if factors < 0 else factors)
        return cls(tree, levels, links, arrays["widths"], settings, depth)

    def stats(self, events: EventCodes | None = None) -> dict[str, Any]:
        """Size and shape of the tree, and what an event costs: measured on `events`, else on the sample of `build`."""
        counts, parts = self._tree.counts, {k: int(v.nbytes) for k, v in self.arrays().items()}
        visits = self._visits if events is None else self.tally(events)
        return {
            "matcher": self.name,
            "clauses": self.n_clauses,
            "entries": int(counts[LIVE_ENTRIES]),
            "nodes": int(counts[LIVE_NODES]) - 1,
            "sets": int(counts[LIVE_SETS]),
            "subtrees": int(self._tree.nodes[0, POINTS]),
            "levels": int(self._levels.attribute.size),
            "factors": int(self._levels.factored.size),
            "successors": int(self._links.ids.size),
            "nodes_per_event": None if visits is None else visits.nodes,
            "edges_per_event": None if visits is None else visits.edges,
            "bytes": sum(parts.values()),
            "parts": parts,
        }

    def explain_plan(self) -> str:
        """The tree in a few lines: its kind, its size, the order of its levels, what an event visits."""
        facts, settings = self.stats(), self._settings
        kind = (
            "general tree"
            if settings.general
            else "level tree" + (", `*` chains collapsed" if settings.collapse else "")
        )
        plain = self._levels.attribute.size - self._levels.factored.size
        order = ", ".join(map(str, self._levels.attribute[: min(plain, 20)].tolist()))
        factored = ", ".join(map(str, self._levels.attribute[self._levels.factored].tolist()))
        lines = [
            f"{kind}: {facts['clauses']} clauses in {facts['nodes']} nodes, {facts['bytes']} bytes",
            f"tests the attributes {order or 'none'}" + (f" and {plain - 20} more" if plain > 20 else ""),
            f"{facts['subtrees']} subtrees by the values of the attributes {factored}" if factored else "not factored",
            f"{facts['successors']} successors" if self._links.first.size else "without successors",
        ]
        if self._visits is not None:
            lines.append(f"an event visits {self._visits.nodes:.1f} nodes and {self._visits.edges:.1f} edges")
        return "\n".join(lines)


class PlainTreeMatcher(TreeMatcher):
    """The level tree without optimisations: the one that the paper analyses."""

    name: ClassVar[str] = "tree-plain"
    settings: ClassVar[TreeSettings] = TreeSettings(collapse=False, factors=0)


class GeneralTreeMatcher(TreeMatcher):
    """The general tree."""

    name: ClassVar[str] = "tree-general"
    settings: ClassVar[TreeSettings] = TreeSettings(general=True, factors=0)
