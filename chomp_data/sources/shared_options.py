# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Options that row kinds share: padding, seeds, and the store of a source."""

import dataclasses
import os
from typing import Any

from chomp_data import schema
from chomp_data import stores

_TOKEN_ID = schema.optional(schema.integer(0, 2**32 - 1))


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
class FillerOptions(schema.Options):
  """Options of the positions without a document, which are padding.

  Attributes:
    filler: The token at padding positions: the padding token or the
      end-of-document token.
    trailing_filler_in_segment: Whether padding after a document has the
      document's segment id instead of 0.
    pad_token_id: Id of the padding token. None uses the tokenizer's padding
      token, else its EOS, else id 0, and logs which. Padding is never trained
      on.
    eos_token_id: Id of the end-of-document token; None uses the tokenizer's.
  """

  filler: str = schema.option("pad", schema.choice(("pad", "eos")))
  trailing_filler_in_segment: bool = schema.option(True, schema.boolean())
  pad_token_id: int | None = schema.option(None, _TOKEN_ID)
  eos_token_id: int | None = schema.option(None, _TOKEN_ID)


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
