# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Row sources that are made of a store and options: packed rows and splices."""

import abc
import os
from typing import Any
from typing import ClassVar

from chomp_data import schema
from chomp_data import stores
from chomp_data.sources import row_source
from chomp_data.sources import shared_options


class StoreSource(row_source.RowSource):
  """Rows of the documents of a store.

  Attributes:
    kind: The `rows.kind` of its options.
    option_classes: The classes of its options.
    takes_pairs: Whether it makes rows of preference pairs.
  """

  kind: str
  option_classes: ClassVar[tuple[type[schema.Options], ...]]
  takes_pairs: ClassVar[bool] = False

  @schema.arguments(
    store=shared_options.STORE,
    seq_len=shared_options.SEQ_LEN,
    seed=shared_options.SEED,
    name=schema.optional(schema.text()),
    path=schema.text(),
  )
  def __init__(
    self,
    store: stores.Store | str | os.PathLike[str],
    options: Any,
    *,
    seq_len: int,
    seed: int = 0,
    name: str | None = None,
    path: str = "rows",
  ):
    """Builds or opens what random access needs; reads no token.

    Args:
      store: Where the documents are; a path is opened with `open_store`.
      options: The options of the rows.
      seq_len: Positions of a row, at least 2.
      seed: The run's seed.
      name: The source's name, from which its seeds are derived; None is the
        kind.
      path: Dotted path of the options, for messages.

    Raises:
      TypeError: If an argument is of a wrong type.
      ConfigError: If options contradict each other or do not fit the store.
      StoreError: If no directory for the index is writable.
    """
    assert isinstance(store, stores.Store)
    rule = schema.options_rule(*self.option_classes)
    options = schema.argument("options", rule, options)
    shared_options.raise_problems(options, seq_len, path)
    if store.opened.pairs and not self.takes_pairs:
      raise schema.ConfigError(
        [
          f"`{path}.kind` must be 'bin' for the preference pairs of"
          f" {store.path}, got {self.kind!r}: other rows separate the halves of"
          " a pair. Choose it."
        ]
      )
    self.name: str = name or self.kind
    self.store: stores.Store = store
    self.options = options
    self._seed = seed
    self._open(seq_len, path)

  @abc.abstractmethod
  def _open(self, seq_len: int, path: str) -> None:
    """Sets the other attributes, from those that `__init__` sets."""
