"""Numbers that a program reads from tensors while it is recorded, where nobody has them."""
