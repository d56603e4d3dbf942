"""What each operator means: one declaration per operator."""
