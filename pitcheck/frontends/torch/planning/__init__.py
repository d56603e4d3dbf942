"""The plan that the traces of all ranks become."""
