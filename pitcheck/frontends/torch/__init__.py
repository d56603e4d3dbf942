"""The frontend for PyTorch programs.

Every rank's program is run and recorded without a GPU, and the recordings become plans.
"""
