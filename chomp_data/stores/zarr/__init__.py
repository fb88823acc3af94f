"""Stores of tools/prepare.py: zarr arrays and a manifest."""
