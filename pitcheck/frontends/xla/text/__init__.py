"""A strict reader of HLO text, the programs that XLA dumps before and after partitioning.

:func:`pitcheck.frontends.xla.text.parser.read_hlo` reads a file.
"""
