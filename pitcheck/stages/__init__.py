"""From plans to graphs, lineage and independent stages; shape reduction; canonical form."""
