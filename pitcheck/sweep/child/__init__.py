"""The processes that check one configuration each, and their limits."""
