# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The same documents in each kind of store that is read from buckets.

Chunks are of `CHUNK` tokens in all of them: chunks of our stores, pages of
Megatron's file, chunks of Levanter's arrays.
"""

from collections.abc import Callable
import contextlib
import dataclasses
import json
import pathlib
from typing import Any
from unittest import mock

import numpy as np

from chomp_data import stores
from chomp_data.storage import opening
from chomp_data.stores import span_reads
from chomp_data.stores.tokenized import levanter_store
from chomp_data.stores.tokenized import megatron_store
from chomp_data.testing import stores as testing_stores
from tests.stores import levanter_test

VOCAB = 50_000
SEQ_LEN = 16
CHUNK = 8 * SEQ_LEN
# Documents of the first shard of Levanter's cache are 32 chunks; the second one
# ends within a chunk.
SIZES = (32 * CHUNK, 27 * CHUNK + 45)
NUM_CHUNKS = 32 + 28
NUM_TOKENS = sum(SIZES)


def _documents() -> list[np.ndarray]:
  rng = np.random.default_rng(0)
  tokens = rng.integers(1, VOCAB, NUM_TOKENS)
  # TensorStore leaves chunks of zeros out.
  tokens[5 * CHUNK : 6 * CHUNK] = tokens[37 * CHUNK : 38 * CHUNK] = 0
  cuts = rng.choice(NUM_TOKENS, 39, replace=False)
  return np.split(tokens, np.sort([*cuts, SIZES[0], SIZES[0]]))


DOCUMENTS = _documents()
TOKENS = np.concatenate(DOCUMENTS)
EVERYTHING = np.asarray([0]), np.asarray([NUM_TOKENS])


@dataclasses.dataclass(frozen=True)
class Kind:
  """A kind of store.

  Attributes:
    name: It.
    write: Writes documents to a path.
    options: The options that opening takes, and a config's section.
    tokens: A part of the names of objects that hold tokens.
    width: Bytes of a token.
    requests: To read all tokens, indexes of objects included.
  """

  name: str
  write: Callable[[pathlib.Path, list[np.ndarray]], None]
  options: dict[str, Any]
  tokens: str
  width: int
  requests: int

  def open(self, path: Any, cache_bytes: int = 2**20, **options: Any):
    """Opens a store; `options` are of its section."""
    given = {
      section: dataclasses.replace(value, **options)
      for section, value in self.options.items()
    }
    return stores.open_store(path, cache_bytes=cache_bytes, **given)

  def config(self, path: Any, rows: Any = None) -> dict[str, Any]:
    """Returns the config of a run of one epoch."""
    source = {
      "store": str(path),
      "rows": rows or {"kind": "sequential"},
      "shuffle": {"kind": "block", "window_blocks": 4},
    }
    for section in self.options:
      source[section] = {"vocab_size": VOCAB, "pad_id": 0}
    return {
      "seq_len": SEQ_LEN,
      "global_batch_size": 8,
      "seed": 1,
      "epochs": 1,
      "sources": {"web": source},
    }


def small_pages() -> contextlib.AbstractContextManager[Any]:
  """Makes pages of Megatron's files as small as other chunks are."""
  return mock.patch.object(span_reads, "DEFAULT_CHUNK_TOKENS", CHUNK)


def upload(local: pathlib.Path, url: str) -> str:
  """Uploads a directory, or the files `<local>.*`; returns the URL."""
  files, root = sorted(local.rglob("*")), local
  if not local.is_dir():
    files, root = sorted(local.parent.glob(f"{local.name}.*")), local.parent
  place = opening.open_storage(url if root == local else url.rpartition("/")[0])
  for file in files:
    if file.is_file():
      place.put(file.relative_to(root).as_posix(), file.read_bytes())
  return url


def _write_ours(compression: str) -> Callable[..., None]:
  def write(path: pathlib.Path, documents: list[np.ndarray]) -> None:
    testing_stores.make_store(
      path,
      documents,
      vocab_size=VOCAB,
      compression=compression,
      chunk=CHUNK,
      chunks_per_shard=16,
    )

  return write


def _write_megatron(path: pathlib.Path, documents: list[np.ndarray]) -> None:
  """Writes a corpus as megatron-core does; pinned in stores/megatron_test."""
  lengths = np.asarray([len(document) for document in documents], "<i4")
  ends = np.cumsum(lengths.astype("<i8"))
  num = len(documents)
  np.concatenate(documents).astype("<u2").tofile(f"{path}.bin")
  pathlib.Path(f"{path}.idx").write_bytes(
    b"MMIDIDX\0\0"
    + (1).to_bytes(8, "little")
    + bytes([8])  # uint16.
    + num.to_bytes(8, "little")
    + (num + 1).to_bytes(8, "little")
    + lengths.tobytes()
    + ((ends - lengths) * 2).astype("<i8").tobytes()
    + np.arange(num + 1, dtype="<i8").tobytes()
  )


def _write_levanter(path: pathlib.Path, documents: list[np.ndarray]) -> None:
  """Writes a cache of two shards as Levanter does, of smaller chunks."""
  half = len(documents) // 2
  rows = {}
  for name, part in (
    ("part-0", documents[:half]),
    ("part-1", documents[half:]),
  ):
    field = path / name / "input_ids"
    _write_array(field / "data", np.concatenate(part).astype(np.int32), CHUNK)
    ends = np.cumsum([len(document) for document in part])
    _write_array(field / "offsets", np.asarray([len(part), *ends]), 8)
    rows[name] = len(part)
  ledger = {
    "total_num_rows": len(documents),
    "shard_rows": rows,
    "is_finished": True,
    "finished_shards": list(rows),
    "layout": "sharded",
  }
  (path / "shard_ledger.json").write_text(json.dumps(ledger))


def _write_array(path: pathlib.Path, values: np.ndarray, chunk: int) -> None:
  """Writes an array as the pinned ones are, of smaller chunks."""
  pinned = levanter_test.FIXTURES / "cache/input_ids/data/zarr.json"
  metadata = json.loads(pinned.read_text())
  metadata["data_type"] = values.dtype.name
  metadata["chunk_grid"]["configuration"]["chunk_shape"] = [8 * chunk]
  metadata["codecs"][0]["configuration"]["chunk_shape"] = [chunk]
  inner = metadata["codecs"][0]["configuration"]["codecs"]
  inner[1]["configuration"]["typesize"] = values.itemsize
  levanter_test.write_array(path, values, metadata)


_TOKENS = {"vocab_size": VOCAB, "eos_id": 0, "adds_eos": True}
MEGATRON = Kind(
  "megatron",
  _write_megatron,
  {"megatron": megatron_store.MegatronOptions(**_TOKENS)},
  tokens="megatron.bin",
  width=2,
  requests=1,
)
LEVANTER = Kind(
  "levanter",
  _write_levanter,
  {"levanter": levanter_store.LevanterOptions(**_TOKENS)},
  tokens="/input_ids/data/c/",
  width=4,
  requests=18,
)
OURS = tuple(
  Kind(name, _write_ours(name), {}, "/tokens/c/", 2, 4)
  for name in ("none", "zstd")
)
FOREIGN = (MEGATRON, LEVANTER)
KINDS = {kind.name: kind for kind in (*OURS, *FOREIGN)}
