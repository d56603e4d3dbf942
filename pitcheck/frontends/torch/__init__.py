"""Reader of PyTorch programs, as they run: a program of one rank after the other is recorded
without a GPU and becomes a plan.
"""
