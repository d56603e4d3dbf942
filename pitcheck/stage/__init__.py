"""A stage: a part of both plans between the same cuts, evaluated at definite sizes."""
