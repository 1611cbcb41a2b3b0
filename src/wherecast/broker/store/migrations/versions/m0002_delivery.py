"""Subscribers, their routes, and deliveries."""

from alembic import op

from wherecast.broker.store.delivery_tables import DELIVERY_TABLES
from wherecast.broker.store.tables import metadata

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the tables of delivery."""
    metadata.create_all(op.get_bind(), tables=list(DELIVERY_TABLES))
