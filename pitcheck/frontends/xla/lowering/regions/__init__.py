"""Called computations, recognised by their instructions: they say what an operator does."""
