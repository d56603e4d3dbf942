"""The routers of recorded programs, which choose experts as a routing says."""
