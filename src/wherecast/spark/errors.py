"""What can go wrong with an index on a shared file system."""

from __future__ import annotations

from wherecast.errors import WherecastError


class IndexStoreError(WherecastError):
    """An index directory that is missing, damaged, foreign or taken; the message says which and what to do."""


class StaleVersionError(IndexStoreError):
    """Another version was committed since this one was begun, or a clean-up removed its files; begin again."""
