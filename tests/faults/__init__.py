"""Faults, injected and counted; `python -m tests.faults --help`."""
