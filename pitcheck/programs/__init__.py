"""What a rank runs: training programs with explicit communication, written by hand as the
frameworks run them.
"""
