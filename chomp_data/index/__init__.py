"""Integer maps: which row holds what. Pure functions of keys, in NumPy."""
