"""The RAPIDMatch paper; one module per pair of figures, Zipf and exponential."""
