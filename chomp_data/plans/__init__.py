"""What every step of a run holds, by random access."""
