"""An independent judge of plans: loops over ranks in program order, float64, full shapes. Shares no
computing code with the checker; needs PyTorch.
"""
