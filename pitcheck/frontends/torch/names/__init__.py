"""What tensors and modules of a rank are called in the reference, and which parts ranks hold."""
