"""What the lab shows: results beside what the papers say, as one page or as sections of the documentation."""
