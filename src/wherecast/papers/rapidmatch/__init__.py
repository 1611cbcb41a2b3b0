"""RAPIDMatch (2005): partial match by random trees over binary properties."""
