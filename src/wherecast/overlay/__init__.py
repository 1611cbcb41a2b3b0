"""Content-based publish/subscribe on a ring of peers: Chord and OPChord."""
