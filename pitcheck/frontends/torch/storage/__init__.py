"""The memory of a recorded program: storages, views, and the state that lies in them."""
