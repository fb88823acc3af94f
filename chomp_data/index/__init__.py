"""Integer maps: which row holds what. Pure functions of keys; NumPy only."""
