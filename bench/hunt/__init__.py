"""Random programs of JAX for ``bench/xla_hunt.py``, their execution and their minimal forms."""
