"""The engine: subscriptions in, matches out, in one process."""
