"""The Event Distribution Network paper; one module per figure or table."""
