"""The Event Distribution Network (2002): its market of stock quotes, and partitioning measured on it."""
