"""The claims about parallel tensors: what is given, what must come out, and where to cut."""
