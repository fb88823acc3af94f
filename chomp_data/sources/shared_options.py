# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Options that row kinds share: choosing documents, and filler.

Names are the seeds' own. Lengths are in tokens.
"""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import os
from typing import Any
from typing import ParamSpec

from chomp_data import schema
from chomp_data import stores
from chomp_data.index import document_selection

_Parameters = ParamSpec("_Parameters")

_COUNT = schema.optional(schema.integer(1))
_TOKEN_ID = schema.optional(schema.integer(0, 2**32 - 1))


def _fields(value: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
  items = value.items() if isinstance(value, Mapping) else value
  if isinstance(items, str):
    raise TypeError
  text, out = schema.text(), {}
  for name, values in items:
    values = (values,) if isinstance(values, str) else values
    if text.convert(name) in out or not values:
      raise ValueError
    if not all(isinstance(own, str) for own in values):
      raise TypeError
    out[name] = tuple(sorted(set(values)))
  if not out:
    raise ValueError
  return tuple(sorted(out.items()))


_FIELDS = schema.Rule(
  "a mapping (or a list of pairs) of names of metadata fields to a value or a"
  " list of values",
  _fields,
)

_OF_SUBSET = (
  "Correct it, or leave it out where restrict_to_training_subset is False."
)

SEED = schema.integer(0, 2**63 - 1)
SEQ_LEN = schema.integer(2)


def _opened(value: Any) -> stores.Store:
  """Returns a store; a path is opened."""
  if isinstance(value, str | os.PathLike):
    return stores.open_store(value)
  if not isinstance(value, stores.Store):
    raise TypeError
  return value


STORE = schema.Rule(
  "a store, as `chomp_data.open_store(path)` returns it, or the path of one",
  _opened,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectionOptions(schema.Options):
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
    doc_key: Id of the document that is read, or a pattern of ids such as
      'law/*', whose documents are the candidates: '*' is any text, '?' any
      character, '[ab]' one of these. An id that is spelled so is that document.
    doc_meta: Values of metadata fields that documents must have, such as
      {'lang': 'en', 'source': ('wiki', 'books')}, of a store that was prepared
      with --meta_keys.
  """

  doc_select_mode: str = schema.option(
    "longest", schema.choice(document_selection.SELECT_MODES)
  )
  min_doc_length: int | None = schema.option(None, _COUNT)
  max_doc_length: int | None = schema.option(None, _COUNT)
  restrict_to_training_subset: bool = schema.option(False, schema.boolean())
  initial_batch_size: int | None = schema.option(None, _COUNT, fix=_OF_SUBSET)
  max_train_batches: int | None = schema.option(None, _COUNT, fix=_OF_SUBSET)
  doc_key: str | None = schema.option(None, schema.optional(schema.text()))
  doc_meta: tuple[tuple[str, tuple[str, ...]], ...] | None = schema.option(
    None, schema.optional(_FIELDS)
  )

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
class FillerOptions(schema.Options):
  """What stands where no document does.

  Attributes:
    filler: Which token fills what no document does.
    trailing_filler_in_segment: Whether filler after a document keeps the
      document's segment id, or gets 0.
    pad_token_id: Id that rows are padded with; None takes the tokenizer's
      padding token, or where it has none its EOS, or id 0 without an EOS, and
      logs which. Padding is never trained on.
    eos_token_id: Id of the end-of-document token; None takes the tokenizer's.
  """

  filler: str = schema.option("pad", schema.choice(("pad", "eos")))
  trailing_filler_in_segment: bool = schema.option(True, schema.boolean())
  pad_token_id: int | None = schema.option(None, _TOKEN_ID)
  eos_token_id: int | None = schema.option(None, _TOKEN_ID)


def source_arguments(
  *classes: type[schema.Options],
) -> Callable[[Callable[_Parameters, None]], Callable[_Parameters, None]]:
  """Returns what checks the arguments of a source of rows, each by itself.

  Args:
    *classes: Of its `options`.
  """
  return schema.arguments(
    store=STORE,
    options=schema.options_rule(*classes),
    seq_len=SEQ_LEN,
    seed=SEED,
    name=schema.text(),
    path=schema.text(),
  )


def raise_problems(options: Any, seq_len: int, path: str) -> None:
  """Raises ConfigError if options do not fit each other and `seq_len`.

  Args:
    options: A dataclass of options with a method `problems`.
    seq_len: Positions of a row.
    path: Dotted path of the options, for messages.
  """
  problems = options.problems(path, seq_len)
  if problems:
    raise schema.ConfigError(problems)
