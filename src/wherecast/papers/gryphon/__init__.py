"""Gryphon (1999): the parallel search tree."""
