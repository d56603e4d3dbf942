"""Where both sides have values: divisors, arguments of roots and logarithms, and cuts."""
