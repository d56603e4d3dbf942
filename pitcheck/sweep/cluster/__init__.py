"""Sweeps on the nodes of a Ray cluster. Ray is an extra, and is imported by ``engine`` alone."""
