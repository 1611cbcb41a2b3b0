"""Wherecast beside what a reader would use instead: `python -m benchmarks.peers --help`."""
