"""Plans: their model, reading and writing them, and the rules that make them valid."""
