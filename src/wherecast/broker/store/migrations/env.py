"""Alembic runs this: migrations use the connection that the store gives."""

from alembic import context

from wherecast.broker.store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
