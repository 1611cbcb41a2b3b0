"""The tables of delivery.

- A **subscriber** row is a queue, too: `next_ms` is when one of its deliveries has to be looked at, and whoever looks holds a
  lease on the row. So an endpoint that hangs keeps one row busy, quiet hours move one number, and the order per subscriber needs
  nothing else.
- A **delivery** is one event for one subscriber; the event's line is kept once beside them, because the log may be trimmed
  before a retry.
- A **delivery position** says up to where the log of a space was turned into deliveries. It moves in the transaction that
  writes them.
- **Presence** has the feeds that are open just now, for the processes that do not have them.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, LargeBinary, String, Table, Text, text

from wherecast.broker.store.tables import Long, metadata

subscribers = Table(
    "subscribers",
    metadata,
    Column("number", Long, primary_key=True),
    Column("tenant", ForeignKey("tenants.tenant", ondelete="CASCADE"), nullable=False),
    Column("name", String(200), nullable=False),
    Column("time_zone", String(64), nullable=False),
    Column("quiet_hours", Text, nullable=False),  # JSON
    Column("digest_minutes", Integer),
    Column("ordered", Integer, nullable=False),
    Column("muted", Integer, nullable=False),
    Column("snoozed_until_ms", BigInteger),
    Column("title", Text),
    Column("text", Text),
    Column("created_ms", BigInteger, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
    Column("next_ms", BigInteger),  # when to look at its deliveries; NULL: there is nothing to do
    Column("lease_ms", BigInteger, nullable=False),  # somebody looks at them until then
    Column("lease_owner", String(32), nullable=False),
    Index("subscribers_by_name", "tenant", "name", unique=True),
    Index(
        "subscribers_due",
        "tenant",
        "next_ms",
        sqlite_where=text("next_ms IS NOT NULL"),
        postgresql_where=text("next_ms IS NOT NULL"),
    ),
)

routes = Table(
    "routes",
    metadata,
    Column("subscriber", ForeignKey("subscribers.number", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("route", String(64), primary_key=True),
    Column("tenant", String(64), nullable=False),
    Column("place", Integer, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("target", Text, nullable=False),
    Column("state", String(16), nullable=False),  # active, unverified, disabled
    Column("reason", Text),
    Column("secrets", Text, nullable=False),  # JSON
)

deliveries = Table(
    "deliveries",
    metadata,
    Column("number", Long, primary_key=True),
    Column("id", String(40), nullable=False, unique=True),
    Column("tenant", ForeignKey("tenants.tenant", ondelete="CASCADE"), nullable=False),
    Column("subscriber", String(200), nullable=False),
    Column("space", String(200), nullable=False),  # its name
    Column("position", BigInteger, nullable=False),
    Column("event", String(40), nullable=False),
    Column("subscriptions", Text, nullable=False),  # JSON: ids
    Column("state", String(9), nullable=False),  # pending, held, delivered, dead
    Column("message", String(40)),  # the id that is sent, if it is a digest's
    Column("route", String(64)),
    Column("tries", Integer, nullable=False),
    Column("round", Integer, nullable=False),
    Column("place", Integer, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("since_ms", BigInteger, nullable=False),  # when it was made or replayed
    Column("next_ms", BigInteger, nullable=False),
    Column("finished_ms", BigInteger),
    Column("reason", Text),
    Column("attempts", Text, nullable=False),  # JSON: the latest
    Index(
        "deliveries_due",
        "tenant",
        "subscriber",
        "next_ms",
        sqlite_where=text("state = 'pending'"),
        postgresql_where=text("state = 'pending'"),
    ),
    Index(
        "deliveries_in_order",
        "tenant",
        "subscriber",
        "number",
        sqlite_where=text("state = 'pending'"),
        postgresql_where=text("state = 'pending'"),
    ),
    Index(
        "deliveries_held",
        "tenant",
        "subscriber",
        sqlite_where=text("state = 'held'"),
        postgresql_where=text("state = 'held'"),
    ),
    Index("deliveries_by_state", "tenant", "state", "number"),
    Index("deliveries_by_subscriber", "tenant", "subscriber", "number"),
    Index("deliveries_by_event", "event"),
    Index(
        "deliveries_finished",
        "finished_ms",
        sqlite_where=text("finished_ms IS NOT NULL"),
        postgresql_where=text("finished_ms IS NOT NULL"),
    ),
)

#: The lines of events that some delivery has.
delivery_events = Table(
    "delivery_events",
    metadata,
    Column("event", String(40), primary_key=True),
    Column("tenant", ForeignKey("tenants.tenant", ondelete="CASCADE"), nullable=False),
    Column("line", LargeBinary, nullable=False),
)

delivery_positions = Table(
    "delivery_positions",
    metadata,
    Column("space", ForeignKey("spaces.space", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("tenant", String(64), nullable=False),
    Column("position", BigInteger, nullable=False),
)

#: Open feeds of subscribers that may be told by feed, written by the process that has them.
presence = Table(
    "presence",
    metadata,
    Column("owner", String(32), primary_key=True),  # the process
    Column("feed", BigInteger, primary_key=True, autoincrement=False),  # its number there
    Column("tenant", ForeignKey("tenants.tenant", ondelete="CASCADE"), nullable=False),
    Column("subscriber", String(200), nullable=False),
    Column("space", String(200), nullable=False),  # its name
    Column("start", BigInteger, nullable=False),  # it has sent every match from here
    Column("sent", BigInteger, nullable=False),  # up to here
    Column("until_ms", BigInteger, nullable=False),  # its process says it is open, until then
    Index("presence_by_subscriber", "tenant", "subscriber"),
)

DELIVERY_TABLES = (subscribers, routes, deliveries, delivery_events, delivery_positions)
