"""The commands of the pages, run, and the pages that are generated from code.

A block without a language holds commands if its first line begins with a program of ``PROGRAMS``.
The next block without a language is what they print. A block with ``title="FILE"`` is saved as that
file first. ``<!-- not run: REASON -->`` before a block says why nothing runs it.
"""
