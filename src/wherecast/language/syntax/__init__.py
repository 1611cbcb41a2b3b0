"""From a filter's text to a checked expression."""
