"""Programs of Megatron-core: what they need of CUDA, and the names of their parameters."""
