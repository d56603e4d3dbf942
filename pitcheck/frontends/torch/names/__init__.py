"""Names of a rank's tensors and modules in the reference, and the parts that ranks hold."""
