"""Bucketed runs: each batch of one dataset and of one static shape."""
