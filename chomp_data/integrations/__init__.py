"""Other people's programs: what each of them asks of an input."""
