"""Matching algorithms over boxes, one module each, one protocol."""
