# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""From selection options and a store to documents, by seed 000's policies.

Only lengths are read; tokens of other documents never are. What is chosen of
a large store is kept beside it, for other processes and runs.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import fnmatch
import re
from typing import Any

from absl import logging
import numpy as np

from chomp_data import schema
from chomp_data import stores
from chomp_data.index import columns
from chomp_data.index import document_selection
from chomp_data.index import hashing
from chomp_data.sources import shared_options as options_lib
from chomp_data.stores import document_fields
from chomp_data.stores import side_index

# Documents whose lengths are read at once.
_BATCH = 2**15

# Below this a pass over all lengths takes a few milliseconds, and numbers of
# so many documents few megabytes.
_KEPT_ON_DISK = 1 << 18
# Raise it where selection or quotas come out otherwise.
_VERSION = 1
_NARROW = np.iinfo(np.uint32).max

# Those of a pattern of ids.
_WILDCARDS = frozenset("*?[")

# Documents of a store, and their lengths.
Documents = tuple[np.ndarray, np.ndarray]
Selected = tuple[columns.Column, columns.Column]


def kept(
  store: stores.Store,
  name: str,
  key: Mapping[str, Any],
  build: Callable[[], Mapping[str, np.ndarray]],
  count: int,
) -> dict[str, columns.Column]:
  """Returns arrays of documents, kept beside the store where they are many.

  Args:
    store: Where the documents are.
    name: What the arrays are.
    key: What decides them, the store apart, as JSON values.
    build: Makes them.
    count: How many documents are looked at.

  Raises:
    StoreError: If they can be kept nowhere.
  """
  if count < _KEPT_ON_DISK:
    return {n: columns.ArrayColumn(array) for n, array in build().items()}
  arrays = side_index.load_or_build(
    store.path,
    name,
    {"version": _VERSION, "store": store.hash, **key},
    lambda: [{n: _narrowed(array) for n, array in build().items()}],
  )
  return {
    n: columns.ArrayColumn(array.read().astype(np.int64))
    if len(array) < _KEPT_ON_DISK
    else array
    for n, array in arrays.items()
  }


@dataclasses.dataclass(frozen=True)
class Match:
  """Which documents are candidates by their ids and metadata.

  Attributes:
    doc_key: An id, or a pattern of ids; None is any id.
    documents: The documents with that id; None where it is a pattern.
    doc_meta: Fields, and the values of each that documents may have.
  """

  doc_key: str | None = None
  documents: tuple[int, ...] | None = None
  doc_meta: tuple[tuple[str, tuple[str, ...]], ...] = ()

  @classmethod
  def from_options(
    cls, store: stores.Store, options: options_lib.SelectionOptions
  ) -> "Match":
    """Looks for `doc_key` among the ids first; else it may be a pattern."""
    key, meta = options.doc_key, options.doc_meta or ()
    if key is None:
      return cls(doc_meta=meta)
    documents = tuple(store.find_documents([key])[key])
    if not documents and set(key) & _WILDCARDS:
      return cls(key, doc_meta=meta)
    return cls(key, documents, meta)

  @property
  def rule(self) -> dict[str, Any]:
    """What is set of it, as JSON values."""
    rule = {"doc_key": self.doc_key, "doc_meta": self.doc_meta}
    return {name: value for name, value in rule.items() if value}

  def of(self, store: stores.Store) -> document_selection.Matches | None:
    """Returns what says which documents of a store match; None if all do."""
    if not self.rule:
      return None
    fields = [name for name, _ in self.doc_meta]
    accepted = [frozenset(values) for _, values in self.doc_meta]
    pattern = re.compile(fnmatch.translate(self.doc_key or "*"))

    def matches(documents: np.ndarray) -> np.ndarray:
      if self.documents is not None:
        out = np.isin(documents, self.documents)
      elif self.doc_key is not None:
        ids = store.document_ids(documents)
        out = np.asarray([bool(pattern.match(own)) for own in ids], np.bool_)
      else:
        out = np.ones(len(documents), np.bool_)
      index = np.flatnonzero(out)
      if fields and len(index):
        found = document_fields.values(store, documents[index], fields)
        out[index] = [_accepted(own, accepted) for own in found]
      return out

    return matches


def _accepted(
  values: Sequence[str], accepted: Sequence[Collection[str]]
) -> bool:
  return all(v in known for v, known in zip(values, accepted, strict=True))


def _select(
  store: stores.Store,
  mode: str,
  limits: document_selection.Limits,
  count: int | None,
  key: int,
  match: Match,
  fill: bool = False,
) -> tuple[Selected, int]:
  """Selects documents; see `document_selection.select`.

  Args:
    store: Where the documents are.
    mode: As there.
    limits: As there.
    count: As there.
    key: As there.
    match: Which documents are candidates at all.
    fill: Whether the longest others follow where there are too few.

  Returns:
    (documents, lengths), and how many of them are candidates.
  """

  def build() -> dict[str, np.ndarray]:
    documents, lengths = document_selection.select(
      _batches(store), mode, limits, count, key, matches=match.of(store)
    )
    found = len(documents)
    if fill and count is not None and found < count:
      extra = document_selection.select(
        _batches(store),
        "longest",
        _only_subset(limits),
        count - found,
        0,
        exclude=documents,
        matches=match.of(store),
      )
      documents = np.concatenate([documents, extra[0]])
      lengths = np.concatenate([lengths, extra[1]])
    found = np.asarray([found], np.int64)
    return {"documents": documents, "lengths": lengths, "found": found}

  rule = {
    "mode": mode,
    "limits": dataclasses.asdict(limits),
    "count": count,
    "key": key if mode == "random" else None,
    "fill": fill,
    **match.rule,
  }
  # A pass that ends with the first documents finds them again as quickly.
  unlimited = limits == document_selection.Limits() and not match.rule
  short = mode == "first" and count is not None and unlimited
  arrays = kept(
    store, "selection", rule, build, 0 if short else store.num_documents
  )
  chosen = arrays["documents"], arrays["lengths"]
  return chosen, int(arrays["found"].read()[0])


def _narrowed(values: np.ndarray) -> np.ndarray:
  """Returns numbers from 0 on in 4 bytes each, where they fit."""
  narrow = int(values.max(initial=0)) <= _NARROW
  return values.astype(np.uint32) if narrow else values


def select_several(
  store: stores.Store,
  options: options_lib.SelectionOptions,
  count: int | None,
  strict: bool,
  seq_len: int,
  path: str,
) -> Selected:
  """Chooses `count` documents, or all candidates where it is None.

  Args:
    store: Where the documents are.
    options: Policy and limits.
    count: How many.
    strict: Whether too few candidates is an error; otherwise the longest
      other documents fill up.
    seq_len: Positions of a row, for the training subset.
    path: Dotted path of the options, for messages.

  Returns:
    (documents, lengths).

  Raises:
    ConfigError: If there are too few candidates.
  """
  limits = options.limits(seq_len)
  mode = options.doc_select_mode
  key = _random_key(store, options, count)
  match = Match.from_options(store, options)
  chosen, found = _select(
    store, mode, limits, count, key, match, fill=not strict
  )
  if not found and (strict or not store.num_documents):
    raise schema.ConfigError(
      [
        f"`{path}` must select a document, got 0 of {store.num_documents}"
        f" within {_limits_text(options)}. Widen the limits."
      ]
    )
  if count is None or found >= count:
    return chosen
  if strict:
    raise schema.ConfigError(
      [
        f"`{path}.num_docs` must be at most the number of candidates, got"
        f" {count} with {found} of {store.num_documents} documents within"
        f" {_limits_text(options)}. Ask for fewer, widen the limits, or set"
        " `strict_num_docs` to False to fill up with the longest others."
      ]
    )
  others = chosen[1].take(np.arange(found, len(chosen[1])))
  logging.warning(
    "%s: %d of num_docs=%d documents are within %s; filled up with the"
    " longest %d others (shortest of them: %s tokens).",
    path,
    found,
    count,
    _limits_text(options),
    len(others),
    int(others.min()) if len(others) else 0,
  )
  return chosen


def select_single(
  store: stores.Store,
  options: options_lib.SelectionOptions,
  doc_index: int | None,
  seq_len: int,
  path: str,
) -> Selected:
  """Chooses one document.

  A `doc_key` that is an id is taken whatever its length, and one that is a
  pattern leaves the policy the documents that match; `doc_index` is taken where
  it is within the limits, else the policy with a warning; a policy without
  candidates falls back to the longest document that matches, with a warning.

  Args:
    store: Where the documents are.
    options: Policy and limits.
    doc_index: A document's index, or None.
    seq_len: Positions of a row, for the training subset.
    path: Dotted path of the options, for messages.

  Returns:
    (documents, lengths) of one.

  Raises:
    ConfigError: If there is no such document, or several with the id.
  """
  match = Match.from_options(store, options)
  limits = options.limits(seq_len)
  if match.documents is not None:
    return _held(_by_key(store, match, limits, path))
  wanted = None
  if doc_index is not None:
    wanted = _by_index(store, doc_index, path)
    if _admits(store, limits, match, wanted):
      return _held(wanted)
  key = _random_key(store, options, 1)
  mode = options.doc_select_mode
  chosen, found = _select(store, mode, limits, 1, key, match)
  if not found:
    chosen, found = _select(
      store, "longest", _only_subset(limits), 1, key, match
    )
    if not found:
      raise schema.ConfigError(
        [
          f"`{path}` must select a document, got none within"
          f" {_limits_text(options)} in {store.path}. Widen the limits, or"
          " prepare a store that holds more text."
        ]
      )
    logging.warning(
      "%s: no document is within %s (doc_index=%s, doc_select_mode=%r); fell"
      " back to the longest, document %d of %d tokens.",
      path,
      _limits_text(options),
      doc_index,
      options.doc_select_mode,
      *_first(chosen),
    )
  elif wanted is not None:
    logging.warning(
      "%s: doc_index=%d has %d tokens, outside %s; doc_select_mode=%r chose"
      " document %d of %d tokens instead.",
      path,
      doc_index,
      wanted[1][0],
      _limits_text(options),
      options.doc_select_mode,
      *_first(chosen),
    )
  return chosen


def _held(documents: Documents) -> Selected:
  return columns.ArrayColumn(documents[0]), columns.ArrayColumn(documents[1])


def _first(chosen: Selected) -> tuple[int, int]:
  """Returns the first document and its length."""
  first = np.zeros(1, np.int64)
  return int(chosen[0].take(first)[0]), int(chosen[1].take(first)[0])


def _batches(store: stores.Store) -> document_selection.LengthBatches:
  """Returns lengths in batches small enough to leave no large hole behind."""
  return lambda: store.iter_lengths(_BATCH)


def _only_subset(
  limits: document_selection.Limits,
) -> document_selection.Limits:
  """Drops the length limits and keeps the training subset."""
  return document_selection.Limits(last_token=limits.last_token)


def _by_key(
  store: stores.Store,
  match: Match,
  limits: document_selection.Limits,
  path: str,
) -> Documents:
  documents = np.asarray(match.documents, np.int64)
  if len(documents) != 1:
    has = "no document" if not len(documents) else f"{len(documents)} documents"
    raise schema.ConfigError(
      [
        f"`{path}.doc_key` must be the id of one document, or a pattern such as"
        f" 'law/*', got {match.doc_key!r}, which {has} of {store.path} has."
        " Correct it, or use `doc_index`."
        + ("" if len(documents) else store.closest_id(match.doc_key or ""))
      ]
    )
  found = documents, store.bounds(documents)[1]
  if not _admits(store, _only_subset(limits), Match(), found):
    raise schema.ConfigError(
      [
        f"`{path}.doc_key` must name a document of the training subset (its"
        f" first {limits.last_token} tokens), got {match.doc_key!r}. Enlarge"
        " the subset, or choose another document."
      ]
    )
  matches = match.of(store)
  if matches is not None and not matches(documents)[0]:
    raise schema.ConfigError(
      [
        f"`{path}.doc_key` must name a document with the values of"
        f" `{path}.doc_meta`, got {match.doc_key!r} with"
        f" {dict(match.doc_meta)!r}. Correct one of them, or unset doc_meta."
      ]
    )
  return found


def _by_index(store: stores.Store, doc_index: int, path: str) -> Documents:
  if doc_index >= store.num_documents:
    raise schema.ConfigError(
      [
        f"`{path}.doc_index` must be below the number of documents, got"
        f" {doc_index} with {store.num_documents} in {store.path}. Choose one"
        f" of 0 .. {store.num_documents - 1}."
      ]
    )
  documents = np.asarray([doc_index], np.int64)
  return documents, store.bounds(documents)[1]


def _admits(
  store: stores.Store,
  limits: document_selection.Limits,
  match: Match,
  wanted: Documents,
) -> bool:
  first_token, lengths = store.bounds(wanted[0])
  matches = match.of(store)
  if matches is not None and not matches(wanted[0])[0]:
    return False
  return bool(limits.admit(lengths, int(first_token[0]))[0])


def _random_key(store, options, count: int | None) -> int:
  """Depends on the store and the selection, never on the run's seed."""
  return hashing.fold_key(
    store.hash,
    "select",
    options.min_doc_length or 0,
    options.max_doc_length or 0,
    count or 0,
  )


def _limits_text(options: options_lib.SelectionOptions) -> str:
  parts = [
    f"{name}={getattr(options, name)}"
    for name in ("min_doc_length", "max_doc_length")
    if getattr(options, name) is not None
  ]
  if options.doc_key is not None:
    parts.append(f"doc_key={options.doc_key!r}")
  if options.doc_meta is not None:
    parts.append(f"doc_meta={dict(options.doc_meta)!r}")
  if options.restrict_to_training_subset:
    parts.append(
      f"initial_batch_size={options.initial_batch_size} x"
      f" max_train_batches={options.max_train_batches} rows"
    )
  return ", ".join(parts) or "1 token or more"
