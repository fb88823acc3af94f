"""Real tiny stores and comparisons of batches, for our tests and a user's."""
