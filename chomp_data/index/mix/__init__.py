"""Merging several sources by what they have consumed."""
