"""Migrations: what changed in the tables, one module per change in `versions`."""
