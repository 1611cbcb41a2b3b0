"""The index: codes, boxes, residuals, and snapshots of all three."""
