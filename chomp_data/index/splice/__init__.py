"""Rows of splices: which part of which document goes where."""
