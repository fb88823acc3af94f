"""What inspect_batches shows as one self-contained page of HTML."""
