"""Grain MapTransforms over whole batches."""
