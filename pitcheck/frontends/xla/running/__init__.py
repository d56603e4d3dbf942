"""Programs of JAX, compiled for the texts that XLA dumps of them."""
