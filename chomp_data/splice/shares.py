# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Shares of documents in the rows of an epoch: by group, then within groups.

    lengths  10_000  5_000  2_000    17 rows, tau 1
    quotas       10      5      2

Both divisions follow the largest-remainder rule with ties to the lower index,
for epochs of any number of rows over any first documents. All arithmetic is on
integers or fractions, so the quotas are the same on every machine.

Options name documents by id and groups by name:

    selected documents      a  b  c  d
    groups (('x', [b, d]),)
    group of each           1  0  1  0     of the names 'x', 'rest'

Ids that name no selected document are errors; all of them are listed.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import fractions
import math

import numpy as np

from chomp_data import errors
from chomp_data import schema
from chomp_data import stores
from chomp_data.index import columns
from chomp_data.sources import document_columns
from chomp_data.splice import powers
from chomp_data.splice.options import MultiSpliceOptions
from chomp_data.splice.options import REST
from chomp_data.stores import document_fields

# Most ids, groups or documents named in one message.
_MAX_LISTED = 5

# Weights must be below this.
_MAX_LENGTH = 2**62


@dataclasses.dataclass(frozen=True)
class DocumentShares:
  """Options of single documents, by their index in the selected documents.

  Attributes:
    weights: Extra weights; the others are 1.
    overrides: (content_stride, alpha) of documents for which one is set.
    groups: int64[D], each document's group, or None for no groups.
    group_names: Names by number.
    group_weights: Weights by number; the others are 1.
  """

  weights: dict[int, fractions.Fraction]
  overrides: dict[int, tuple[int, float]]
  groups: np.ndarray | None
  group_names: tuple[str, ...]
  group_weights: dict[int, fractions.Fraction]


def resolve(
  store: stores.Store,
  documents: columns.Column,
  options: MultiSpliceOptions,
  path: str,
) -> DocumentShares:
  """Finds the documents that options name.

  Args:
    store: Where the documents are.
    documents: The selected documents.
    options: Which documents weigh more, differ or form groups.
    path: Dotted path of the options, for messages.

  Raises:
    ConfigError: If an id or a group is not one of the selected documents'.
  """
  named: dict[str, list[str]] = {
    "doc_weights": [name for name, _ in options.doc_weights or ()],
    "doc_overrides": [name for name, _ in options.doc_overrides or ()],
    "groups": [name for _, ids in options.groups or () for name in ids],
  }
  slots, problems = _slots(store, documents, named, path)
  weights = {
    slot: powers.exact(weight)
    for name, weight in options.doc_weights or ()
    for slot in slots[name]
  }
  defaults = {"content_stride": options.content_stride, "alpha": options.alpha}
  overrides: dict[int, tuple[int, float]] = {}
  for name, fields in options.doc_overrides or ():
    values = {**defaults, **dict(fields)}
    stride, alpha = int(values["content_stride"]), float(values["alpha"])
    overrides.update(dict.fromkeys(slots[name], (stride, alpha)))
  names, groups = _groups(store, documents, options, slots, path)
  number = {name: i for i, name in enumerate(names)}
  weight_of = dict(options.group_weights or ())
  listed = errors.listed([*map(repr, names)], _MAX_LISTED)
  unknown = [n for n in weight_of if n not in number] if names else []
  problems += [
    f"`{path}.group_weights` must name groups of the selected documents, got"
    f" {name!r}. Groups: {listed}.{schema.did_you_mean(name, names)}"
    for name in unknown
  ]
  group_weights = {
    number[name]: powers.exact(weight)
    for name, weight in weight_of.items()
    if name in number
  }
  if names and not any(group_weights.get(i, 1) for i in range(len(names))):
    problems.append(
      f"`{path}.group_weights` must leave a group with a positive weight, got"
      " only zeros. Raise one."
    )
  if problems:
    raise schema.ConfigError(problems)
  return DocumentShares(weights, overrides, groups, names, group_weights)


def check(
  shares: DocumentShares,
  options: MultiSpliceOptions,
  usable: np.ndarray,
  path: str,
) -> None:
  """Raises an error if all weights are 0, or a group gets no row.

  Args:
    shares: What the options set for single documents.
    options: The options.
    usable: bool[D], documents that can be copied.
    path: Dotted path of the options, for messages.

  Raises:
    ConfigError: If there is such a group, or no document is left.
  """
  problems = []
  served = usable.copy()
  served[[slot for slot, weight in shares.weights.items() if not weight]] = (
    False
  )
  if shares.weights and not np.any(served):
    problems.append(
      f"`{path}.doc_weights` must leave a document with a positive weight,"
      " got only zeros. Raise one."
    )
  elif shares.groups is not None:
    reached = set(shares.groups[served].tolist())
    listed = {name for name, _ in options.groups or ()}
    listed |= {name for name, _ in options.group_weights or ()}
    problems += [
      f"`{path}.groups` must each hold a document that can be copied and"
      f" weighs more than 0, got none in {name!r}. Leave the group out, weigh"
      " it 0, or choose longer documents."
      for i, name in enumerate(shares.group_names)
      if name in listed and i not in reached and shares.group_weights.get(i, 1)
    ]
  if problems:
    raise schema.ConfigError(problems)


def _slots(
  store: stores.Store,
  documents: columns.Column,
  named: Mapping[str, list[str]],
  path: str,
) -> tuple[dict[str, list[int]], list[str]]:
  """Returns the selected documents of each id, and the ids without any."""
  ids = sorted({name for names in named.values() for name in names})
  # One pass over the store's ids, and none where no document is named.
  if not ids:
    return {}, []
  documents_of = store.opened.ids.find(ids)
  selected = document_columns.int64(documents)
  order = np.argsort(selected, kind="stable")
  slots = {}
  for name, matches in documents_of.items():
    at = np.searchsorted(selected, matches, sorter=order)
    at = order[np.minimum(at, len(selected) - 1)]
    slots[name] = at[selected[at] == matches].tolist()
  problems = []
  for field, names in named.items():
    for name in names:
      if not slots[name]:
        exists = bool(documents_of[name])
        where = "is not selected" if exists else "does not exist"
        problems.append(
          f"`{path}.{field}` must name selected documents, got {name!r},"
          f" which {where}. Correct the id, or select the document."
          + ("" if exists else store.opened.ids.closest(name))
        )
  return slots, problems


def _groups(
  store: stores.Store,
  documents: columns.Column,
  options: MultiSpliceOptions,
  slots: Mapping[str, list[int]],
  path: str,
) -> tuple[tuple[str, ...], np.ndarray | None]:
  """Returns the names of groups, and int64[D], the group of each document."""
  if options.group_by_meta:
    return _groups_by_meta(store, documents.read(), options.group_by_meta, path)
  if options.group_by_length:
    return _groups_by_length(store, documents.read(), options.group_by_length)
  if not options.groups:
    return (), None
  names = [name for name, _ in options.groups]
  number = np.full(len(documents), len(names), np.int64)
  for i, (_, ids) in enumerate(options.groups):
    number[[slot for name in ids for slot in slots[name]]] = i
  if np.any(number == len(names)):
    names.append(REST)
  return tuple(names), number


def _groups_by_meta(
  store: stores.Store, documents: np.ndarray, field: bool | str, path: str
) -> tuple[tuple[str, ...], np.ndarray]:
  """Returns the groups of documents with the same metadata, or of a field."""
  if store.opened.meta is None:
    raise schema.ConfigError(
      [
        f"`{path}.group_by_meta` must be False for a store that keeps nothing"
        f" of its documents, got {field!r} with {store.path}. Prepare it with"
        " --meta_key, or list groups."
      ]
    )
  if isinstance(field, str):
    rows = document_fields.values(store, documents, [field])
    metadata = [value for (value,) in rows]
  else:
    metadata = stores.document_meta(store, documents)
  values = [value or REST for value in metadata]
  names = sorted(set(values))
  number = {name: i for i, name in enumerate(names)}
  return tuple(names), np.asarray([number[v] for v in values], np.int64)


def _groups_by_length(
  store: stores.Store, documents: np.ndarray, bounds: tuple[int, ...]
) -> tuple[tuple[str, ...], np.ndarray]:
  """Returns the groups of documents of similar length, shortest first."""
  ends = [*(str(bound - 1) for bound in bounds), ""]
  names = [f"{low}..{end}" for low, end in zip((0, *bounds), ends, strict=True)]
  number = np.searchsorted(bounds, store.bounds(documents)[1], side="right")
  present, groups = np.unique(number, return_inverse=True)
  return tuple(names[i] for i in present.tolist()), groups


class Shares:
  """Exact weights of documents and of groups of documents."""

  def __init__(
    self,
    lengths: np.ndarray,
    stride: int,
    tau: float,
    document_shares: DocumentShares,
  ):
    """Computes the weights, (length / stride) ** tau times a factor.

    Args:
      lengths: int64[D], tokens of each document.
      stride: Tokens between starts of documents without another one.
      tau: Temperature in [0, 1]; 0 is equal shares.
      document_shares: Factors, groups and strides that differ.

    Raises:
      ValueError: If lengths over strides have no common scale inside int64.
    """
    strides = np.full(len(lengths), stride, np.int64)
    for slot, (document_stride, _) in document_shares.overrides.items():
      strides[slot] = document_stride
    common = math.lcm(*np.unique(strides).tolist())
    if common * int(lengths.max(initial=0)) >= _MAX_LENGTH:
      raise ValueError(
        "must have content_strides whose common multiple fits beside lengths"
        f" in 62 bits, got a multiple of {common}. Give documents strides that"
        " divide each other."
      )
    if common > 1:
      lengths = lengths * (common // strides)
    self._values, self._member = temperature_weights(
      lengths, tau, document_shares.weights
    )
    positive = np.asarray([value > 0 for value in self._values], np.bool_)
    self._positive = positive[self._member]
    groups = document_shares.groups
    if groups is None:
      groups = np.zeros(len(lengths), np.int8)
    self._groups = groups
    num_groups = int(groups.max(initial=0)) + 1
    factors = [
      document_shares.group_weights.get(group, fractions.Fraction(1))
      for group in range(num_groups)
    ]
    scale = math.lcm(*(factor.denominator for factor in factors))
    self._group_weights = [int(factor * scale) for factor in factors]

  def served(self, usable: np.ndarray) -> np.ndarray:
    """Returns which of the first M documents get rows, bool[M].

    Args:
      usable: bool[M], which of the first M documents can be copied.
    """
    positive = np.asarray([weight > 0 for weight in self._group_weights])
    count = len(usable)
    return usable & self._positive[:count] & positive[self._groups[:count]]

  def quotas(self, usable: np.ndarray, total: int) -> np.ndarray:
    """Splits rows over the first M documents.

    A group has a share if one of its documents is served; one must be.

    Args:
      usable: bool[M], which of the first M documents can be copied.
      total: Rows, at least 0.

    Returns:
      int64[M] that sums to `total`.
    """
    served = self.served(usable)
    quotas = np.zeros(len(usable), np.int64)
    groups = self._groups[: len(usable)]
    present = np.flatnonzero(np.bincount(groups[served])).tolist()
    totals = largest_remainder(
      [self._group_weights[group] for group in present], total
    )
    for group, rows in zip(present, totals.tolist(), strict=True):
      documents = np.flatnonzero(served & (groups == group))
      numbers, member = np.unique(self._member[documents], return_inverse=True)
      weights = [self._values[i] for i in numbers.tolist()]
      quotas[documents] = largest_remainder(weights, rows, member)
    return quotas


def temperature_weights(
  lengths: np.ndarray,
  tau: float,
  multipliers: Mapping[int, fractions.Fraction] | None = None,
) -> tuple[list[int], np.ndarray]:
  """Returns integers proportional to multiplier * length ** tau.

  Args:
    lengths: int64[D], tokens of each document.
    tau: Temperature in [0, 1]; 1 is proportional to length, 0 equal.
    multipliers: Extra weights by index into `lengths`; the others are 1.

  Returns:
    Integers on one common scale, and int64[D], which is each document's: those
    of equal weight share one.
  """
  unique, member = np.unique(lengths, return_inverse=True)
  # Whole numbers, not fractions: a fraction takes four times the memory.
  values, _ = powers.scaled_powers(unique, 1, tau)
  scale = math.lcm(*(m.denominator for m in (multipliers or {}).values()))
  values = [value * scale for value in values]
  for i, multiplier in (multipliers or {}).items():
    values.append(int(values[member[i]] * multiplier))
    member[i] = len(values) - 1
  return values, member


def largest_remainder(
  weights: Sequence[int], total: int, member: np.ndarray | None = None
) -> np.ndarray:
  """Splits `total` in proportion to the weights, exactly.

      weights [10_000, 5_000, 2_000], total 17 -> [10, 5, 2]

  Args:
    weights: Non-negative integers; one of a receiver is positive.
    total: The number to split, at least 0.
    member: int64[D], which weight each receiver has, or None for one receiver
      per weight.

  Returns:
    int64[D] that sums to `total`; ties of remainders go to the lower index.
  """
  if member is None:
    member = np.arange(len(weights))
  counts = np.bincount(member, minlength=len(weights)).tolist()
  total_weight = sum(w * n for w, n in zip(weights, counts, strict=True))
  parts = [divmod(weight * total, total_weight) for weight in weights]
  remaining = total - sum(p[0] * n for p, n in zip(parts, counts, strict=True))
  places = {r: i for i, r in enumerate(sorted({p[1] for p in parts})[::-1])}
  rank = np.asarray([places[p[1]] for p in parts], np.int64)
  shares = np.asarray([p[0] for p in parts], np.int64)[member]
  if remaining:
    rank = rank[member]
    before = np.cumsum(np.bincount(rank))
    # All receivers of ranks before `last_rank`, and the first ones of that.
    last_rank = int(np.searchsorted(before, remaining))
    shares += rank < last_rank
    over = remaining - (int(before[last_rank - 1]) if last_rank else 0)
    shares[np.flatnonzero(rank == last_rank)[:over]] += 1
  return shares
