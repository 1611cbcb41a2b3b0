"""Wherecast: publish/subscribe by WHERE clause."""
