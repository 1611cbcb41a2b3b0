"""Figures for Prometheus. No tenant and no space is named: whoever may read them learns nothing about either."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)


class Metrics:
    """The figures of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.events = Counter("wherecast_events", "Events in the log", registry=self.registry)
        self.matches = Counter("wherecast_matches", "Matches found", registry=self.registry)
        self.changes = Counter("wherecast_changes", "Changed subscriptions", registry=self.registry)
        self.refused = Counter("wherecast_refused", "Refused items", ["what"], registry=self.registry)
        self.sent = Counter("wherecast_feed_messages", "Messages sent to feeds", registry=self.registry)
        self.cut_off = Counter(
            "wherecast_feeds_cut_off", "Feeds ended because they did not read", registry=self.registry
        )
        self.feeds = Gauge("wherecast_feeds", "Open feeds", registry=self.registry)
        self.subscriptions = Gauge("wherecast_subscriptions", "Subscriptions that are matched", registry=self.registry)
        self.group_size = Histogram(
            "wherecast_commit_jobs",
            "Requests of one commit",
            buckets=(1, 2, 5, 10, 50, 100, 500),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "wherecast_request_seconds", "Time of a request", ["operation"], buckets=_SECONDS, registry=self.registry
        )

        self.deliveries = Counter(
            "wherecast_deliveries",
            "Deliveries that became due, were delivered, or died",
            ["what"],
            registry=self.registry,
        )
        self.tries = Counter(
            "wherecast_delivery_tries", "Tries by kind and result", ["kind", "result"], registry=self.registry
        )
        self.try_seconds = Histogram(
            "wherecast_delivery_try_seconds",
            "Time of a try",
            ["kind"],
            buckets=(*_SECONDS, 10, 20),
            registry=self.registry,
        )
        self.in_flight = Gauge("wherecast_delivery_in_flight", "Tries under way", registry=self.registry)
        self.undelivered = Gauge(
            "wherecast_deliveries_waiting",
            "Deliveries that were not delivered, by state; up to 10,000 of each tenant are counted",
            ["state"],
            registry=self.registry,
        )
        self.not_followed = Counter(
            "wherecast_events_not_delivered",
            "Events trimmed from the log before delivery saw them",
            registry=self.registry,
        )

    def text(self) -> bytes:
        return generate_latest(self.registry)
