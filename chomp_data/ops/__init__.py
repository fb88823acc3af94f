"""Arrays in, arrays out: spans, and placing them in a batch, in NumPy."""
