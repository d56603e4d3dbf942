"""Recording a rank of a PyTorch program as it runs."""
