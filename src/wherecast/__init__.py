"""Wherecast: publish/subscribe by WHERE clause.

Subscribers register SQL filters; every event reaches exactly those whose filter it satisfies.

>>> from wherecast import Engine
>>> engine = Engine({"symbol": "string", "price": "double"})
>>> engine.subscribe("alice", "symbol = 'IBM' AND price < 120")
>>> engine.match({"symbol": "IBM", "price": 119.5})
['alice']
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wherecast.broker.client.calls import BrokerError
    from wherecast.broker.client.clients import AsyncClient, Client
    from wherecast.engine.engine import Engine, Quarantined, Registration
    from wherecast.engine.explain import Explanation
    from wherecast.engine.lint import LintFinding, LintFindings, lint
    from wherecast.engine.matches import Matches
    from wherecast.engine.pattern_matches import PatternMatch, PatternMatches
    from wherecast.engine.sequences import EventTime
    from wherecast.errors import (
        EventError,
        FilterError,
        LimitError,
        MatcherError,
        PlanError,
        SchemaError,
        SigningKeyError,
        SnapshotError,
        SubscriptionError,
        UnknownIdError,
        WherecastError,
    )
    from wherecast.language.events.schema import Schema
    from wherecast.language.syntax.limits import Limits

__all__ = [
    "AsyncClient",
    "BrokerError",
    "Client",
    "Engine",
    "EventError",
    "EventTime",
    "Explanation",
    "FilterError",
    "LimitError",
    "Limits",
    "LintFinding",
    "LintFindings",
    "MatcherError",
    "Matches",
    "PatternMatch",
    "PatternMatches",
    "PlanError",
    "Quarantined",
    "Registration",
    "Schema",
    "SchemaError",
    "SigningKeyError",
    "SnapshotError",
    "SubscriptionError",
    "UnknownIdError",
    "WherecastError",
    "lint",
]
__version__ = "0.1.0"

# Every module of the package imports this one first, so the public names are fetched on first use: a command that needs
# no engine does not wait for Arrow.
_HOMES = {
    **dict.fromkeys(("AsyncClient", "Client"), "wherecast.broker.client.clients"),
    "BrokerError": "wherecast.broker.client.calls",
    **dict.fromkeys(("Engine", "Quarantined", "Registration"), "wherecast.engine.engine"),
    "EventTime": "wherecast.engine.sequences",
    "Explanation": "wherecast.engine.explain",
    **dict.fromkeys(("LintFinding", "LintFindings", "lint"), "wherecast.engine.lint"),
    "Limits": "wherecast.language.syntax.limits",
    "Matches": "wherecast.engine.matches",
    **dict.fromkeys(("PatternMatch", "PatternMatches"), "wherecast.engine.pattern_matches"),
    "Schema": "wherecast.language.events.schema",
}

if not TYPE_CHECKING:  # a type checker sees the imports above, and that any other name is wrong

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(import_module(_HOMES.get(name, "wherecast.errors")), name)
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
