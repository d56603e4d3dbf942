"""One finding as text, and what its text is made of."""
