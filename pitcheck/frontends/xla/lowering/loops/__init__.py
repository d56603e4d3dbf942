"""Loops that are not followed iteration by iteration."""
