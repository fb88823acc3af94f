# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Which documents of a store are read: options, policies and fallbacks.

    num_docs 2, doc_select_mode 'longest', max_doc_length 40
    lengths  30 50 20 50 10 40   ->   documents 5, 0

Only lengths are read, and ids and metadata where options name them; tokens of
other documents never are. What is selected of a large store is stored beside
it, for other processes and runs.
"""

from collections.abc import Mapping
import dataclasses
import fnmatch
import re
from typing import Any
from typing import NamedTuple

from absl import logging
import numpy as np

from chomp_data import schema
from chomp_data import stores
from chomp_data.index import columns
from chomp_data.index import hashing
from chomp_data.sources import document_columns
from chomp_data.splice import document_selection
from chomp_data.stores import document_fields

# Documents whose lengths are read at once.
_BATCH = 2**15

# The characters of a pattern of ids.
_WILDCARDS = frozenset("*?[")

_COUNT = schema.optional(schema.integer(1))


def _metadata_fields(value: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
  items = value.items() if isinstance(value, Mapping) else value
  if isinstance(items, str):
    raise TypeError
  text, fields = schema.text(), {}
  for name, values in items:
    values = (values,) if isinstance(values, str) else values
    if text.convert(name) in fields or not values:
      raise ValueError
    if not all(isinstance(one, str) for one in values):
      raise TypeError
    fields[name] = tuple(sorted(set(values)))
  if not fields:
    raise ValueError
  return tuple(sorted(fields.items()))


_METADATA = schema.Rule(
  "a mapping (or a list of pairs) of names of metadata fields to a value or a"
  " list of values",
  _metadata_fields,
)

_OF_SUBSET = (
  "Correct it, or leave it out where restrict_to_training_subset is False."
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
      character, '[ab]' one of these. Where a document has this very text as
      its id, it is that document.
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
    None, schema.optional(_METADATA)
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


class Selected(NamedTuple):
  """Selected documents, in the order of the policy.

  Attributes:
    documents: Their numbers in the store.
    lengths: Their tokens.
  """

  documents: columns.Column
  lengths: columns.Column


def select_several(
  store: stores.Store,
  options: SelectionOptions,
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

  Raises:
    ConfigError: If there are too few candidates.
  """
  candidates = _Candidates(store, options, seq_len)
  selected, num_candidates = candidates.select(count, fill=not strict)
  if not num_candidates and (strict or not store.num_documents):
    raise schema.ConfigError(
      [
        f"`{path}` must select a document, got 0 of {store.num_documents}"
        f" within {_limits_text(options)}. Widen the limits."
      ]
    )
  if count is None or num_candidates >= count:
    return selected
  if strict:
    raise schema.ConfigError(
      [
        f"`{path}.num_docs` must be at most the number of candidates, got"
        f" {count} with {num_candidates} of {store.num_documents} documents"
        f" within {_limits_text(options)}. Ask for fewer, widen the limits, or"
        " set `strict_num_docs` to False to fill up with the longest others."
      ]
    )
  others = selected.lengths.read()[num_candidates:]
  logging.warning(
    "%s: %d of num_docs=%d documents are within %s; filled up with the"
    " longest %d others (shortest of them: %s tokens).",
    path,
    num_candidates,
    count,
    _limits_text(options),
    len(others),
    int(others.min()) if len(others) else 0,
  )
  return selected


def select_single(
  store: stores.Store,
  options: SelectionOptions,
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
    One document.

  Raises:
    ConfigError: If there is no such document, or several with the id.
  """
  candidates = _Candidates(store, options, seq_len)
  if candidates.named is not None:
    return _one(store, _checked_key(candidates, path))
  if doc_index is not None:
    if doc_index >= store.num_documents:
      raise schema.ConfigError(
        [
          f"`{path}.doc_index` must be below the number of documents, got"
          f" {doc_index} with {store.num_documents} in {store.path}. Choose one"
          f" of 0 .. {store.num_documents - 1}."
        ]
      )
    if candidates.admits(doc_index):
      return _one(store, doc_index)
  selected, num_candidates = candidates.select(1)
  if not num_candidates:
    selected, num_candidates = candidates.select(1, fallback=True)
    if not num_candidates:
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
      *(column.read()[0] for column in selected),
    )
  elif doc_index is not None:
    logging.warning(
      "%s: doc_index=%d has %d tokens, outside %s; doc_select_mode=%r chose"
      " document %d of %d tokens instead.",
      path,
      doc_index,
      store.bounds(np.asarray([doc_index]))[1][0],
      _limits_text(options),
      options.doc_select_mode,
      *(column.read()[0] for column in selected),
    )
  return selected


class _Candidates:
  """The documents of a store that options admit for selection.

  Attributes:
    store: The store.
    options: The options.
    limits: On lengths, and the training subset.
    named: The documents whose id is `doc_key`; None where it is unset, or a
      pattern that is no document's id.
  """

  def __init__(
    self, store: stores.Store, options: SelectionOptions, seq_len: int
  ):
    self.store, self.options = store, options
    self.limits = options.limits(seq_len)
    self.named: list[int] | None = None
    key = options.doc_key
    if key is not None:
      documents = store.find_documents([key])[key]
      if documents or not set(key) & _WILDCARDS:
        self.named = documents

  def matches(self, documents: np.ndarray) -> np.ndarray:
    """Returns bool[N], whether documents have the options' id and metadata."""
    fits = np.ones(len(documents), np.bool_)
    key, metadata = self.options.doc_key, self.options.doc_meta
    if self.named is not None:
      fits = np.isin(documents, self.named)
    elif key is not None:
      pattern = re.compile(fnmatch.translate(key))
      ids = self.store.document_ids(documents)
      fits = np.asarray([bool(pattern.match(i)) for i in ids], np.bool_)
    index = np.flatnonzero(fits)
    if metadata and len(index):
      fields = [field for field, _ in metadata]
      rows = document_fields.values(self.store, documents[index], fields)
      fits[index] = [
        all(
          value in accepted
          for value, (_, accepted) in zip(row, metadata, strict=True)
        )
        for row in rows
      ]
    return fits

  def admits(self, document: int) -> bool:
    """Returns whether a document is a candidate."""
    documents = np.asarray([document], np.int64)
    first_token, lengths = self.store.bounds(documents)
    within = self.limits.admit(lengths, int(first_token[0]))
    return bool(within[0] and self.matches(documents)[0])

  def select(
    self, count: int | None, fill: bool = False, fallback: bool = False
  ) -> tuple[Selected, int]:
    """Selects candidates by `doc_select_mode`.

    The selection of a large store is stored beside it.

    Args:
      count: The number of documents, or None for all candidates.
      fill: Whether the longest other documents follow if there are too few
        candidates.
      fallback: Whether to select the longest of the training subset, ignoring
        the limits on lengths.

    Returns:
      (the documents and their lengths, the number of candidates among them).
    """
    store, options = self.store, self.options
    subset = document_selection.Limits(last_token=self.limits.last_token)
    limits = subset if fallback else self.limits
    mode = "longest" if fallback else options.doc_select_mode
    # Runs with different seeds must select the same documents.
    key = hashing.fold_key(
      store.hash,
      "select",
      options.min_doc_length or 0,
      options.max_doc_length or 0,
      count or 0,
    )
    rule = {"doc_key": options.doc_key, "doc_meta": options.doc_meta}
    rule = {name: value for name, value in rule.items() if value}
    matches = self.matches if rule else None

    def build() -> dict[str, np.ndarray]:
      # Small batches, so that freed memory does not stay fragmented.
      documents, lengths = document_selection.select(
        store.iter_lengths(_BATCH), mode, limits, count, key, matches=matches
      )
      num_candidates = len(documents)
      if fill and count is not None and num_candidates < count:
        others, other_lengths = document_selection.select(
          store.iter_lengths(_BATCH),
          "longest",
          subset,
          count - num_candidates,
          0,
          exclude=documents,
          matches=matches,
        )
        documents = np.concatenate([documents, others])
        lengths = np.concatenate([lengths, other_lengths])
      return {
        "documents": documents,
        "lengths": lengths,
        "found": np.asarray([num_candidates], np.int64),
      }

    # A pass that ends after the first documents is as fast as reading them.
    unlimited = limits == document_selection.Limits() and not rule
    short = mode == "first" and count is not None and unlimited
    arrays = document_columns.load_or_build(
      store,
      "selection",
      {
        "mode": mode,
        "limits": dataclasses.asdict(limits),
        "count": count,
        "key": key if mode == "random" else None,
        "fill": fill,
        **rule,
      },
      build,
      0 if short else store.num_documents,
    )
    selected = Selected(arrays["documents"], arrays["lengths"])
    return selected, int(arrays["found"].read()[0])


def _one(store: stores.Store, document: int) -> Selected:
  documents = np.asarray([document], np.int64)
  lengths = store.bounds(documents)[1]
  return Selected(columns.ArrayColumn(documents), columns.ArrayColumn(lengths))


def _checked_key(candidates: _Candidates, path: str) -> int:
  """Returns the only document whose id is `doc_key`.

  Raises:
    ConfigError: If there is none or several, or if it is not in the training
      subset or without the metadata.
  """
  store, options = candidates.store, candidates.options
  key, documents = options.doc_key or "", candidates.named or []
  if len(documents) != 1:
    has = "no document" if not documents else f"{len(documents)} documents"
    raise schema.ConfigError(
      [
        f"`{path}.doc_key` must be the id of one document, or a pattern such as"
        f" 'law/*', got {key!r}, which {has} of {store.path} has."
        " Correct it, or use `doc_index`."
        + ("" if documents else store.closest_id(key))
      ]
    )
  first_token, lengths = store.bounds(np.asarray(documents))
  last_token = candidates.limits.last_token
  subset = document_selection.Limits(last_token=last_token)
  if not subset.admit(lengths, int(first_token[0]))[0]:
    raise schema.ConfigError(
      [
        f"`{path}.doc_key` must name a document of the training subset (its"
        f" first {last_token} tokens), got {key!r}. Enlarge the subset, or"
        " choose another document."
      ]
    )
  if not candidates.matches(np.asarray(documents))[0]:
    raise schema.ConfigError(
      [
        f"`{path}.doc_key` must name a document with the values of"
        f" `{path}.doc_meta`, got {key!r} with"
        f" {dict(options.doc_meta or ())!r}. Correct one of them, or unset"
        " doc_meta."
      ]
    )
  return documents[0]


def _limits_text(options: SelectionOptions) -> str:
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
