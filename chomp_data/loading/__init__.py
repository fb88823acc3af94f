"""Batches, process rows, Grain loader, device feed, and checkpoints."""
