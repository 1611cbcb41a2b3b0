"""An event: the types it may hold, its schema, and how its values are read."""
