"""Parameters, gradients and optimizer state spread over data-parallel ranks."""
