"""What is checked: mesh, tensors, operators, lineage; read, write, validate."""
