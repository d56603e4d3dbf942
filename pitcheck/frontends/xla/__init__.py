"""Programs of XLA before and after partitioning, as a reference and a parallel plan."""
