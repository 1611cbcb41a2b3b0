"""The Chord and OPChord paper: costs in messages, against its formulas; one module per cost.

Hops are counted with the last one, to the owner, as in `overlay.lookup`; the paper's 1/2 log N is without it.
"""

PAPER = "chord-pubsub-2004"
