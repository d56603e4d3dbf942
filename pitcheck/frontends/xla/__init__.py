"""The frontend for programs that XLA partitions."""
