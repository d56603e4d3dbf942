"""Mistakes that the values of one run show, without anything being run again."""
