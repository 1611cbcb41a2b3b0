"""The papers that the experiments reproduce."""

from __future__ import annotations

from typing import NamedTuple


class Paper(NamedTuple):
    """A paper, and the page of the documentation about it."""

    title: str
    citation: str
    page: str  # its file in docs/papers


#: By the name that experiments and claims give.
PAPERS: dict[str, Paper] = {
    "topss-2002": Paper(
        "TOPSS (2002)",
        "Ashayer, Leung, Jacobsen: Predicate Matching and Subscription Matching in Publish/Subscribe Systems",
        "topss.md",
    ),
    "gryphon-matching-tree-1999": Paper(
        "Gryphon (1999)",
        "Aguilera, Strom, Sturman, Astley, Chandra: Matching Events in a Content-based Subscription System",
        "gryphon.md",
    ),
    "rapidmatch-2005": Paper(
        "RAPIDMatch (2005)",
        "Kale, Hazan, Cao, Singh: Analysis and Algorithms for Content-based Event Matching",
        "rapidmatch.md",
    ),
    "event-distribution-network-2002": Paper(
        "Event Distribution Network (2002)",
        "Wang, Qiu, Achlioptas, Das, Larson, Wang: Subscription Partitioning and Routing in Content-based "
        "Publish/Subscribe Systems",
        "edn.md",
    ),
    "chord-pubsub-2004": Paper(
        "Chord and OPChord (2004)",
        "Triantafillou, Aekaterinidis: Content-based Publish-Subscribe Over Structured P2P Networks",
        "chord.md",
    ),
}
