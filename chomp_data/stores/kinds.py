# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The kinds of stores, and opening one: a new kind is an entry here.

kind          its file                    how a path is known to be one
zarr          zarr/zarr_store.py          it holds a manifest.json
array_record  array_record/record_store   selected by a config section
megatron      tokenized/megatron_store    selected by a config section
levanter      tokenized/levanter_store    selected by a config section

Data without a path, a user's Grain source, are a store by
`grain_source.from_source`; configs name the store itself.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import copy
import dataclasses
import os
import pathlib
from typing import Any

from chomp_data import errors
from chomp_data import schema
from chomp_data.storage import opening
from chomp_data.stores import base
from chomp_data.stores.array_record import record_files
from chomp_data.stores.array_record import record_store
from chomp_data.stores.array_record import record_writer
from chomp_data.stores.samples import arrow_samples
from chomp_data.stores.tokenized import levanter_store
from chomp_data.stores.tokenized import megatron_store
from chomp_data.stores.zarr import manifest
from chomp_data.stores.zarr import zarr_store


@dataclasses.dataclass(frozen=True)
class StoreKind:
  """How stores of a kind are opened.

  Attributes:
    open: Opens a path: of (path, cache_bytes=...), and with `options` of
      (path, options, cache_bytes=...).
    is_at: Whether a path is of this kind. It decides for kinds without options,
      and else how a path is said to be opened that was given without them.
    options: The class of options that declare what such data omits, read by
      `schema.read`; a source of a run has them in the section of the kind's
      name beside `store`. None where data of the kind omit nothing.
    advice: What is at such a path, and how it is read, for an error where no
      options are passed.
    options_at: Returns the options that are stored at a path, or None.
  """

  open: Callable[..., base.Store]
  is_at: Callable[[pathlib.Path], bool]
  options: type | None = None
  advice: str = ""
  options_at: Callable[[pathlib.Path], Any] = lambda path: None


STORE_KINDS: dict[str, StoreKind] = {
  "zarr": StoreKind(
    zarr_store.open_zarr, lambda path: (path / manifest.FILE).exists()
  ),
  "array_record": StoreKind(
    record_store.open_array_records,
    record_files.are_at,
    record_store.ArrayRecordOptions,
    "ArrayRecord files. Of these, records of token ids are read with"
    " `array_record` beside the path, for instance {'token_dtype': 'uint16',"
    " 'vocab_size': 50_000}; samples are read in buckets of kind 'resolution'.",
    record_writer.options_beside,
  ),
  "megatron": StoreKind(
    megatron_store.open_megatron,
    megatron_store.is_at,
    megatron_store.MegatronOptions,
    "a Megatron corpus. It is read with `megatron` beside the path, for"
    " instance {'vocab_size': 50_257, 'eos_id': 50_256, 'adds_eos': True}.",
  ),
  "levanter": StoreKind(
    levanter_store.open_levanter,
    levanter_store.is_at,
    levanter_store.LevanterOptions,
    "a Levanter cache. It is read with `levanter` beside the path, for"
    " instance {'vocab_size': 128_256}.",
  ),
}

# No kind of a store of documents, but what people have.
_SAVED = (
  "what `save_to_disk` wrote. Of this, arrays are read in buckets of kind"
  " 'resolution'; of texts, make a store with chomp-prepare from the JSON"
  " lines that the dataset's `to_json` writes."
)


def sections() -> dict[str, type]:
  """Returns the options of kinds that have some, by the section's name."""
  return {
    name: kind.options
    for name, kind in STORE_KINDS.items()
    if kind.options is not None
  }


@schema.arguments(cache_bytes=base.CACHE_BYTES)
def open_store(
  path: str | os.PathLike[str],
  *,
  cache_bytes: int = base.DEFAULT_CACHE_BYTES,
  **options: Any,
) -> base.Store:
  """Opens a store; reads no token.

  Args:
    path: Its directory, or what its kind takes: with `array_record` a directory
      of ArrayRecord files, one of them, or a glob.
    cache_bytes: Most decoded bytes kept of each compressed array.
    **options: What the data does not say of itself, by its kind:
      `array_record=ArrayRecordOptions(...)`, or a mapping of their fields. None
      of it for stores of chomp-prepare.

  Returns:
    The store.

  Raises:
    StoreError: If it is not a store, is unfinished, of a newer schema, or its
      files are not those that were written.
    TypeError: If options are of no kind, or of several, or an argument is of a
      wrong type.
    ConfigError: If a field of the options is wrong.
  """
  sections_set = {
    name: value for name, value in options.items() if value is not None
  }
  unknown = [name for name in options if name not in sections()]
  if len(sections_set) > 1 or unknown:
    raise TypeError(
      f"`open_store` takes the options of one of {', '.join(sections())}, got"
      f" {', '.join(options)}. Give those of the store's kind."
      + "".join(schema.did_you_mean(name, sections()) for name in unknown)
    )
  path = schema.argument("path", schema.path(), path)
  for name, value in sections_set.items():
    return STORE_KINDS[name].open(
      path, _options(name, value), cache_bytes=cache_bytes
    )
  if not opening.open_storage(path).is_remote:
    for kind, stored in _recognized(path):
      options_there = () if stored is None else (stored,)
      return kind.open(path, *options_there, cache_bytes=cache_bytes)
    directory = pathlib.Path(path)
    advice = [_SAVED] if _is_saved(directory) else []
    advice += [k.advice for k in STORE_KINDS.values() if k.is_at(directory)]
    if advice:
      raise errors.StoreError(f"{path} must be a store, got {advice[0]}")
  # It says what is missing.
  return zarr_store.open_zarr(path, cache_bytes=cache_bytes)


def _options(name: str, value: Any) -> Any:
  """Returns the options of a kind, which may be a mapping of their fields."""
  cls = sections()[name]
  if not isinstance(value, Mapping):
    return schema.argument(name, schema.options_rule(cls), value)
  options, problems = schema.read(cls, value, name)
  if problems:
    raise schema.ConfigError(problems)
  return options


def open_stores(
  paths: str
  | os.PathLike[str]
  | base.Store
  | Sequence[str | os.PathLike[str] | base.Store],
  *,
  cache_bytes: int = base.DEFAULT_CACHE_BYTES,
  **options: Any,
) -> list[base.Store]:
  """Opens one store or several; reads no token.

  Args:
    paths: Of the store, or of several. A store that is open is opened again,
      with caches of its own.
    cache_bytes: As in `open_store`, of each.
    **options: As in `open_store`; of several, for those that need them.

  Returns:
    The stores, in their order; `as_one` makes them one.

  Raises:
    StoreError: If one cannot be opened.
  """
  if isinstance(paths, str | os.PathLike):
    return [open_store(paths, cache_bytes=cache_bytes, **options)]
  opened = []
  for path in [paths] if isinstance(paths, base.Store) else paths:
    if isinstance(path, base.Store):
      opened.append(copy.copy(path))
      continue
    path_options = {} if _needs_no_options(path) else options
    opened.append(open_store(path, cache_bytes=cache_bytes, **path_options))
  return opened


def _needs_no_options(path: str | os.PathLike[str]) -> bool:
  files = opening.open_storage(path)
  if files.is_remote:
    return files.head(manifest.FILE) is not None
  return any(_recognized(path))


def _recognized(
  path: str | os.PathLike[str],
) -> Iterator[tuple[StoreKind, Any]]:
  """Yields kinds that can open a local path, and the options stored there."""
  opening.open_local(path)
  directory = pathlib.Path(path)
  for kind in STORE_KINDS.values():
    options = kind.options_at(directory)
    if options is not None or (kind.options is None and kind.is_at(directory)):
      yield kind, options


def _is_saved(path: pathlib.Path) -> bool:
  try:
    return arrow_samples.is_saved(path)
  except errors.StoreError:
    return True  # Several splits.
