"""Tokenized corpora of other tools, read where they are."""
