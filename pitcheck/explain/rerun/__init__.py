"""The parallel plan run again with changes, and the operators that may be changed."""
