"""Synthetic corpora that benchmarks share: documents of lognormal lengths.

Median 500 tokens, sigma 1.2, cut to 16 .. 65,536, as web text has them; token
ids are uniform, which is the worst case for compression.
"""

from collections.abc import Iterator
import hashlib
import pathlib

import numpy as np

from chomp_data import stores

NUM_DOCUMENTS = 120_000
VOCAB_SIZE = 50_000
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
  """Writes a store.

  Args:
    path: The directory to create.
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


class LengthsStore(stores.Store):
  """A store of lengths without tokens, to plan what no disk here would hold.

  It answers what planning asks: where documents are, never what is in them.
  Indexes lie beside `path`, as for a real store.
  """

  def __init__(self, path: pathlib.Path, num_documents: int, seed: int = 0):
    """Draws the lengths; keeps 8 bytes a document in memory.

    Args:
      path: Where the store would be.
      num_documents: How many.
      seed: Of the lengths.
    """
    drawn = lengths(np.random.default_rng(seed), num_documents)
    name = f"lengths {num_documents} {seed}"
    super().__init__(path, hashlib.sha256(name.encode()).hexdigest())
    self._offsets = np.zeros(num_documents + 1, np.int64)
    np.cumsum(drawn, out=self._offsets[1:])

  @property
  def tokenizer_info(self) -> stores.TokenizerInfo:
    """See `Store`."""
    return TOKENIZER

  @property
  def num_documents(self) -> int:
    """See `Store`."""
    return len(self._offsets) - 1

  @property
  def num_tokens(self) -> int:
    """See `Store`."""
    return int(self._offsets[-1])

  @property
  def token_dtype(self) -> np.dtype:
    """See `Store`."""
    return np.dtype(np.uint16)

  @property
  def chunk_tokens(self) -> int:
    """See `Store`."""
    return CHUNK

  @property
  def vocab_size(self) -> int:
    """See `Store`."""
    return VOCAB_SIZE

  def set_cache_bytes(self, cache_bytes: int) -> None:
    """See `Store`; there is nothing to keep."""
    del cache_bytes

  def bounds(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """See `Store`."""
    first = self._offsets[documents]
    return first, self._offsets[documents + 1] - first

  def iter_lengths(
    self, batch: int = 1 << 20
  ) -> Iterator[tuple[int, np.ndarray]]:
    """See `Store`."""
    for first in range(0, self.num_documents, batch):
      yield first, np.diff(self._offsets[first : first + batch + 1])
