"""What was proven before, kept between runs."""
