"""The ranks of a program recorded together: known values and objects that pass between them."""
