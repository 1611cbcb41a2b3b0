"""The TOPSS paper; one module per figure or table."""
