"""Publish/subscribe on Chord (2004): the overlay in a deterministic simulator and in static rings."""
