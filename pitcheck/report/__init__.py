"""Reports: text, JSON."""
