"""What can be wrong with a plan."""

from __future__ import annotations

from wherecast.errors import WherecastError


class PlanError(WherecastError):
    """A plan that cannot be made, changed or read as asked for."""
