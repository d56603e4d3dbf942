"""What a number is: prime-field residues, the galois oracle, the reals; and what is said of numbers
before they exist.
"""
