"""A plan as a graph of nodes over coordinates, and lineage as parts of reference values."""
