"""Questions about a run answered from its plan; no token is read."""
