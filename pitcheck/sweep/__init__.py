"""Sweeps: many configurations, each checked in a process of its own (``docs/night.md``)."""
