"""Manual regions (``shard_map``) of a program that is not partitioned yet, as one device runs them.

Such a region says what each device computes of its shard. In the plan of one device each of its
arrays is held once for each device of the mesh, and its collectives join these copies.
"""
