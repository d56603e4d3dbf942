"""Random numbers: which of them each element is, and the tensors that stand for them."""
