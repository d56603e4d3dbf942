"""pitcheck: proves that a parallel training plan computes what the single-device model computes, or
shows where it does not.
"""

__version__ = "0.1.0"
