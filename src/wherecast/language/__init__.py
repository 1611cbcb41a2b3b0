"""The filter language: schema, expression, parser, normal form, and filters as arrays."""
