"""Stages at full shapes: the memory and the time they take, and the pieces that fit."""
