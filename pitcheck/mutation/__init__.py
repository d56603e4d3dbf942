"""Mutants of plans: small, typical mistakes put into a right plan, and what becomes of them. Knows
plans; the check and the executor only as judges.
"""
