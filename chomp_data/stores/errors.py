"""The one error that a damaged, foreign or misused store raises."""


class StoreError(ValueError):
  """A store cannot be opened, read or written; the message names the file."""
