"""An independent judge of plans: loops over ranks in program order, float64, full shapes.

It shares no computing code with the checker and needs PyTorch.
"""
