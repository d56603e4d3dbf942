"""Numbers, dtypes, options and streams: all other packages may use them, and they use none."""
