# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Samples: precomputed arrays with a height, a width and metadata.

Latents, images or embeddings, read in place from the files of other tools: a
directory of Hugging Face's `save_to_disk` (`arrow_samples`), or ArrayRecord
files (`sample_records`). Nothing is copied; an index beside the data holds
checksums, so that an altered byte is an error.

A store returns `sizes()` without reading an array, and reads samples of one
size at a time: every array then has one shape.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import hashlib
import json
import os
import pathlib
from typing import Any

import numpy as np

from chomp_data import errors
from chomp_data import schema
from chomp_data.index import integers
from chomp_data.storage import opening
from chomp_data.stores import reopening
from chomp_data.stores.samples import arrow_samples
from chomp_data.stores.samples import sample_fields
from chomp_data.stores.samples import sample_records

ArrayField = sample_fields.ArrayField
Spec = sample_fields.Spec

_SCHEMA = 1


_NAMES = schema.sequence(schema.text())


class _Opened:
  """The open files and the index of a dataset, in one process."""

  def __init__(
    self,
    path: pathlib.Path,
    fields: Mapping[str, ArrayField],
    sides: tuple[str, str],
    index_dir: str | None,
    build: bool,
  ):
    kind = sample_records.Reader
    if arrow_samples.is_saved(path):
      kind = arrow_samples.Reader
    self.reader = kind(path, tuple(fields), *sides, index_dir, build)
    self.heights, self.widths = self.reader.heights, self.reader.widths
    for name in self.reader.raw:
      field = fields[name]
      if field.shape is None or field.dtype is None:
        raise errors.StoreError(
          f"{path}: `{name}` holds bytes: its field must have a shape and a"
          f" dtype, got {field}. Say what the bytes are."
        )
    # By size the first sample of it, and what its arrays look like.
    self.specs: dict[tuple[int, int], tuple[int, dict[str, Spec]]] = {}
    identity = {
      "schema": _SCHEMA,
      "kind": self.reader.kind,
      "content": self.reader.content,
    }
    text = json.dumps(identity, sort_keys=True).encode()
    self.hash = hashlib.sha256(text).hexdigest()


class SampleStore(reopening.Reopened[_Opened]):
  """A dataset of samples, read only. Made by `open_samples`.

  Pickled, it is a path, its options and a hash: another process opens it at
  first use with the index that is there, and refuses files that were replaced
  in between.

  Attributes:
    fields: The arrays that are read.
  """

  _noun = "dataset"
  _remedy = "Put its files back"

  def __init__(
    self,
    path: str | os.PathLike[str],
    fields: Mapping[str, ArrayField],
    height_field: str,
    width_field: str,
    index_dir: str | os.PathLike[str] | None,
  ):
    """Opens nothing yet; see `open_samples`."""
    super().__init__(path)
    self.fields: dict[str, ArrayField] = dict(fields)
    self._sides = height_field, width_field
    self._index_dir = None if index_dir is None else os.fspath(index_dir)

  def _open(self) -> _Opened:
    return _Opened(
      pathlib.Path(self._path),
      self.fields,
      self._sides,
      self._index_dir,
      build=self._expected_hash is None,
    )

  @property
  def num_samples(self) -> int:
    """Samples of the dataset."""
    return len(self.opened.heights)

  def __len__(self) -> int:
    return self.num_samples

  @property
  def metadata_names(self) -> tuple[str, ...]:
    """The names of values beside the arrays, height and width included."""
    return tuple(self.opened.reader.value_dtypes)

  @property
  def value_dtypes(self) -> dict[str, np.dtype | None]:
    """By name of metadata the dtype that holds all values, None for texts."""
    return dict(self.opened.reader.value_dtypes)

  @property
  def size_fields(self) -> tuple[str, str]:
    """The names of height and width."""
    return self._sides

  def sizes(self) -> tuple[np.ndarray, np.ndarray]:
    """Returns heights and widths, int32[num_samples], without any array."""
    return self.opened.heights, self.opened.widths

  @schema.arguments(height=schema.WHOLE, width=schema.WHOLE)
  def specs(self, height: int, width: int) -> dict[str, Spec]:
    """Returns what the arrays of a size look like.

    Args:
      height: Of samples that exist.
      width: Of these samples.

    Returns:
      By field the shape and dtype of one sample's array.

    Raises:
      StoreError: If there is no sample of the size, or the first one of it
        does not fit the fields or its height and width.
    """
    return dict(self._specs(height, width)[1])

  def read(
    self,
    indices: Sequence[int] | np.ndarray,
    metadata: Sequence[str] = (),
  ) -> dict[str, np.ndarray]:
    """Reads samples of one size.

    Args:
      indices: At least one, in any order.
      metadata: Names of numbers beside the arrays that are wanted too.

    Returns:
      By field an array [len(indices), ...], in the order of `indices`, that
      the caller owns; and by name of metadata an array [len(indices)].

    Raises:
      IndexError: If there is no such sample.
      ValueError: If no sample is asked for, or samples of several sizes.
      StoreError: If a sample's array does not have the shape of its size, or
        the file was altered; the message names dataset and sample.
    """
    indices = self._existing(indices)
    metadata = self._known("metadata", metadata)
    first, specs = self._specs(*self._one_size(indices))
    out = {
      name: np.empty((len(indices), *spec.shape), spec.dtype)
      for name, spec in specs.items()
    }
    opened, raw = self.opened, self.opened.reader.raw
    values: dict[str, list[Any]] = {name: [] for name in metadata}
    records = opened.reader.records(indices, tuple(self.fields), metadata)
    for k, (arrays, row) in enumerate(records):
      for name, array in arrays.items():
        try:
          out[name][k] = self.fields[name].fitted(
            name, array, specs[name], name in raw, first
          )
        except ValueError as error:
          raise self._problem(int(indices[k]), str(error)) from error
      for name in metadata:
        values[name].append(row[name])
    for name, column in values.items():
      out[name] = self._numbers(name, column, indices)
    return out

  def metadata(
    self,
    indices: Sequence[int] | np.ndarray,
    names: Sequence[str] | None = None,
  ) -> dict[str, np.ndarray | list[Any]]:
    """Reads what is beside the arrays.

    Args:
      indices: In any order, of any sizes.
      names: Of `metadata_names`; None is all.

    Returns:
      By name an array [len(indices)] of numbers, of `value_dtypes`, or a
      list.

    Raises:
      IndexError: If there is no such sample.
      ValueError: If a name is unknown.
      StoreError: If the file was altered.
    """
    indices = self._existing(indices)
    if names is None:
      names = self.metadata_names
    names = self._known("names", names)
    rows = [row for _, row in self.opened.reader.records(indices, (), names)]
    out: dict[str, np.ndarray | list[Any]] = {}
    for name in names:
      values = [row[name] for row in rows]
      is_array = self.opened.reader.value_dtypes[name] is not None
      out[name] = self._numbers(name, values, indices) if is_array else values
    return out

  def _existing(self, indices: Sequence[int] | np.ndarray) -> np.ndarray:
    indices = integers.array("indices", indices)
    outside = indices[(indices < 0) | (indices >= self.num_samples)]
    if outside.size:
      raise IndexError(
        f"{self._path}: `indices` must be in 0 .. {self.num_samples - 1}, got"
        f" {outside.flat[0]}. Ask for samples that exist."
      )
    return indices

  def _one_size(self, indices: np.ndarray) -> tuple[int, int]:
    if indices.ndim != 1 or not len(indices):
      raise ValueError(
        "`indices` must be a list of one or more samples, got an array of"
        f" shape {indices.shape}. Leave such a read out."
      )
    heights, widths = (side[indices] for side in self.sizes())
    other = (heights != heights[0]) | (widths != widths[0])
    if other.any():
      k = int(np.argmax(other))
      raise ValueError(
        f"{self._path}: `indices` must be samples of one size, got"
        f" {heights[0]} x {widths[0]} (sample {indices[0]}) and"
        f" {heights[k]} x {widths[k]} (sample {indices[k]}). Read them apart."
      )
    return int(heights[0]), int(widths[0])

  def _known(self, argument: str, names: Sequence[str]) -> tuple[str, ...]:
    """Returns an argument that names metadata.

    Raises:
      TypeError: If it is no list of names.
      ValueError: If there is none of such a name.
    """
    names = tuple(schema.argument(argument, _NAMES, names))
    unknown = [name for name in names if name not in self.metadata_names]
    if unknown:
      near = [schema.did_you_mean(n, self.metadata_names) for n in unknown]
      raise ValueError(
        f"{self._path}: metadata must be of {', '.join(self.metadata_names)},"
        f" got {unknown}. Correct the names.{''.join(near)}"
      )
    return names

  def _numbers(
    self, name: str, values: list[Any], indices: np.ndarray
  ) -> np.ndarray:
    dtype = self.opened.reader.value_dtypes[name]
    for index, value in zip(indices.tolist(), values, strict=True):
      if dtype is None or not sample_fields.holds(dtype, value):
        rule = "a number" if dtype is None else f"one of {dtype}"
        raise self._problem(
          index,
          f"must have {rule} as `{name}`, got {value!r}. Correct it, or leave"
          " this metadata out.",
        )
    return np.asarray(values, dtype)

  def _specs(self, height: int, width: int) -> tuple[int, dict[str, Spec]]:
    """Returns the first sample of a size, and `specs` of it."""
    specs = self.opened.specs.get((height, width))
    if specs is None:
      specs = self._first_specs(height, width)
      self.opened.specs = {**self.opened.specs, (height, width): specs}
    return specs

  def _first_specs(
    self, height: int, width: int
  ) -> tuple[int, dict[str, Spec]]:
    is_of_size = self.opened.heights == height
    is_of_size &= self.opened.widths == width
    if not is_of_size.any():
      raise errors.StoreError(
        f"{self._path} must have samples of {height} x {width}, got none."
        " Leave this size out."
      )
    first = int(np.argmax(is_of_size))
    records = self.opened.reader.records(
      np.asarray([first]), tuple(self.fields), ()
    )
    arrays, _ = next(iter(records))
    raw = self.opened.reader.raw
    out = {}
    for name, field in self.fields.items():
      try:
        shape = field.shape_at(height, width)
      except ValueError as error:
        raise self._problem(first, f"has `{name}`: {error}") from error
      stored = arrays[name].shape
      if shape is None and not sample_fields.agrees(stored, height, width):
        raise self._problem(
          first,
          f"must have `{name}` of its height {height} and width {width}, or of"
          f" the same part of both, beside each other, got shape {stored}."
          " Correct the data, or give the field a `shape`.",
        )
      dtype = np.dtype(field.dtype or arrays[name].dtype)
      out[name] = Spec(stored if shape is None else shape, dtype)
      try:
        field.fitted(name, arrays[name], out[name], name in raw, first)
      except ValueError as error:
        raise self._problem(first, str(error)) from error
    return first, out

  def _problem(self, index: int, what: str) -> errors.StoreError:
    return errors.StoreError(f"{self._path}: sample {index} {what}")


def _fields(value: Any) -> Any:
  names = schema.sequence(schema.text()).convert
  if isinstance(value, Mapping):
    kinds = (ArrayField, type(None))
    if not all(isinstance(field, kinds) for field in value.values()):
      raise TypeError
    names(list(value))
    fields = value
  else:
    fields = dict.fromkeys(names(value))
  if not fields:
    raise ValueError
  return fields


_FIELDS = schema.Rule(
  "one or more names of arrays, a list, or a mapping of names to `ArrayField`"
  " or None",
  _fields,
)


@schema.arguments(
  path=schema.path(),
  fields=_FIELDS,
  height_field=schema.text(),
  width_field=schema.text(),
  index_dir=schema.optional(schema.path()),
)
def open_samples(
  path: str | os.PathLike[str],
  *,
  fields: Sequence[str] | Mapping[str, ArrayField | None],
  height_field: str = "height",
  width_field: str = "width",
  index_dir: str | os.PathLike[str] | None = None,
) -> SampleStore:
  """Opens a dataset of samples; indexes it at the first time.

  The index takes one pass over all bytes. It is built again where a file has
  another size or modification time; other files with other first 64 or last
  128 KiB at the same size and time, and files that were swapped or copied over
  each other, are then an error. Whatever else was altered is found when it is
  read. What files held before they were first indexed is not verified.

  Args:
    path: A directory written by `save_to_disk` (one split of it), or what
      `open_array_records` takes: a directory, a file, or a glob.
    fields: Names of the arrays to read; as a mapping with what the data does
      not say of them.
    height_field: What the height is called.
    width_field: What the width is called.
    index_dir: Where to keep the index; by default `<path>.index` beside the
      data, or the user's cache directory where that cannot be written.

  Returns:
    The store.

  Raises:
    StoreError: If files are missing or damaged, samples have no height or
      width, or fields are none; the message names the file.
    ValueError: If no field is named.
  """
  opening.open_local(path)
  assert isinstance(fields, Mapping)
  array_fields = {name: field or ArrayField() for name, field in fields.items()}
  for side in (height_field, width_field):
    if side in array_fields:
      raise ValueError(
        f"`fields` must name arrays, got {side!r}, which says a size. Ask for"
        " it as metadata."
      )
  store = SampleStore(path, array_fields, height_field, width_field, index_dir)
  _ = store.hash
  return store
