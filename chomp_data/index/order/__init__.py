"""Orders of a source's rows: what stands at each position of an epoch."""
