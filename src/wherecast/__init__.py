"""Wherecast: publish/subscribe by WHERE clause.

Subscribers register SQL filters; every event reaches exactly those whose filter it satisfies.

>>> from wherecast import Engine
>>> engine = Engine({"symbol": "string", "price": "double"})
>>> engine.subscribe("alice", "symbol = 'IBM' AND price < 120")
>>> engine.match({"symbol": "IBM", "price": 119.5})
['alice']
"""

from wherecast.engine.engine import Engine, Quarantined, Registration
from wherecast.engine.explain import Explanation
from wherecast.engine.matches import Matches
from wherecast.errors import EventError, FilterError, SchemaError, SubscriptionError, WherecastError
from wherecast.language.schema import Schema
from wherecast.language.sql import Limits

__all__ = [
    "Engine",
    "EventError",
    "Explanation",
    "FilterError",
    "Limits",
    "Matches",
    "Quarantined",
    "Registration",
    "Schema",
    "SchemaError",
    "SubscriptionError",
    "WherecastError",
]
__version__ = "0.1.0"
