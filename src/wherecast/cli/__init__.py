"""The command line: `wherecast check`, `wherecast match`, `wherecast demo`."""

from wherecast.cli.app import main

__all__ = ["main"]
