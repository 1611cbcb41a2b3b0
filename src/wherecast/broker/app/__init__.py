"""The HTTP face: one router per resource around the broker."""
