"""``pitcheck check --watch``: checks that follow the files that they read."""
