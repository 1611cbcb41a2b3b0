"""Wherecast on Spark: partition the subscriptions, dispatch events, match, notify. Needs the extra `spark`."""
