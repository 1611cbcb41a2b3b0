"""Seeded subscriptions and events: the reference workloads and those of the papers."""
