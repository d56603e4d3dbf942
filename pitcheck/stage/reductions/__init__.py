"""Reductions of a stage: smaller stages, or stronger ones, that decide it.

``pipeline.py`` has the one list of them.
"""
