"""The functions of the filter language: one table, whose rows say all there is to say about a function."""
