"""Numbers, dtypes and options: every other package may use this one, and it uses none of them."""
