"""What every other package may use, and what uses none of them: numbers and dtypes."""
