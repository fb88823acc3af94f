"""The reference trainer: a small decoder that consumes batches as meant.

Nothing else in the package imports it; it needs the `train` extra.
"""
