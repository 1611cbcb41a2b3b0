"""Benchmarks: seeded workloads, declared cases, and one runner that checks every answer before it reports a time."""
