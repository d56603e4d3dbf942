"""The order and time of a plan: meetings, operations in flight, and deadlock."""
