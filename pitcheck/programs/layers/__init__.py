"""The layers of a model on a rank, with the communication that each needs."""
