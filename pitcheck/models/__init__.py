"""Models: their configurations, the tape that records programs, and one-device reference plans."""
