"""A checker of parallel training plans.

It proves that a plan computes what the single-device model computes, or shows where it does not.
"""

__version__ = "0.1.0"
