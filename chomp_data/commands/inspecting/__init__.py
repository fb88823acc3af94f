"""What inspect_batches says of steps, for people and for programs."""
