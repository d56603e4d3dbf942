"""Real numbers: float64, float64 with disturbed digits, and many decimal digits."""
