"""The communication of a recorded program, operator by operator."""
