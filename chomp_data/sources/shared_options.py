"""Options that row kinds share: choosing documents, and filler.

Names are the seeds' own. Lengths are in tokens.
"""

import dataclasses
from typing import Any

from chomp_data import schema
from chomp_data.index.splice import document_selection

_COUNT = schema.optional(schema.integer(1))
_TOKEN_ID = schema.optional(schema.integer(0, 2**32 - 1))


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectionOptions:
  """Which documents of a store are read.

  Attributes:
    doc_select_mode: Which documents are taken first.
    min_doc_length: Shorter documents are left out, in tokens.
    max_doc_length: Longer documents are left out, in tokens.
    restrict_to_training_subset: Whether only documents are taken that another,
      unshuffled run over the same store reads: the first seq_len *
      `initial_batch_size` * `max_train_batches` tokens.
    initial_batch_size: Rows of a batch of that other run.
    max_train_batches: Batches of that other run.
  """

  doc_select_mode: str = schema.option(
    "longest", schema.choice(document_selection.SELECT_MODES)
  )
  min_doc_length: int | None = schema.option(None, _COUNT)
  max_doc_length: int | None = schema.option(None, _COUNT)
  restrict_to_training_subset: bool = schema.option(False, schema.boolean())
  initial_batch_size: int | None = schema.option(None, _COUNT)
  max_train_batches: int | None = schema.option(None, _COUNT)

  def selection_problems(self, path: str) -> list[str]:
    """Returns what is wrong between these fields."""
    problems = []
    low, high = self.min_doc_length, self.max_doc_length
    if low is not None and high is not None and low > high:
      problems.append(
        f"`{path}.min_doc_length` must be at most `max_doc_length`, got"
        f" {low} > {high}. Swap or widen them."
      )
    sizes = (self.initial_batch_size, self.max_train_batches)
    if self.restrict_to_training_subset and None in sizes:
      problems.append(
        f"`{path}.restrict_to_training_subset` needs `initial_batch_size`"
        f" and `max_train_batches`, got {sizes[0]} and {sizes[1]}. Set both"
        " to the run whose tokens are meant."
      )
    return problems

  def limits(self, seq_len: int) -> document_selection.Limits:
    """Returns these fields as limits on documents."""
    last_token = None
    if self.restrict_to_training_subset:
      batch, count = self.initial_batch_size, self.max_train_batches
      last_token = seq_len * (batch or 0) * (count or 0)
    return document_selection.Limits(
      min_length=self.min_doc_length,
      max_length=self.max_doc_length,
      last_token=last_token,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FillerOptions:
  """What stands where no document does.

  Attributes:
    filler: Which token fills what no document does.
    trailing_filler_in_segment: Whether filler after a document keeps the
      document's segment id, or gets 0.
    pad_token_id: Id of the padding token; None takes the tokenizer's.
    eos_token_id: Id of the end-of-document token; None takes the tokenizer's.
  """

  filler: str = schema.option("pad", schema.choice(("pad", "eos")))
  trailing_filler_in_segment: bool = schema.option(True, schema.boolean())
  pad_token_id: int | None = schema.option(None, _TOKEN_ID)
  eos_token_id: int | None = schema.option(None, _TOKEN_ID)


def checked(options: Any, seq_len: int, path: str) -> tuple[Any, int]:
  """Returns a source's options and seq_len, checked and converted.

  Args:
    options: A dataclass of options with a method `problems`.
    seq_len: Positions of a row.
    path: Dotted path of the options, for messages.

  Raises:
    ConfigError: If fields are wrong; all of them are listed.
  """
  section = {
    f.name: getattr(options, f.name) for f in dataclasses.fields(options)
  }
  read, problems = schema.read(type(options), section, path)
  try:
    seq_len = schema.integer(2).convert(seq_len)
  except (TypeError, ValueError):
    problems.append(
      schema.bad_value(
        "seq_len", "a whole number of at least 2", seq_len, "Correct it."
      )
    )
  else:
    problems += [] if read is None else read.problems(path, seq_len)
  if problems:
    raise schema.ConfigError(problems)
  return read, seq_len
