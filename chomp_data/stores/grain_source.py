# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A user's Grain source as a store: element i holds the tokens of document i.

    lengths  [3, 0, 2]  ->  documents at tokens 0 .. 2, none, 3 .. 4

Rows are planned from the lengths. An element is read whole, checked against its
length and the vocabulary, and cached. The data have no checksums: their version
is what the user calls it, the fingerprint.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import hashlib
import os
import sys
import threading
from typing import Any
from typing import ClassVar
from typing import TYPE_CHECKING
import uuid
import weakref

from absl import logging
import numpy as np

from chomp_data import errors
from chomp_data import schema
from chomp_data.index import columns
from chomp_data.storage import chunk_cache
from chomp_data.storage import paths
from chomp_data.stores import base
from chomp_data.stores import chunked_reads
from chomp_data.stores import documents
from chomp_data.stores import external
from chomp_data.stores import span_reads
from chomp_data.stores import texts
from chomp_data.stores.zarr import manifest

if TYPE_CHECKING:
  import grain

_SCHEMA = 1
# Documents whose lengths are hashed together.
_PART = 1 << 20

# Fingerprints of sources of which the log says that they have no checksums.
_LOGGED: set[str] = set()


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceOptions(external.TokenOptions):
  """What a Grain source does not say of its elements; `from_source` has it."""

  section: ClassVar[str] = "from_source"

  fingerprint: str = schema.required(
    schema.Rule(
      "text that names this version of the data, for instance 'c4-v3'",
      schema.text().convert,
    )
  )
  key: str | None = schema.option(None, schema.optional(schema.text()))
  in_threads: bool = schema.option(False, schema.boolean())
  chunk_tokens: int = schema.option(
    span_reads.DEFAULT_CHUNK_TOKENS, schema.integer(1)
  )


class Elements:
  """A source and the lengths of its elements; one object per process.

  Attributes:
    source: The source.
    offsets: int64[N + 1], the first token of each document, and the end.
    content: SHA-256 of the lengths, hex.
  """

  def __init__(self, source: Any, lengths: Any, uid: str | None = None):
    """Reads no element; `lengths` is an array, or the path of a .npy file."""
    self.source: Any = source
    self._file = lengths if isinstance(lengths, str) else None
    offsets, content = _offsets(lengths)
    self.offsets: np.ndarray = offsets
    self.content: str = content
    self._uid = uid or uuid.uuid4().hex
    _ELEMENTS[self._uid] = self

  def __reduce__(self) -> tuple[Any, ...]:
    lengths = self._file
    if lengths is None:
      lengths = np.diff(self.offsets)
      lengths = lengths.astype(np.min_scalar_type(lengths.max(initial=0)))
    return _unpickled, (self._uid, _pickled(self.source), lengths)


# By their ids: copies of a plan within a process share source and offsets.
_ELEMENTS: weakref.WeakValueDictionary[str, Elements] = (
  weakref.WeakValueDictionary()
)


def _offsets(lengths: Any) -> tuple[np.ndarray, str]:
  """Returns where documents begin, and the hash of their lengths."""
  if isinstance(lengths, str):
    try:
      lengths = np.asanyarray(np.load(lengths, mmap_mode="r"))
    except (OSError, ValueError, EOFError) as error:
      raise schema.ConfigError(
        [
          "`lengths` must be an array, or the path of a .npy file of one, got"
          f" {lengths!r} ({error}). Write it with numpy.save."
        ]
      ) from error
  if lengths.ndim != 1 or lengths.dtype.kind not in "iu":
    raise TypeError(
      "`lengths` must be integers [number of elements], got"
      f" {lengths.dtype}{[*lengths.shape]}. Give the tokens of each element."
    )
  low, high = int(lengths.min(initial=0)), int(lengths.max(initial=0))
  if low < 0 or lengths.sum(dtype=np.float64) >= 2**62:
    wrong = low if low < 0 else high
    raise schema.ConfigError(
      [
        "`lengths` must be at least 0, and their sum below 2**62, got"
        f" {wrong} of element {(lengths == wrong).argmax()}. Correct it."
      ]
    )
  offsets = np.zeros(len(lengths) + 1, np.int64)
  np.cumsum(lengths, dtype=np.int64, out=offsets[1:])
  content = hashlib.sha256()
  for first in range(0, len(lengths), _PART):
    content.update(lengths[first : first + _PART].astype("<i8").data)
  return offsets, content.hexdigest()


class _Unpicklable:
  """Stands for a source in a process that it could not be sent to."""

  def __init__(self, error: str):
    self._error = error

  def __getitem__(self, index: int) -> Any:
    raise errors.StoreError(
      "`source` must be one that can be pickled to be read by worker processes,"
      f" got {self._error}. Open files in the source when they are first read,"
      " or set `worker_count` to 0."
    )


# What cloudpickle pickles by value is a setting of the process. A source may
# itself hold another one.
_PICKLE_SETTING = threading.RLock()


def _pickled(source: Any) -> bytes | _Unpicklable:
  """Returns a source for other processes; one thread at a time."""
  import cloudpickle

  with _PICKLE_SETTING:
    # Workers cannot import a config file by the name that it was loaded as.
    known = cloudpickle.list_registry_pickle_by_value()
    modules = [m for n, m in [*sys.modules.items()] if n not in known]
    by_value = [module for module in modules if _is_config_file(module)]
    for module in by_value:
      cloudpickle.register_pickle_by_value(module)
    try:
      return cloudpickle.dumps(source)
    except Exception as error:
      return _Unpicklable(f"{type(source).__name__}: {error!r}")
    finally:
      for module in by_value:
        cloudpickle.unregister_pickle_by_value(module)


def _is_config_file(module: Any) -> bool:
  """Returns whether a module was loaded by another name than its file's."""
  spec = getattr(module, "__spec__", None)
  name, file = getattr(spec, "name", "."), getattr(spec, "origin", None) or ""
  is_module = "." not in name and sys.modules.get(name) is module
  files = f"{name}.py", "__init__.py"
  return (
    is_module and file.endswith(".py") and os.path.basename(file) not in files
  )


def _unpickled(
  uid: str, pickled: bytes | _Unpicklable, lengths: Any
) -> Elements:
  """Returns the elements of an id: those of this process, or a copy."""
  elements = _ELEMENTS.get(uid)
  if elements is not None:
    return elements
  source: Any = pickled
  if isinstance(pickled, bytes):
    import cloudpickle

    try:
      source = cloudpickle.loads(pickled)
    except Exception as error:
      source = _Unpicklable(repr(error))
  return Elements(source, lengths, uid)


class _Tokens(chunked_reads.ChunkedReads):
  """The tokens of all documents, one after the other; a chunk is an element."""

  def __init__(self, reader: "_Reader", cache_bytes: int, in_threads: bool):
    self._offsets = reader.offsets
    size = int(self._offsets[-1])
    super().__init__(size, 1, reader.dtype, chunk_cache.Counters())
    self.cache = chunk_cache.ChunkCache(
      reader, cache_bytes, self.counters, in_threads=in_threads
    )

  def _split(
    self, starts: np.ndarray, lengths: np.ndarray, positions: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    return span_reads.split_at(self._offsets, starts, lengths, positions)


class _Reader:
  """The `ChunkSource` of a Grain source: reads and checks its elements."""

  def __init__(self, path: str, elements: Elements, options: SourceOptions):
    self.offsets: np.ndarray = elements.offsets
    self.dtype: np.dtype = np.dtype(manifest.token_dtype(options.vocab_size))
    self._path = path
    self._source = elements.source
    self._options = options
    self._is_one_call = hasattr(elements.source, "__getitems__")

  def nbytes(self, chunk: int) -> int:
    """Returns the bytes of an element's tokens."""
    return self._length(chunk) * self.dtype.itemsize

  def runs(self, chunks: Sequence[int]) -> list[list[int]]:
    """Divides elements into those that one call, or one thread, reads."""
    if self._options.in_threads and not self._is_one_call:
      return [[chunk] for chunk in chunks]
    return [[*chunks]] if len(chunks) else []

  def read_run(self, run: list[int]) -> Iterator[tuple[int, np.ndarray]]:
    """Yields elements; raises StoreError at one that is not as declared."""
    elements = map(self._source.__getitem__, run)
    if self._is_one_call:
      elements = self._source.__getitems__(run)
      if len(elements) != len(run):
        raise errors.StoreError(
          f"{self._path}: `__getitems__` must return {len(run)} elements, got"
          f" {len(elements)}. Correct the source."
        )
    for document, element in zip(run, elements, strict=True):
      tokens = self._tokens(document, element).astype(self.dtype)
      tokens.flags.writeable = False
      yield document, tokens

  def _length(self, document: int) -> int:
    return int(self.offsets[document + 1] - self.offsets[document])

  def _tokens(self, document: int, element: Any) -> np.ndarray:
    """Returns the tokens of an element; raises StoreError at another one."""

    def wrong(rule: str, got: object) -> errors.StoreError:
      return errors.StoreError(
        f"{self._path}: element {document} must be {rule}, got {got}. Correct"
        " the source, or the arguments of `from_source`."
      )

    key, shown = self._options.key, type(element).__name__
    if isinstance(element, Mapping):
      shown += f" of {', '.join(map(str, element))}"
    if key is not None:
      if not isinstance(element, Mapping) or key not in element:
        raise wrong(f"a mapping with `key` {key!r}", shown)
      element = element[key]
    try:
      values = np.asarray(element)
    except (TypeError, ValueError) as error:
      raise wrong("integers [length]", error) from error
    if not values.size and isinstance(element, list | tuple):
      # NumPy takes a list of no values for floats.
      values = np.zeros(0, self.dtype)
    if values.ndim != 1 or values.dtype.kind not in "iu":
      got = f"{values.dtype}{[*values.shape]} ({shown})"
      raise wrong("integers [length], or a mapping and its `key` named", got)
    length, vocab_size = self._length(document), self._options.vocab_size
    if len(values) != length:
      raise wrong(f"{length} tokens, as in `lengths`", len(values))
    if at := np.flatnonzero((values < 0) | (values >= vocab_size))[:1].tolist():
      rule = f"ids in 0 .. {vocab_size - 1}, by `vocab_size`"
      raise wrong(rule, f"{values[at[0]]} at token {at[0]}")
    return values


class SourceStore(base.Store):
  """A user's Grain source, read only. Made by `from_source`.

  Pickled, it holds the source.
  """

  def __init__(
    self, elements: Elements, options: SourceOptions, cache_bytes: int
  ):
    """Opens nothing yet.

    Args:
      elements: The source and the lengths of its elements.
      options: Checked ones.
      cache_bytes: Most bytes of tokens that are kept of elements.
    """
    path = paths.of_object(f"source {options.fingerprint}")
    super().__init__(path, cache_bytes)
    self._elements = elements
    self._options = options

  def _open(self) -> base.Opened:
    elements, options = self._elements, self._options
    num_documents = len(elements.offsets) - 1
    num_tokens = int(elements.offsets[-1])
    reader = _Reader(self._path, elements, options)
    content = f"{options.fingerprint}\n{elements.content}".encode()
    digest = hashlib.sha256(content).hexdigest()
    return base.Opened(
      hash=external.identity_hash(
        options, _SCHEMA, num_documents, num_tokens, digest
      ),
      tokenizer=options.tokenizer_info,
      tokenizer_identity=options.tokenizer_identity,
      num_tokens=num_tokens,
      token_dtype=reader.dtype,
      documents=documents.StoredOffsets(
        columns.ArrayColumn(elements.offsets), num_documents, self._path
      ),
      tokens=_Tokens(reader, self._cache_bytes, options.in_threads),
      ids=texts.NumberedTexts(
        [options.fingerprint], np.asarray([0, num_documents])
      ),
      chunk_tokens=options.chunk_tokens,
    )


def _source(value: Any) -> Any:
  import grain

  is_other = isinstance(value, str | bytes | Mapping | type | base.Store)
  if is_other or not isinstance(value, grain.sources.RandomAccessDataSource):
    raise TypeError
  return value


def _lengths(value: Any) -> np.ndarray | str:
  is_path = isinstance(value, str | os.PathLike)
  return os.fspath(value) if is_path else np.asarray(value)


@schema.arguments(
  source=schema.Rule(
    "a grain RandomAccessDataSource, with `__len__` and `__getitem__`", _source
  ),
  lengths=schema.Rule(
    "integers, the tokens of each element, or the path of a .npy file of them",
    _lengths,
  ),
  cache_bytes=base.CACHE_BYTES,
)
def from_source(
  source: "grain.sources.RandomAccessDataSource[Any]",
  lengths: np.ndarray | Sequence[int] | str | os.PathLike[str],
  *,
  vocab_size: int,
  fingerprint: str,
  cache_bytes: int = base.DEFAULT_CACHE_BYTES,
  **options: Any,
) -> SourceStore:
  """Makes a store of a Grain source; reads no element.

  Batches are those of a store of chomp-prepare of the same documents. There
  are no checksums: that the source returns the same tokens under the same
  `fingerprint` is the user's to guarantee.

  Args:
    source: Its element i is int[lengths[i]], the tokens of document i. It is
      pickled for worker processes. Where it has `__getitems__`, one call of it
      reads elements of several batches.
    lengths: int[N], the tokens of each element, or the path of a .npy file of
      them, which each process maps.
    vocab_size: Size of the vocabulary; all token ids, including special ones,
      are below it.
    fingerprint: Names this version of the data. States of runs hold it: change
      it when the data change.
    cache_bytes: Most bytes of tokens that are kept of elements.
    **options: `pad_id`, `eos_id`, `bos_id`, `adds_bos`, `adds_eos` and
      `tokenizer` as of `ArrayRecordOptions`; `key`, which value of an element
      holds the tokens, where elements are mappings; `in_threads`, whether up to
      32 elements are read at once, for a source that waits for a disk or a
      network; `chunk_tokens`, of the blocks of a block shuffle.

  Returns:
    The store. Its document ids are '<fingerprint>:<number>'.

  Raises:
    ConfigError: If lengths are not those of the source, or options are wrong.
    TypeError: If an argument is of a wrong type.
  """
  fields = {"vocab_size": vocab_size, "fingerprint": fingerprint, **options}
  checked, problems = schema.read(SourceOptions, fields, SourceOptions.section)
  if checked is None or problems:
    raise schema.ConfigError(problems)
  problems = checked.problems(SourceOptions.section)
  elements = Elements(source, lengths)
  if len(elements.offsets) - 1 != len(source):
    problems.append(
      f"`lengths` must be those of the {len(source)} elements of `source`, got"
      f" {len(elements.offsets) - 1}. Count the tokens of each element."
    )
  if problems:
    raise schema.ConfigError(problems)
  store = SourceStore(elements, checked, cache_bytes)
  _ = store.hash
  if fingerprint not in _LOGGED:
    _LOGGED.add(fingerprint)
    logging.warning(
      "%s: its data have no checksums: a state of a run is compared by the"
      " fingerprint and the lengths alone",
      store.path,
    )
  return store
