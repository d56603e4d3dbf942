"""What is trained: model configurations, the tape that records programs, and the single-device
reference plans.
"""
