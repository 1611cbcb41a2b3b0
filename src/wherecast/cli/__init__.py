"""The command line: one module for each group of commands of `wherecast`."""

from wherecast.cli.app import main

__all__ = ["main"]
