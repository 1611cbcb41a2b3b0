"""Open feeds of all processes."""

from alembic import op

from wherecast.broker.store.delivery_tables import presence

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make the table of presence."""
    presence.create(op.get_bind())
