# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Opens the sources of a run; one error lists the problems of all."""

from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import itertools
import re
from typing import Any

from absl import logging

from chomp_data import schema
from chomp_data import stores


class Opening:
  """Collects the errors of sources while they are opened."""

  def __init__(self):
    """Begins without errors."""
    self._problems: list[str] = []
    self._unopened: list[str] = []
    self._first: stores.StoreError | None = None

  @contextlib.contextmanager
  def source(self, path: str) -> Iterator[None]:
    """Catches and collects the ConfigError or StoreError of its block.

    Args:
      path: Dotted path of the source, `config.data.sources.<name>`.
    """
    try:
      yield
    except schema.ConfigError as error:
      # Functions that open a store name its path `path`.
      self._problems += [
        re.sub("^`path`", f"`{path}.store`", line) for line in error.problems
      ]
    except stores.StoreError as error:
      self._first = self._first or error
      self._unopened.append(f"{path}.store: {error}")

  def check(self) -> None:
    """Raises one error with all that were collected.

    Raises:
      ConfigError: If options are wrong; stores that failed to open are listed.
      StoreError: If only stores failed: one line each, `<path>.store: ...`.
    """
    if self._problems:
      raise schema.ConfigError(self._problems + self._unopened) from self._first
    if self._unopened:
      raise stores.StoreError("\n".join(self._unopened)) from self._first


def tokenizer_text(store: stores.Store) -> str:
  """Returns the name of the tokenizer of a store, for the log."""
  info = store.opened.tokenizer
  kind, value = store.opened.tokenizer_identity or ("name", "unknown")
  if kind == "sha256":
    value = f"{info.kind} {value[:12]}"
  return f"{value} ({info.vocab_size} ids)"


def check_tokenizers(
  by_name: Mapping[str, stores.Store], path: str, allow_differences: bool
) -> None:
  """Checks that all sources have one tokenizer.

  Args:
    by_name: Stores of the sources of one run, by name.
    path: Dotted path of the section that holds sources and mix.
    allow_differences: Whether tokenizers may differ.

  Raises:
    ConfigError: If two tokenizers are known and differ.
  """
  if allow_differences or len(by_name) < 2:
    return
  # Of stores with the same tokenizer, only the first is compared.
  kinds: dict[Any, tuple[str, stores.Store]] = {}
  for name, store in by_name.items():
    tokenizer = store.opened.tokenizer_identity, _special(store)
    kinds.setdefault(tokenizer, (name, store))
  for (name, store), (second_name, second) in itertools.combinations(
    kinds.values(), 2
  ):
    if tokenizers_differ(store, second):
      raise schema.ConfigError(
        [
          f"`{path}.sources` must be of one tokenizer, got"
          f" {_shown(store)} of {name!r} and {_shown(second)} of"
          f" {second_name!r}. Prepare them with one tokenizer, or set"
          f" `{path}.mix.allow_tokenizer_differences` to True."
        ]
      )
  unknown = [
    n for n, store in by_name.items() if not store.opened.tokenizer_identity
  ]
  if unknown:
    logging.warning(
      "%s.sources: which tokenizer made the tokens of %s is not known: it was"
      " not compared with those of other sources. Name it in"
      " array_record.tokenizer.",
      path,
      ", ".join(unknown),
    )


def tokenizers_differ(store: stores.Store, second: stores.Store) -> bool:
  """Returns whether two tokenizers are known to differ."""
  first_identity = store.opened.tokenizer_identity
  second_identity = second.opened.tokenizer_identity
  # A name cannot be compared with a hash.
  if (
    first_identity
    and second_identity
    and first_identity[0] == second_identity[0]
  ):
    return first_identity != second_identity
  return any(
    a is not None and b is not None and a != b
    for a, b in zip(_special(store), _special(second), strict=True)
  )


def _special(store: stores.Store) -> tuple[int | None, ...]:
  info = store.opened.tokenizer
  return info.pad_id, info.bos_id, info.eos_id


def _shown(store: stores.Store) -> str:
  pad, bos, eos = _special(store)
  return f"{tokenizer_text(store)}, pad {pad}, BOS {bos}, EOS {eos},"
