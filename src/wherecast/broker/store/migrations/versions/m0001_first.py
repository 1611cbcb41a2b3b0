"""The first tables."""

from alembic import op

from wherecast.broker.store.tables import metadata

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables. A later migration that changes one writes the old form down here."""
    metadata.create_all(op.get_bind())
