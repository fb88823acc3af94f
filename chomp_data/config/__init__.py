"""`config.data`: its options, and reading them."""
