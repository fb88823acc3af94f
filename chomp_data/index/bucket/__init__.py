"""Batches of samples that differ in shape."""
