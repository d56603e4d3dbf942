"""The rules of a valid plan: names, shapes, lineage, single assignment and buffers."""
