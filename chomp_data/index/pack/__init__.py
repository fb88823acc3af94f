"""Packing whole documents into rows."""
