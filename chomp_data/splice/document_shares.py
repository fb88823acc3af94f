# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""From ids in options to the selected documents: weights, groups, overrides.

    selected documents      a  b  c  d
    groups (('x', [b, d]),)
    group of each           1  0  1  0     of the names 'x', 'rest'

Ids that name no selected document are errors; all of them are listed.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import fractions

import numpy as np

from chomp_data import schema
from chomp_data import stores
from chomp_data.index import columns
from chomp_data.sources import document_columns
from chomp_data.splice import powers
from chomp_data.splice import share_options
from chomp_data.splice.options import MultiSpliceOptions
from chomp_data.stores import document_fields

# Most ids, groups or documents named in one message.
_MAX_LISTED = 5


@dataclasses.dataclass(frozen=True)
class DocumentShares:
  """What options say of single documents, by index into those selected.

  Attributes:
    weights: Extra weights; the others are 1.
    overrides: (content_stride, alpha) of documents with either of their own.
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
    documents: Those selected.
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
  names: tuple[str, ...] = ()
  groups = None
  if options.groups:
    names, groups = _groups_listed(options.groups, slots, len(documents))
  elif options.group_by_meta:
    names, groups = _groups_by_meta(
      store, documents.read(), options.group_by_meta, path
    )
  elif options.group_by_length:
    names, groups = _groups_by_length(
      store, documents.read(), options.group_by_length
    )
  number = {name: i for i, name in enumerate(names)}
  weight_of = dict(options.group_weights or ())
  unknown = [n for n in weight_of if n not in number] if names else []
  problems += [
    f"`{path}.group_weights` must name groups of the selected documents, got"
    f" {name!r}. Groups: {_listed(names)}.{schema.did_you_mean(name, names)}"
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
  """Refuses weights of 0 for all, and groups that would never get a row.

  Args:
    shares: Of `resolve`.
    options: The same.
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
  documents_of = store.find_documents(ids)
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
          + ("" if exists else store.closest_id(name))
        )
  return slots, problems


def _groups_listed(
  groups: Sequence[tuple[str, Sequence[str]]],
  slots: Mapping[str, list[int]],
  count: int,
) -> tuple[tuple[str, ...], np.ndarray]:
  """Returns the groups of listed ids; the other documents are the rest.

  Args:
    groups: Names and ids of the groups.
    slots: The selected documents of each id.
    count: How many documents are selected.
  """
  number = np.full(count, -1, np.int64)
  for i, (_, ids) in enumerate(groups):
    for document_id in ids:
      number[slots[document_id]] = i
  names = [name for name, _ in groups]
  if np.any(number < 0):
    number[number < 0] = len(names)
    names.append(share_options.REST)
  return tuple(names), number


def _groups_by_meta(
  store: stores.Store, documents: np.ndarray, field: bool | str, path: str
) -> tuple[tuple[str, ...], np.ndarray]:
  """Returns the groups of documents with the same metadata.

  Args:
    store: Where the documents are.
    documents: Those selected.
    field: The field whose values are the groups, or True for all metadata.
    path: Dotted path of the options, for messages.
  """
  if not store.has_meta:
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
    metadata = store.document_meta(documents)
  values = [value or share_options.REST for value in metadata]
  names = sorted(set(values))
  number = {name: i for i, name in enumerate(names)}
  return tuple(names), np.asarray([number[v] for v in values], np.int64)


def _groups_by_length(
  store: stores.Store, documents: np.ndarray, bounds: tuple[int, ...]
) -> tuple[tuple[str, ...], np.ndarray]:
  """Returns the groups of documents of similar length, shortest first.

  Args:
    store: Where the documents are.
    documents: Those selected.
    bounds: Lengths at which the next group begins, ascending.
  """
  ends = [*(str(bound - 1) for bound in bounds), ""]
  names = [f"{low}..{end}" for low, end in zip((0, *bounds), ends, strict=True)]
  number = np.searchsorted(bounds, store.bounds(documents)[1], side="right")
  present, groups = np.unique(number, return_inverse=True)
  return tuple(names[i] for i in present.tolist()), groups


def _listed(names: tuple[str, ...]) -> str:
  text = ", ".join(repr(name) for name in names[:_MAX_LISTED])
  more = len(names) - _MAX_LISTED
  return text if more <= 0 else f"{text} and {more} more"
