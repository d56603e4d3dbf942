"""The sizes beyond which a text is refused, so that a hostile one costs neither memory nor time."""

from __future__ import annotations

LARGEST_TEXT = 1 << 26
"""Bytes of a text."""
DEEPEST = 64
"""Nested braces, parentheses or tuples, and dimensions of an array."""
LONGEST_PROGRAM = 1 << 20
"""Instructions of all computations."""
LARGEST_LITERAL = 1 << 22
"""Elements of one constant."""
LARGEST_ARRAY = 1 << 62
"""Elements of one array."""
MOST_DEVICES = 1 << 16
"""Devices of a sharding or of replica groups."""
MOST_LISTED = 1 << 20
"""Devices of all lists together that short notations stand for, each counted once.

A notation of some bytes, such as ``[256,256]<=[65536]``, stands for any number of devices.
"""
