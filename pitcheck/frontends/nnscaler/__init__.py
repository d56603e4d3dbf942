"""The frontend for nnScaler's execution plans."""

from pitcheck.frontends.nnscaler.build import read_nnscaler

__all__ = ["read_nnscaler"]
