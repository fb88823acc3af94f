"""Kinds of inputs: each is recognised, split into pieces and read."""
