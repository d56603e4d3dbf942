"""The counterexample as a file: made small, checked, replayed."""
