"""The tables of the store.

Three ideas carry the rest:

- A **space** has two counters: `version` grows with each change of its subscriptions, `head` with each event. Whoever
  changes a space holds its row, so both counters grow in the order of the commits and have no gaps. A reader that has seen
  position n has seen every event up to n.
- A **subscription** keeps the version of its last change, and stays as a tombstone after it is deleted. So the rows with
  a version above v are the change log since v. Followers, snapshots and the change feed read it.
- The **event log** has one row for all events of one commit: their JSON and the matches found, by subscription number.
  Numbers are never given twice, so an old match cannot be taken for one of a later subscription.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    text,
)

metadata = MetaData()

#: BIGINT, and in SQLite the type of a row's number.
Long = BigInteger().with_variant(Integer, "sqlite")

tenants = Table(
    "tenants",
    metadata,
    Column("tenant", String(64), primary_key=True),
    Column("quotas", Text, nullable=False),  # JSON
    Column("created_ms", BigInteger, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("tenant", ForeignKey("tenants.tenant", ondelete="CASCADE"), nullable=False, index=True),
    Column("token_id", String(32), primary_key=True),
    Column("digest", String(64), nullable=False, unique=True),  # SHA-256 of the secret, hexadecimal
    Column("name", String(200), nullable=False),
    Column("scopes", String(200), nullable=False),  # separated by spaces
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger),
    Column("replaced_by", String(32)),  # the token that a rotation gave instead
)

spaces = Table(
    "spaces",
    metadata,
    Column("space", Long, primary_key=True),
    Column("tenant", ForeignKey("tenants.tenant", ondelete="CASCADE"), nullable=False),
    Column("name", String(200), nullable=False),
    Column("schema", Text, nullable=False),  # JSON
    Column("schema_version", Integer, nullable=False),
    Column("version", BigInteger, nullable=False),  # of its subscriptions
    Column("purged", BigInteger, nullable=False),  # tombstones up to this version may be gone
    Column("head", BigInteger, nullable=False),  # the position of the next event
    Column("log_start", BigInteger, nullable=False),  # the position of the oldest event that is kept
    Column("last_ms", BigInteger, nullable=False),  # time of the last entry: the clock of a space never goes back
    Column("numbers", BigInteger, nullable=False),  # how many subscription numbers are given away
    Column("subscriptions", BigInteger, nullable=False),  # those that exist
    Column("clauses", BigInteger, nullable=False),  # of those
    Column("retention_ms", BigInteger),
    Column("retention_bytes", BigInteger),
    Column("created_ms", BigInteger, nullable=False),
    Index("spaces_by_name", "tenant", "name", unique=True),
)

subscriptions = Table(
    "subscriptions",
    metadata,
    Column("space", ForeignKey("spaces.space", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("tenant", String(64), nullable=False),
    Column("id", String(200), nullable=False),
    Column("subscriber", String(200), nullable=False),
    Column("filter", Text, nullable=False),
    Column("labels", Text, nullable=False),  # JSON: names and texts
    Column("state", String(8), nullable=False),  # active, paused, expired, deleted
    Column("expires_ms", BigInteger),
    Column("clauses", Integer, nullable=False),
    Column("version", BigInteger, nullable=False),  # of its last change
    Column("created_ms", BigInteger, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
    Index(
        "subscriptions_by_id",
        "space",
        "id",
        unique=True,
        sqlite_where=text("state <> 'deleted'"),
        postgresql_where=text("state <> 'deleted'"),
    ),
    Index("subscriptions_by_subscriber", "space", "subscriber"),
    Index("subscriptions_by_former_id", "space", "id"),
    Index("subscriptions_by_version", "space", "version"),
    Index(
        "subscriptions_by_expiry",
        "expires_ms",
        sqlite_where=text("expires_ms IS NOT NULL"),
        postgresql_where=text("expires_ms IS NOT NULL"),
    ),
)

event_log = Table(
    "event_log",
    metadata,
    Column("space", ForeignKey("spaces.space", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("position", BigInteger, primary_key=True, autoincrement=False),  # of the first event
    Column("tenant", String(64), nullable=False),
    Column("events", Integer, nullable=False),
    Column("version", BigInteger, nullable=False),  # of the subscriptions that were matched
    Column("time_ms", BigInteger, nullable=False),
    Column("lines", LargeBinary, nullable=False),
    Column("matches", LargeBinary, nullable=False),
    Column("bytes", BigInteger, nullable=False),
)

#: Answers to requests with an idempotency key.
answers = Table(
    "answers",
    metadata,
    Column("tenant", ForeignKey("tenants.tenant", ondelete="CASCADE"), primary_key=True),
    Column("key", String(200), primary_key=True),
    Column("request", String(64), nullable=False),  # SHA-256 of what was asked
    Column("answer", Text, nullable=False),  # JSON
    Column("created_ms", BigInteger, nullable=False, index=True),
)

audit = Table(
    "audit",
    metadata,
    Column("number", Long, primary_key=True),
    Column("tenant", String(64), nullable=False, index=True),
    Column("time_ms", BigInteger, nullable=False),
    Column("actor", String(200), nullable=False),
    Column("action", String(50), nullable=False),
    Column("subject", String(500), nullable=False),
    Column("details", Text, nullable=False),  # JSON
)
