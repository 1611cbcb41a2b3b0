"""One package per paper, one module per figure or table: its settings, `run`, `plot` and `EXPERIMENT`."""
