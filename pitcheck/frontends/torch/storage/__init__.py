"""The memory of a recorded program: storages, views, and what of it is state."""
