"""TOPSS (2002): counting matchers over predicate indexes, and matching by a database."""
