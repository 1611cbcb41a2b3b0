"""What can go wrong with an index on a shared file system, and with sinks."""

from __future__ import annotations

from wherecast.errors import WherecastError


class IndexStoreError(WherecastError):
    """An index directory that is missing, damaged, foreign or taken; the message says which and what to do."""


class StaleVersionError(IndexStoreError):
    """Another version was committed since this one was begun, or a clean-up removed its files; begin again."""


class SinkError(WherecastError):
    """A sink that cannot take the batches of a stream; the message says why and what to do."""
