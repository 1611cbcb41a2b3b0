"""From expressions to filters on columns, and back to SQL."""
