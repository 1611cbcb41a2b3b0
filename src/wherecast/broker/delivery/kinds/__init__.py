"""Ways to tell somebody: one module each, and a row in `registry`."""
