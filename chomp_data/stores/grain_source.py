# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A user's Grain source as a store: element i holds the tokens of document i.

    lengths  [3, 0, 2]  ->  documents at tokens 0 .. 2, none, 3 .. 4

Only the lengths are known before elements are read, so rows are planned without
the source. An element is read whole, checked against its length and the
vocabulary, and cached. The data are not ours: they have no checksums, and their
version is what the user calls it, the fingerprint.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import hashlib
import os
import sys
from typing import Any
from typing import ClassVar
from typing import TYPE_CHECKING
import uuid
import weakref

from absl import logging
import numpy as np

from chomp_data import errors
from chomp_data import schema
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

# Fingerprints of sources that the log mentions as data without checksums.
_LOGGED: set[str] = set()


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceOptions(external.TokenOptions):
  """What a Grain source does not say of its tokens."""

  section: ClassVar[str] = "from_source"


class Elements:
  """The elements of a source and their lengths; one object per process.

  Attributes:
    source: The source.
    offsets: int64[N + 1], the first token of each document, and the end.
    content: SHA-256 of the lengths, hex.
  """

  def __init__(self, source: Any, lengths: Any, uid: str | None = None):
    """Reads no element.

    Args:
      source: A grain `RandomAccessDataSource`.
      lengths: An array of integers [N], or the path of a .npy file of one.
      uid: Identifies it in other processes; None makes a new one.

    Raises:
      ConfigError: If there are no such lengths.
      TypeError: If they are no integers.
    """
    self.source: Any = source
    self._file = lengths if isinstance(lengths, str) else None
    self.offsets, self.content = _offsets(_read_lengths(lengths))
    self.uid: str = uid or uuid.uuid4().hex
    _ELEMENTS[self.uid] = self

  def __reduce__(self) -> tuple[Any, ...]:
    lengths = self._file
    if lengths is None:
      lengths = np.diff(self.offsets)
      lengths = lengths.astype(np.min_scalar_type(lengths.max(initial=0)))
    return _elements, (self.uid, _pickled(self.source), lengths)


_ELEMENTS: weakref.WeakValueDictionary[str, Elements] = (
  weakref.WeakValueDictionary()
)


class _Unpicklable:
  """Stands for a source that could not be sent to this process."""

  def __init__(self, error: str):
    self._error = error

  def __getitem__(self, index: int) -> Any:
    raise errors.StoreError(
      "`source` must be one that can be pickled to be read by worker processes,"
      f" got {self._error}. Open files in the source when they are first read,"
      " or set `worker_count` to 0."
    )


def _pickled(source: Any) -> bytes | _Unpicklable:
  """Returns a source for other processes."""
  import cloudpickle

  # Workers cannot import a config file by the name that it was loaded as.
  known = cloudpickle.list_registry_pickle_by_value()
  by_value = [
    module
    for name, module in list(sys.modules.items())
    if _is_config_file(name, module) and name not in known
  ]
  for module in by_value:
    cloudpickle.register_pickle_by_value(module)
  try:
    return cloudpickle.dumps(source)
  except Exception as error:
    return _Unpicklable(f"{type(source).__name__}: {error!r}")
  finally:
    for module in by_value:
      cloudpickle.unregister_pickle_by_value(module)


def _is_config_file(name: str, module: Any) -> bool:
  """Returns whether a module was loaded by another name than its file's."""
  spec = getattr(module, "__spec__", None)
  file = os.path.basename(getattr(spec, "origin", None) or "")
  return (
    file.endswith(".py")
    and getattr(spec, "name", None) == name
    and "." not in name
    and file not in (f"{name}.py", "__init__.py")
  )


def _elements(
  uid: str, pickled: bytes | _Unpicklable, lengths: Any
) -> Elements:
  """Returns elements as they were pickled; in one process they are shared."""
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


def _read_lengths(lengths: np.ndarray | str) -> np.ndarray:
  """Returns the lengths of elements, as they are or mapped from a file."""
  if not isinstance(lengths, str):
    return lengths
  try:
    values = np.load(lengths, mmap_mode="r", allow_pickle=False)
    if not isinstance(values, np.ndarray):
      values.close()
      raise ValueError("a file of several arrays")
    return values
  except (OSError, ValueError, EOFError) as error:
    raise schema.ConfigError(
      [
        "`lengths` must be an array, or the path of a .npy file of one, got"
        f" {lengths!r} ({error}). Write it with numpy.save."
      ]
    ) from error


def _offsets(lengths: np.ndarray) -> tuple[np.ndarray, str]:
  """Returns where documents begin, and the hash of their lengths."""
  if lengths.ndim != 1 or lengths.dtype.kind not in "iu":
    raise TypeError(
      "`lengths` must be integers [number of elements], got"
      f" {lengths.dtype}{[*lengths.shape]}. Give the tokens of each element."
    )
  least, most = int(lengths.min(initial=0)), int(lengths.max(initial=0))
  if least < 0 or float(lengths.sum(dtype=np.float64)) >= 2**62:
    wrong = least if least < 0 else most
    at = int((lengths == wrong).argmax())
    raise schema.ConfigError(
      [
        "`lengths` must be at least 0, and their sum below 2**62, got"
        f" {wrong} of element {at}. Correct it."
      ]
    )
  offsets = np.zeros(len(lengths) + 1, np.int64)
  np.cumsum(lengths, dtype=np.int64, out=offsets[1:])
  content = hashlib.sha256()
  for low in range(0, len(lengths), _PART):
    content.update(lengths[low : low + _PART].astype("<i8").data)
  return offsets, content.hexdigest()


class _Offsets:
  """Offsets in memory; see `documents.Offsets`."""

  def __init__(self, values: np.ndarray):
    self._values = values

  def gather(self, positions: np.ndarray) -> np.ndarray:
    """Returns int64[N], offsets[positions]."""
    return self._values[positions]

  def read(self, start: int, stop: int) -> np.ndarray:
    """Returns offsets[start:stop]."""
    return self._values[start:stop]


class _Tokens(chunked_reads.ChunkedReads):
  """The tokens of all documents, one after the other; a chunk is an element."""

  def __init__(self, documents: "_Reader", cache_bytes: int, in_threads: bool):
    self._offsets = documents.offsets
    super().__init__(
      int(self._offsets[-1]), 1, documents.dtype, span_reads.Counters()
    )
    self.read_through(documents, cache_bytes, in_threads=in_threads)

  def _chunks_of(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    return self._split(starts, lengths, starts)[0]

  def _split(
    self, starts: np.ndarray, lengths: np.ndarray, positions: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    return span_reads.split_at(self._offsets, starts, lengths, positions)


class _Reader:
  """Reads and checks elements; see `chunk_cache.ChunkSource`."""

  def __init__(
    self,
    path: str,
    elements: Elements,
    key: str | None,
    vocab_size: int,
    in_threads: bool,
  ):
    self.offsets: np.ndarray = elements.offsets
    self.dtype: np.dtype = np.dtype(manifest.token_dtype(vocab_size))
    self._path = path
    self._source = elements.source
    self._key = key
    self._vocab_size = vocab_size
    self._is_one_call = hasattr(elements.source, "__getitems__")
    self._in_threads = in_threads

  def nbytes(self, chunk: int) -> int:
    """Returns the bytes of an element's tokens."""
    first, end = self.offsets[chunk : chunk + 2].tolist()
    return (end - first) * self.dtype.itemsize

  def runs(self, chunks: Sequence[int]) -> list[list[int]]:
    """Divides elements into those that are read by one call, or one thread."""
    if self._in_threads and not self._is_one_call:
      return [[chunk] for chunk in chunks]
    return [[*chunks]] if len(chunks) else []

  def read(self, run: list[int]) -> Iterator[tuple[int, np.ndarray]]:
    """Yields the tokens of elements.

    Raises:
      StoreError: If an element is not what `from_source` was told.
    """
    if self._is_one_call:
      elements = self._source.__getitems__(run)
      if len(elements) != len(run):
        raise errors.StoreError(
          f"{self._path}: `__getitems__` must return {len(run)} elements, got"
          f" {len(elements)}. Correct the source."
        )
    else:
      elements = map(self._source.__getitem__, run)
    for document, element in zip(run, elements, strict=True):
      yield document, self._tokens(document, element)

  def _tokens(self, document: int, element: Any) -> np.ndarray:
    """Returns the tokens of an element as they are cached, read-only."""
    if self._key is not None:
      if not isinstance(element, Mapping) or self._key not in element:
        held = (
          sorted(map(str, element))
          if isinstance(element, Mapping)
          else (type(element).__name__)
        )
        raise self._wrong(
          document, f"a mapping with `key` {self._key!r}", f"{held}"
        )
      element = element[self._key]
    rule = "int[length] tokens"
    try:
      values = np.asarray(element)
    except (TypeError, ValueError) as error:
      raise self._wrong(document, rule, str(error)) from error
    if not values.size and isinstance(element, list | tuple):
      values = values.astype(self.dtype)  # Of no value NumPy makes floats.
    if values.ndim != 1 or values.dtype.kind not in "iu":
      advice = ""
      if isinstance(element, Mapping):
        advice = f" of {', '.join(map(str, element))}: name one by `key`"
      raise self._wrong(
        document,
        rule,
        f"{type(element).__name__} {values.dtype}{[*values.shape]}{advice}",
      )
    first, end = self.offsets[document : document + 2].tolist()
    if len(values) != end - first:
      raise self._wrong(
        document,
        f"{end - first} tokens, as `lengths` says",
        f"{len(values)}",
      )
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    if low < 0 or high >= self._vocab_size:
      wrong = low if low < 0 else high
      at = int((values == wrong).argmax())
      raise self._wrong(
        document,
        f"ids in 0 .. {self._vocab_size - 1}, by `vocab_size`",
        f"{wrong} at token {at}",
      )
    tokens = values.astype(self.dtype)
    tokens.flags.writeable = False
    return tokens

  def _wrong(self, document: int, rule: str, got: str) -> errors.StoreError:
    return errors.StoreError(
      f"{self._path}: element {document} must be {rule}, got {got}. Correct the"
      " source, or what `from_source` is told of it."
    )


class SourceStore(base.Store):
  """A user's Grain source, read only. Made by `from_source`.

  Pickled, it holds the source.
  """

  def __init__(
    self,
    elements: Elements,
    fingerprint: str,
    options: SourceOptions,
    key: str | None,
    in_threads: bool,
    chunk_tokens: int,
    cache_bytes: int,
  ):
    """Opens nothing yet; see `from_source`."""
    super().__init__(paths.of_object(f"source {fingerprint}"), cache_bytes)
    self._elements = elements
    self._fingerprint = fingerprint
    self._options = options
    self._key = key
    self._in_threads = in_threads
    self._chunk_tokens = chunk_tokens

  def _open(self) -> base.Opened:
    elements, options = self._elements, self._options
    num_documents = len(elements.offsets) - 1
    num_tokens = int(elements.offsets[-1])
    reader = _Reader(
      self._path, elements, self._key, options.vocab_size, self._in_threads
    )
    content = f"{self._fingerprint}\n{elements.content}".encode()
    return base.Opened(
      hash=external.identity_hash(
        options,
        _SCHEMA,
        num_documents,
        num_tokens,
        hashlib.sha256(content).hexdigest(),
      ),
      tokenizer=options.tokenizer_info,
      tokenizer_identity=options.tokenizer_identity,
      num_tokens=num_tokens,
      token_dtype=reader.dtype,
      documents=documents.StoredOffsets(
        _Offsets(elements.offsets), num_documents, self._path
      ),
      tokens=_Tokens(reader, self._cache_bytes, self._in_threads),
      ids=texts.NumberedTexts(
        [self._fingerprint], np.asarray([0, num_documents])
      ),
      chunk_tokens=self._chunk_tokens,
    )


def _source(value: Any) -> Any:
  import grain

  is_other = isinstance(value, str | bytes | Mapping | type | base.Store)
  if is_other or not isinstance(value, grain.sources.RandomAccessDataSource):
    raise TypeError
  return value


def _lengths(value: Any) -> np.ndarray | str:
  if isinstance(value, str | os.PathLike):
    return os.fspath(value)
  return np.asarray(value)


@schema.arguments(
  source=schema.Rule(
    "a grain RandomAccessDataSource, with `__len__` and `__getitem__`", _source
  ),
  lengths=schema.Rule(
    "integers, the tokens of each element, or the path of a .npy file of them",
    _lengths,
  ),
  fingerprint=schema.Rule(
    "text that names this version of the data, as 'c4-v3', for states of runs",
    schema.text().convert,
  ),
  key=schema.optional(schema.text()),
  in_threads=schema.boolean(),
  chunk_tokens=schema.integer(1),
  cache_bytes=base.CACHE_BYTES,
  **{n: field.rule for n, field in schema.options_of(SourceOptions).items()},
)
def from_source(
  source: "grain.sources.RandomAccessDataSource[Any]",
  lengths: np.ndarray | Sequence[int] | str | os.PathLike[str],
  *,
  vocab_size: int,
  fingerprint: str,
  key: str | None = None,
  pad_id: int | None = None,
  eos_id: int | None = None,
  bos_id: int | None = None,
  adds_bos: bool = False,
  adds_eos: bool = False,
  tokenizer: str | None = None,
  in_threads: bool = False,
  chunk_tokens: int = span_reads.DEFAULT_CHUNK_TOKENS,
  cache_bytes: int = base.DEFAULT_CACHE_BYTES,
) -> SourceStore:
  """Makes a store of a Grain source; reads no element.

  Batches are those of a store of tools/prepare.py of the same documents. There
  are no checksums: that the source returns the same tokens under the same
  `fingerprint` is the user's to guarantee.

  Args:
    source: Its element i is int[lengths[i]], the tokens of document i. It is
      pickled for worker processes. Where it has `__getitems__`, elements of
      several batches are read by one call of it.
    lengths: int[N], the tokens of each element, or the path of a .npy file,
      which each process maps.
    vocab_size: All token ids are below it, special ones included.
    fingerprint: Names this version of the data. States of runs hold it: change
      it when the data change.
    key: Which value of an element holds the tokens, where elements are
      mappings.
    pad_id: Id of the padding token, or None.
    eos_id: Id of the end-of-document token, or None.
    bos_id: Id of the begin-of-document token, or None.
    adds_bos: Whether documents begin with `bos_id`.
    adds_eos: Whether documents end with `eos_id`.
    tokenizer: Name of the tokenizer that made the ids.
    in_threads: Whether up to 32 elements are read at once, for a source that
      waits for a disk or a network.
    chunk_tokens: Tokens of the blocks of a block shuffle.
    cache_bytes: Most bytes of tokens that are kept of elements.

  Returns:
    The store. Its document ids are '<fingerprint>:<number>'.

  Raises:
    ConfigError: If lengths are not those of the source, or options are wrong.
    TypeError: If an argument is of a wrong type.
  """
  options = SourceOptions(
    vocab_size=vocab_size,
    pad_id=pad_id,
    eos_id=eos_id,
    bos_id=bos_id,
    adds_bos=adds_bos,
    adds_eos=adds_eos,
    tokenizer=tokenizer,
  )
  problems = options.problems(options.section)
  elements = Elements(source, lengths)
  num_lengths = len(elements.offsets) - 1
  if num_lengths != len(source):
    problems.append(
      f"`lengths` must be those of the {len(source)} elements of `source`, got"
      f" {num_lengths}. Count the tokens of each element."
    )
  if problems:
    raise schema.ConfigError(problems)
  store = SourceStore(
    elements,
    fingerprint,
    options,
    key,
    in_threads,
    chunk_tokens,
    cache_bytes,
  )
  _ = store.hash
  if fingerprint not in _LOGGED:
    _LOGGED.add(fingerprint)
    logging.warning(
      "%s: its data have no checksums: a state of a run is compared by the"
      " fingerprint and the lengths alone",
      store.path,
    )
  return store
