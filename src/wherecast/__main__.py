"""`python -m wherecast`: the command line."""

from wherecast.cli import main

main()
