"""The whole check: two plans in, a report out."""
