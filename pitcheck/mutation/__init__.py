"""Mutants of plans: small, typical mistakes put into a right plan, and what becomes of them.

This room knows plans; it uses the check and the executor only as judges.
"""
