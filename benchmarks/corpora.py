# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Synthetic corpora that benchmarks share: documents of lognormal lengths.

Median 500 tokens, sigma 1.2, cut to 16 .. 65,536, as web text has them; token
ids are uniform, which is the worst case for compression.
"""

import hashlib
import pathlib

import numpy as np

from chomp_data import stores
from chomp_data.storage import chunk_cache
from chomp_data.stores import base
from chomp_data.stores import documents as documents_lib
from chomp_data.stores import texts

NUM_DOCUMENTS = 120_000
VOCAB_SIZE = 50_000
FILE = "lengths.bin"  # of a `KeptLengthsStore`
_DRAWN = 1 << 22  # lengths drawn at once for it
CHUNK = 256 * 1024  # tokens, the default of stores

_MEDIAN, _SIGMA = 500, 1.2  # tokens, and of the logarithm
_SHORTEST, _LONGEST = 16, 65_536  # tokens

TOKENIZER = stores.TokenizerInfo(
  kind="custom",
  sha256=hashlib.sha256(b"synthetic").hexdigest(),
  vocab_size=VOCAB_SIZE,
  pad_id=0,
  eos_id=1,
  bos_id=2,
  adds_bos=False,
  adds_eos=False,
)


def lengths(
  rng: np.random.Generator, num_documents: int, median: float = _MEDIAN
) -> np.ndarray:
  """Draws document lengths, int64[num_documents]."""
  drawn = np.exp(rng.normal(np.log(median), _SIGMA, num_documents))
  return np.clip(drawn, _SHORTEST, _LONGEST).astype(np.int64)


def make_corpus(
  path: pathlib.Path,
  num_documents: int = NUM_DOCUMENTS,
  *,
  num_tokens: int | None = None,
  median: float = _MEDIAN,
  compression: str = "none",
  chunk: int = CHUNK,
) -> stores.Store:
  """Writes a store, or opens what was written there before.

  Args:
    path: The directory of the store.
    num_documents: Documents drawn.
    num_tokens: Where the last document is cut, or None to keep them all.
    median: Of the lengths drawn, in tokens.
    compression: 'none' or 'zstd'.
    chunk: Tokens of a chunk.

  Returns:
    The store, opened.

  Raises:
    ValueError: If the documents have fewer than `num_tokens`.
  """
  if path.exists():
    return stores.open_store(path)
  rng = np.random.default_rng(0)
  sizes = lengths(rng, num_documents, median)
  if num_tokens is not None:
    ends = np.cumsum(sizes)
    if ends[-1] < num_tokens:
      raise ValueError(
        f"`num_tokens` must be at most {ends[-1]}, got {num_tokens}. Draw more"
        " documents."
      )
    last = int(np.searchsorted(ends, num_tokens))
    sizes = sizes[: last + 1]
    sizes[last] -= ends[last] - num_tokens
  return stores.write_store(
    path,
    (rng.integers(3, VOCAB_SIZE, size=n, dtype=np.int64) for n in sizes),
    tokenizer_info=TOKENIZER,
    compression=compression,
    chunk=chunk,
  )


class _Repeated:
  """Offsets of documents whose lengths are repeated, in no memory."""

  def __init__(self, ends: np.ndarray, times: int):
    self._ends = ends
    self._times = times
    self.num_documents = (len(ends) - 1) * times
    self.num_tokens = int(ends[-1]) * times

  def gather(self, positions: np.ndarray) -> np.ndarray:
    """Returns the first tokens of documents, and the end."""
    if self._times == 1:
      return self._ends[positions]
    times, index = np.divmod(positions, len(self._ends) - 1)
    return times * self._ends[-1] + self._ends[index]

  def read(self, start: int, stop: int) -> np.ndarray:
    """Returns the first tokens of documents that follow each other."""
    if self._times == 1:
      return np.asarray(self._ends[start:stop])
    return self.gather(np.arange(start, stop))


class _NoTokens:
  """Tokens that cannot be read."""

  def __init__(self):
    self.counters = chunk_cache.Counters()

  def copy_spans(
    self,
    starts: np.ndarray,
    lengths: np.ndarray,
    out: np.ndarray,
    positions: np.ndarray,
  ) -> None:
    """Fails: there are none."""
    raise NotImplementedError

  def prefetch(self, starts: np.ndarray, lengths: np.ndarray) -> None:
    """Fails: there are none."""
    raise NotImplementedError

  def set_cache_bytes(self, cache_bytes: int) -> None:
    """Does nothing: there is nothing to keep."""


def _opened(path: str, name: str, offsets: _Repeated) -> base.Opened:
  """Returns a store without tokens."""
  return base.Opened(
    hash=hashlib.sha256(name.encode()).hexdigest(),
    tokenizer=TOKENIZER,
    tokenizer_identity=("sha256", TOKENIZER.sha256),
    num_tokens=offsets.num_tokens,
    token_dtype=np.dtype(np.uint16),
    documents=documents_lib.StoredOffsets(offsets, offsets.num_documents, path),
    tokens=_NoTokens(),
    ids=texts.NumberedTexts(
      ["document"], np.asarray([0, offsets.num_documents])
    ),
  )


def write_lengths(path: pathlib.Path, num_documents: int) -> None:
  """Writes a file for `KeptLengthsStore`."""
  end = 0
  with open(path, "wb") as file:
    file.write(np.zeros(1, np.int64).tobytes())
    for first in range(0, num_documents, _DRAWN):
      rng = np.random.default_rng((1, first))
      drawn = lengths(rng, min(_DRAWN, num_documents - first))
      ends = end + np.cumsum(drawn)
      end = int(ends[-1])
      file.write(ends.tobytes())


class KeptLengthsStore(base.Store):
  """A store of lengths in the file `lengths.bin` of its path: 8 bytes of each
  on disk, none in memory."""

  def _open(self) -> base.Opened:
    ends = np.memmap(pathlib.Path(self.path, FILE), np.int64, "r")
    offsets = _Repeated(ends, 1)
    return _opened(self.path, f"kept lengths {offsets.num_documents}", offsets)


class LengthsStore(base.Store):
  """A store of lengths without tokens, to plan what no disk here would hold.

  It answers what planning asks: where documents are, never what is in them.
  Indexes lie beside `path`, as for a real store.
  """

  def __init__(
    self, path: pathlib.Path, num_drawn: int, seed: int = 0, times: int = 1
  ):
    """Draws the lengths; keeps 8 bytes of each that is drawn.

    Args:
      path: Where the store would be.
      num_drawn: How many lengths.
      seed: Of the lengths.
      times: How often they are repeated, in no memory.
    """
    super().__init__(path)
    self._drawn = num_drawn, seed, times
    _ = self.hash

  def _open(self) -> base.Opened:
    num_drawn, seed, times = self._drawn
    drawn = lengths(np.random.default_rng(seed), num_drawn)
    ends = np.concatenate([[0], np.cumsum(drawn)])
    name = f"lengths {num_drawn} {seed} {times}"
    return _opened(self.path, name, _Repeated(ends, times))
