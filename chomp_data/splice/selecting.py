# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Which documents of a store are read: options, policies and fallbacks.

    lengths    30 50 20 50 10 40
    'first'    0, 1, 2, ...
    'longest'  1, 3, 5, ...          ties go to the lower document
    'shortest' 4, 2, 0, ...

Only lengths are read, and ids and metadata where options name them; tokens of
other documents never are. The selection from a large store is stored beside it,
for other processes and runs.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
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
from chomp_data.stores import document_fields

SELECT_MODES = ("first", "longest", "shortest", "random")

# Documents whose lengths are read at once, and the fewest candidates to sort.
_BATCH = 2**15

# The characters of a pattern of ids.
_WILDCARDS = frozenset("*?[")

_COUNT = schema.optional(schema.integer(1))


def named_pairs(value: Any) -> list[tuple[str, Any]]:
  """Returns the pairs of a mapping, or of a list of pairs.

  Raises:
    TypeError: If it is neither, or a name is no text.
    ValueError: If a name is empty, or comes twice.
  """
  if isinstance(value, str):
    raise TypeError
  items = value.items() if isinstance(value, Mapping) else value
  pairs = [(schema.text().convert(name), inner) for name, inner in items]
  if len(dict(pairs)) < len(pairs):
    raise ValueError
  return pairs


def _metadata_fields(value: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
  fields = []
  for name, values in named_pairs(value):
    values = (values,) if isinstance(values, str) else tuple(values)
    if not all(isinstance(text, str) for text in values):
      raise TypeError
    if not values:
      raise ValueError
    fields.append((name, tuple(sorted(set(values)))))
  if not fields:
    raise ValueError
  return tuple(sorted(fields))


_METADATA = schema.Rule(
  "a mapping (or a list of pairs) of names of metadata fields to a value or a"
  " list of values",
  _metadata_fields,
)


@dataclasses.dataclass(frozen=True)
class Limits:
  """Which documents are candidates.

  Attributes:
    min_length: Fewest tokens, or None.
    max_length: Most tokens, or None.
    last_token: A document's last token must come before this token of the
      store, or None for no limit.
  """

  min_length: int | None = None
  max_length: int | None = None
  last_token: int | None = None

  def admit(self, lengths: np.ndarray, first_token: int) -> np.ndarray:
    """Returns bool[n] for consecutive documents from `first_token` on."""
    fits = lengths > 0
    if self.min_length is not None:
      fits &= lengths >= self.min_length
    if self.max_length is not None:
      fits &= lengths <= self.max_length
    if self.last_token is not None:
      fits &= first_token + np.cumsum(lengths) <= self.last_token
    return fits


_OF_SUBSET = (
  "Correct it, or leave it out where restrict_to_training_subset is False."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectionOptions(schema.Options):
  """Which documents of a store are read.

  Attributes:
    doc_select_mode: Which documents are taken first.
    min_doc_length: Shortest document that is read, in tokens; None for no
      limit.
    max_doc_length: Longest document that is read, in tokens; None for no limit.
    restrict_to_training_subset: Whether to read only documents that another,
      unshuffled run over the same store reads: the first seq_len *
      `initial_batch_size` * `max_train_batches` tokens.
    initial_batch_size: Rows per batch of the run that
      `restrict_to_training_subset` refers to.
    max_train_batches: Batches of the run that `restrict_to_training_subset`
      refers to.
    doc_key: Id of the document to read, or a pattern of ids such as 'law/*'
      that selects candidates: '*' is any text, '?' any character, '[ab]' one of
      these. An id that equals the text takes precedence over the pattern.
    doc_meta: Values of metadata fields that documents must have, such as
      {'lang': 'en', 'source': ('wiki', 'books')}, of a store that was prepared
      with --meta_keys.
  """

  doc_select_mode: str = schema.option("longest", schema.choice(SELECT_MODES))
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
        " to those of the run whose tokens form the subset."
      )
    return problems

  def limits(self, seq_len: int) -> Limits:
    """Returns these fields as limits on documents."""
    last_token = None
    if self.restrict_to_training_subset:
      batch, count = self.initial_batch_size, self.max_train_batches
      last_token = seq_len * (batch or 0) * (count or 0)
    return Limits(
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


class Selection:
  """Chooses documents of a store, by policy and limits."""

  def __init__(
    self,
    store: stores.Store,
    options: SelectionOptions,
    seq_len: int,
    path: str,
  ):
    """Looks up `doc_key`.

    Args:
      store: Where the documents are.
      options: Policy and limits.
      seq_len: Positions of a row, for the training subset.
      path: Dotted path of the options, for messages.
    """
    self._store, self._options, self._path = store, options, path
    self._limits = options.limits(seq_len)
    # The documents whose id is `doc_key`; None where it is unset, or a pattern
    # that is no document's id.
    self._named: list[int] | None = None
    key = options.doc_key
    if key is not None:
      documents = store.opened.ids.find([key])[key]
      if documents or not set(key) & _WILDCARDS:
        self._named = documents

  def several(self, count: int | None, strict: bool) -> Selected:
    """Chooses `count` documents, or all candidates where it is None.

    Args:
      count: How many.
      strict: Whether too few candidates is an error; otherwise the longest
        other documents fill up.

    Raises:
      ConfigError: If there are too few candidates.
    """
    store, within = self._store, self._limits_text()
    selected, num_candidates = self._select(count, fill=not strict)
    if not num_candidates and (strict or not store.num_documents):
      raise self._error(
        f"` must select a document, got 0 of {store.num_documents} within"
        f" {within}. Widen the limits."
      )
    if count is None or num_candidates >= count:
      return selected
    if strict:
      raise self._error(
        ".num_docs` must be at most the number of candidates, got"
        f" {count} with {num_candidates} of {store.num_documents} documents"
        f" within {within}. Ask for fewer, widen the limits, or"
        " set `strict_num_docs` to False to fill up with the longest others."
      )
    others = selected.lengths.read()[num_candidates:]
    logging.warning(
      "%s: %d of num_docs=%d documents are within %s; filled up with the"
      " longest %d others (shortest of them: %s tokens).",
      self._path,
      num_candidates,
      count,
      within,
      len(others),
      int(others.min()) if len(others) else 0,
    )
    return selected

  def single(self, doc_index: int | None) -> Selected:
    """Chooses one document.

    A `doc_key` that is an id is taken whatever its length, and one that is a
    pattern leaves the policy the documents that match; `doc_index` is taken
    where it is within the limits, else the policy with a warning; a policy
    without candidates falls back to the longest document that matches, with a
    warning.

    Args:
      doc_index: A document's index, or None.

    Raises:
      ConfigError: If there is no such document, or several with the id.
    """
    store, within = self._store, self._limits_text()
    if self._named is not None:
      return self._selected(self._checked_key(self._named))
    if doc_index is not None:
      if doc_index >= store.num_documents:
        raise self._error(
          ".doc_index` must be below the number of documents, got"
          f" {doc_index} with {store.num_documents} in {store.path}. Choose one"
          f" of 0 .. {store.num_documents - 1}."
        )
      if self._admits(doc_index):
        return self._selected(doc_index)
    mode = self._options.doc_select_mode
    selected, num_candidates = self._select(1)
    if num_candidates:
      if doc_index is None:
        return selected
      length = store.bounds(np.asarray([doc_index]))[1][0]
      reason = (
        f"doc_index={doc_index} has {length} tokens, outside {within};"
        f" doc_select_mode={mode!r} chose instead"
      )
    else:
      selected, num_candidates = self._select(1, longest=True)
      if not num_candidates:
        raise self._error(
          f"` must select a document, got none within {within} in"
          f" {store.path}. Widen the limits, or prepare a store that holds"
          " more text."
        )
      reason = (
        f"no document is within {within} (doc_index={doc_index},"
        f" doc_select_mode={mode!r}); fell back to the longest,"
      )
    document, length = (column.read()[0] for column in selected)
    logging.warning(
      "%s: %s document %d of %d tokens.", self._path, reason, document, length
    )
    return selected

  def _select(
    self, count: int | None, fill: bool = False, longest: bool = False
  ) -> tuple[Selected, int]:
    """Selects candidates; the selection of a large store is stored beside it.

    Args:
      count: The number of documents, or None for all candidates.
      fill: Whether the longest other documents of the training subset follow
        if there are too few candidates.
      longest: Whether to select the longest of the training subset.

    Returns:
      (the documents and their lengths, the number of candidates among them).
    """
    store, options = self._store, self._options
    mode = "longest" if longest else options.doc_select_mode
    subset = Limits(last_token=self._limits.last_token)
    limits = subset if longest else self._limits
    # Runs with different seeds must select the same documents.
    key = hashing.fold_key(
      store.hash,
      "select",
      limits.min_length or 0,
      limits.max_length or 0,
      count or 0,
    )
    rule = {"doc_key": options.doc_key, "doc_meta": options.doc_meta}
    rule = {name: value for name, value in rule.items() if value}

    def best(mode: str, limits: Limits) -> tuple[np.ndarray, np.ndarray]:
      # Small batches, so that freed memory does not stay fragmented.
      batches, matches = store.iter_lengths(_BATCH), self._matches
      return best_documents(
        batches, mode, limits, count, key, matches if rule else None
      )

    def build() -> dict[str, np.ndarray]:
      documents, lengths = best(mode, limits)
      num_candidates = len(documents)
      if fill and count is not None and num_candidates < count:
        longest, longest_lengths = best("longest", subset)
        extra = np.flatnonzero(~np.isin(longest, documents))
        extra = extra[: count - num_candidates]
        documents = np.concatenate([documents, longest[extra]])
        lengths = np.concatenate([lengths, longest_lengths[extra]])
      return {
        "documents": documents,
        "lengths": lengths,
        "found": np.asarray([num_candidates], np.int64),
      }

    # A pass that ends after the first documents is as fast as reading them.
    short = mode == "first" and count is not None and limits == Limits()
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
      0 if short and not rule else store.num_documents,
    )
    selected = Selected(arrays["documents"], arrays["lengths"])
    return selected, int(arrays["found"].read()[0])

  def _selected(self, document: int) -> Selected:
    """Returns a document that an option names."""
    documents = np.asarray([document], np.int64)
    lengths = self._store.bounds(documents)[1]
    return Selected(
      columns.ArrayColumn(documents), columns.ArrayColumn(lengths)
    )

  def _matches(self, documents: np.ndarray) -> np.ndarray:
    """Returns bool[N], whether documents have the options' id and metadata."""
    fits = np.ones(len(documents), np.bool_)
    key, metadata = self._options.doc_key, self._options.doc_meta
    if self._named is not None:
      fits = np.isin(documents, self._named)
    elif key is not None:
      pattern = re.compile(fnmatch.translate(key))
      ids = self._store.document_ids(documents)
      fits = np.asarray([bool(pattern.match(i)) for i in ids], np.bool_)
    index = np.flatnonzero(fits)
    if metadata and len(index):
      fields = [field for field, _ in metadata]
      rows = document_fields.values(self._store, documents[index], fields)
      fits[index] = [
        all(
          value in accepted
          for value, (_, accepted) in zip(row, metadata, strict=True)
        )
        for row in rows
      ]
    return fits

  def _admits(self, document: int) -> bool:
    """Returns whether a document is a candidate."""
    return self._is_within(document, self._limits) and self._has(document)

  def _is_within(self, document: int, limits: Limits) -> bool:
    first_token, lengths = self._store.bounds(np.asarray([document], np.int64))
    return bool(limits.admit(lengths, int(first_token[0]))[0])

  def _has(self, document: int) -> bool:
    return bool(self._matches(np.asarray([document], np.int64))[0])

  def _checked_key(self, named: list[int]) -> int:
    """Returns the only document whose id is `doc_key`."""
    store, key = self._store, self._options.doc_key or ""
    if len(named) != 1:
      has = "no document" if not named else f"{len(named)} documents"
      raise self._error(
        f".doc_key` must be the id of one document, or a pattern such as"
        f" 'law/*', got {key!r}, which {has} of {store.path} has."
        " Correct it, or use `doc_index`."
        + ("" if named else store.opened.ids.closest(key))
      )
    last_token = self._limits.last_token
    if not self._is_within(named[0], Limits(last_token=last_token)):
      raise self._error(
        f".doc_key` must name a document of the training subset (its"
        f" first {last_token} tokens), got {key!r}. Enlarge the subset, or"
        " choose another document."
      )
    if not self._has(named[0]):
      raise self._error(
        f".doc_key` must name a document with the values of"
        f" `{self._path}.doc_meta`, got {key!r} with"
        f" {dict(self._options.doc_meta or ())!r}. Correct one of them, or"
        " unset doc_meta."
      )
    return named[0]

  def _error(self, rest: str) -> schema.ConfigError:
    """Returns an error about the options, from their path on."""
    return schema.ConfigError([f"`{self._path}{rest}"])

  def _limits_text(self) -> str:
    options = self._options
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


def best_documents(
  batches: Iterable[tuple[int, np.ndarray]],
  mode: str,
  limits: Limits,
  count: int | None,
  key: int,
  matches: Callable[[np.ndarray], np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
  """Chooses up to `count` documents, in the memory of a few batches.

      lengths [3, 9, 4, 9], 'longest', count 3 -> documents [1, 3, 2]

  Args:
    batches: Yields (first document, int64[n] lengths), consecutive.
    mode: One of SELECT_MODES. Ties go to the lower document.
    limits: Which documents are candidates.
    count: How many to choose, or None for every candidate.
    key: Key of 'random'.
    matches: Which of documents int64[n] within the limits are candidates,
      bool[n]; None is all.

  Returns:
    (documents, lengths), int64 each, best first: in store order for 'first',
    by length for 'longest' and 'shortest', in a seeded order for 'random'.
  """
  # Documents, lengths and ranks int64[3, n]; a lower rank is better.
  best = np.empty((3, 0), np.int64)
  first_token, parts, num_pending = 0, [best], 0
  # Later documents lose ties, so they must have a rank below this one.
  worst_rank = np.iinfo(np.int64).max
  for first_document, lengths in batches:
    lengths = np.asarray(lengths, np.int64)
    index = np.flatnonzero(limits.admit(lengths, first_token))
    first_token += int(lengths.sum())
    if matches is not None:
      index = index[matches(first_document + index)]
    documents, lengths = first_document + index, lengths[index]
    rank = _rank(mode, documents, lengths, key)
    candidates = np.stack([documents, lengths, rank])
    parts.append(candidates[:, rank < worst_rank])
    num_pending += parts[-1].shape[1]
    if count is None:
      continue
    if mode == "first" and num_pending >= count:
      break
    if num_pending > 2 * max(count, _BATCH):
      # Twice as many as needed: each is sorted only a few times.
      best = _sorted(parts)[:, :count]
      parts, num_pending = [best], best.shape[1]
      worst_rank = int(best[2, -1])
  documents, lengths, _ = _sorted(parts)[:, :count]
  return documents, lengths


def _rank(
  mode: str, documents: np.ndarray, lengths: np.ndarray, key: int
) -> np.ndarray:
  """Returns int64[n]; lower is better."""
  match mode:
    case "first":
      return documents
    case "longest":
      return -lengths
    case "shortest":
      return lengths
    case _:
      hashes = hashing.fold(key, documents) >> np.uint64(1)
      return hashes.astype(np.int64)


def _sorted(parts: Sequence[np.ndarray]) -> np.ndarray:
  """Returns int64[3, n], candidates by rank, then by number."""
  candidates = np.concatenate(parts, axis=1)
  return candidates[:, np.argsort(candidates[2], kind="stable")]
