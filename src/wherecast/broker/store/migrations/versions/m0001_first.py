"""The first tables."""

from alembic import op

from wherecast.broker.store.tables import metadata

revision = "0001"
down_revision = None

_TABLES = ("tenants", "tokens", "spaces", "subscriptions", "event_log", "answers", "audit")


def upgrade() -> None:
    """Make the tables. A later migration that changes one writes the old form down here."""
    metadata.create_all(op.get_bind(), tables=[metadata.tables[name] for name in _TABLES])
