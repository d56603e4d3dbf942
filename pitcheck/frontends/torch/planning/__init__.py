"""From the traces of all ranks to a plan."""
