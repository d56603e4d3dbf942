"""Small pairs of plans, written by hand as a framework runs them, and near misses of them."""
