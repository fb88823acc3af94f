"""Compiled forms of hot loops: optional, and never other bytes."""
