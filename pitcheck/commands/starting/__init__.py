"""``pitcheck init``: a first specification or configuration for a repository, which runs."""
