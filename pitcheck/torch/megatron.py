"""Check programs of Megatron-core on a machine without CUDA.

    from pitcheck.torch.megatron import on_cpu

    @on_cpu
    def reference():
        ...  # Megatron's own code; one rank

    @on_cpu
    def parallel(rank):
        ...  # Megatron's own code

Megatron itself is imported when such a function is called, and not before.
"""

from __future__ import annotations

from pitcheck.frontends.torch.megatron.on_cpu import on_cpu

__all__ = ["on_cpu"]
