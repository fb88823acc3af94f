"""Other people's trainers: what each of them asks of an input."""
