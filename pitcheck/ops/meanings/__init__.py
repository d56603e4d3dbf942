"""The meaning of every operator, written over the algebra interface."""
