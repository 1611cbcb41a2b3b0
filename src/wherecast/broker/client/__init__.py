"""Clients of the broker, for programs: `wherecast.Client` and `wherecast.AsyncClient` (extra `client`)."""
