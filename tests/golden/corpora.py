# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Small corpora, the same on every machine, and how they are written.

Tokens and lengths are a hash of their number: no text of this machine and no
generator of NumPy's, which may change between versions. This is the only
module here that imports from inside the package.
"""

from collections.abc import Iterator
import hashlib
import json
import os
import pathlib
import shutil
from typing import Any

import numpy as np
import pytest

from chomp_data import stores
from chomp_data.stores import samples_array_record
from chomp_data.testing import stores as testing_stores
from examples import save_to_disk

# The files' times are part of what identifies an ArrayRecord corpus.
TIME = 1_700_000_000

FIXTURES = pathlib.Path(__file__).parents[1] / "stores" / "fixtures"

# An earlier phase's state, and lists of tombstones by the file's name.
PHASE = "phase_1"
_GONE = {
  "gone.jsonl": [
    {"source": "text", "document": 2},
    {"source": "text", "document": "5"},
    {"source": "text", "document": 4, "start": 40, "length": 60},
  ],
  "gone_of_mix.jsonl": [
    {"source": "web", "document": 4},
    {"source": "notes", "document": 4, "start": 20},
  ],
  "gone_of_pairs.jsonl": [
    {"source": "text", "document": 9},
    {"source": "text", "document": "30"},
    {"source": "text", "document": 31, "start": 1, "length": 1},
  ],
}

SIZES = ((4, 6), (6, 4), (8, 8))
PICTURE_SIZES = ((32, 32), (32, 48), (48, 32), (64, 64))


def scattered(seed: int, count: int) -> np.ndarray:
  """Returns uint64[count], the hashes of splitmix64 from a seed on."""
  mixed = np.arange(count, dtype=np.uint64) + np.uint64(seed << 32)
  mixed *= np.uint64(0x9E3779B97F4A7C15)
  mixed ^= mixed >> np.uint64(30)
  mixed *= np.uint64(0xBF58476D1CE4E5B9)
  mixed ^= mixed >> np.uint64(27)
  mixed *= np.uint64(0x94D049BB133111EB)
  return mixed ^ (mixed >> np.uint64(31))


def below(seed: int, count: int, limit: int) -> np.ndarray:
  """Returns int64[count] of 0 .. limit - 1."""
  return (scattered(seed, count) % np.uint64(limit)).astype(np.int64)


def _skewed(seed: int, count: int, usual: int) -> np.ndarray:
  """Returns lengths, most of them short, with empty and long ones."""
  lengths = 1 + below(seed, count, usual)
  lengths[3::7] *= 4
  lengths[5::13] *= 9
  lengths[:5] = usual, 0, 1, 2, 12 * usual
  lengths[-2:] = 1, 0
  return lengths


# Lengths of the documents in tokens, and what is special about the store.
_Corpora = dict[str, tuple[np.ndarray, dict[str, Any]]]
_STORES: _Corpora = {
  "web": (_skewed(1, 60, 18), {"chunk": 64}),
  "code": (
    20 + below(2, 32, 70),
    {"compression": "zstd", "chunk": 128, "chunks_per_shard": 4},
  ),
  "books": (150 + below(3, 6, 250), {}),
  "notes": (_skewed(4, 40, 9), {"chunk": 32, "chunks_per_shard": 3}),
  # As other tools prepare documents.
  "ended": (2 + below(5, 24, 40), {"adds_bos": True, "adds_eos": True}),
  # Long enough for the files under configs/.
  "stdlib": (
    np.concatenate([_skewed(6, 60, 60), 400 + below(7, 12, 900)]),
    {"chunk": 512},
  ),
  "packages": (_skewed(8, 90, 80), {"chunk": 512}),
  "columned": (
    _skewed(16, 50, 20),
    {
      "chunk": 128,
      "columns": {
        "quality": stores.Column("uint8"),
        "teacher": stores.Column("float16", (2,), align="target"),
        "score": stores.Column("bfloat16", (3,)),
        "margin": stores.Column("int16", per="document"),
      },
    },
  ),
}
# Documents enough for the side indexes of large stores; regular, so that they
# take no room in the archive.
_MANY = np.resize(np.asarray([3, 1, 5, 2, 0, 4, 2, 6]), 2**18 + 24)
_MANY[100] = 300
_LARGE: _Corpora = {"many": (_MANY, {"chunk": 2**14})}
# Files of ArrayRecord, and what they do not say of themselves.
_RECORDS: _Corpora = {
  "records": (_skewed(9, 50, 20), {}),
  "packed_records": (
    10 + below(10, 40, 60),
    {"dtype": "uint32", "files": 3, "group_size": 8, "compression": "zstd"},
  ),
}
# Number of samples, their sizes, and whether as `save_to_disk` writes them.
_SAMPLES: dict[str, tuple[int, tuple[tuple[int, int], ...], bool]] = {
  "photos": (70, SIZES, False),
  "scans": (55, SIZES, True),
  "digits": (24, PICTURE_SIZES, False),
  "plots": (20, PICTURE_SIZES, True),
}
# Its documents are of kinds, as `--meta_key` keeps them.
_LABELLED = "labelled"
# Its tokens have levels, and its documents weights.
_WEIGHED = "weighed"
# Its documents are preference pairs, with levels.
_PAIRS = "pairs"
# What other tools wrote: tests/stores/fixtures, of which this is the file.
_FOREIGN = {"megatron": "int32_document", "levanter": "sharded"}
SMALL = (
  *_STORES, _LABELLED, _WEIGHED, _PAIRS, *_RECORDS, *_SAMPLES, *_FOREIGN,
)  # fmt: skip
NAMES = (*SMALL, *_LARGE)


def documents(name: str) -> list[np.ndarray]:
  """Returns the tokens of each document of a corpus, from 3 on."""
  known = {
    **_STORES,
    **_RECORDS,
    _LABELLED: (30 + below(11, 14, 90), {}),
    _WEIGHED: (_skewed(12, 40, 25), {}),
  }
  if name == _PAIRS:
    return [
      3 + np.concatenate([below(800 + pair, prompt, 253), answer])
      for pair, (prompt, *answers) in enumerate(_pair_lengths())
      for answer in (
        below(900 + 2 * pair + half, size, 253)
        for half, size in enumerate(answers)
      )
    ]
  if name in _LARGE:
    lengths = _LARGE[name][0]
    tokens = np.resize(np.arange(3, 253), int(lengths.sum()))
    return np.split(tokens, np.cumsum(lengths)[:-1])
  lengths = known[name][0]
  seed = 100 + int.from_bytes(hashlib.sha256(name.encode()).digest()[:2])
  tokens = 3 + below(seed, int(lengths.sum()), 253)
  split = np.split(tokens, np.cumsum(lengths)[:-1])
  if name == "ended":
    for own in split:
      own[0], own[-1] = 2, 1
  return split


def _pair_lengths() -> list[list[int]]:
  """Returns (tokens of the prompt, of the chosen, of the rejected answer)."""
  lengths = np.stack(
    [below(14, 40, 8), *(1 + below(15, 80, 9)).reshape(2, 40)], axis=1
  )
  # A half of no token, a prompt that can be cut, and two that are too short.
  lengths[3] = 0, 0, 4
  lengths[11] = 14, 7, 5
  lengths[20] = 6, 20, 8
  lengths[21] = 0, 20, 18
  return lengths.tolist()


class Elements:
  """The documents of a corpus as a Grain source; with a key, as mappings."""

  def __init__(self, name: str, key: str | None = None):
    self._documents = documents(name)
    self._key = key

  def __len__(self) -> int:
    return len(self._documents)

  def __getitem__(self, index: int) -> Any:
    tokens = self._documents[index]
    return tokens if self._key is None else {"id": index, self._key: tokens}


def from_source(
  name: str, key: str | None = None, **options: Any
) -> stores.Store:
  """Returns a corpus of documents as `stores.from_source` of its elements.

  Args:
    name: Of a corpus that is a store of our own, without labels.
    key: Which value of an element is the tokens.
    **options: More arguments of `from_source`.
  """
  lengths, own = {**_STORES, **_LARGE}[name]
  return stores.from_source(
    Elements(name, key),
    lengths,
    vocab_size=256,
    fingerprint=name,
    key=key,
    pad_id=0,
    eos_id=1,
    bos_id=2,
    adds_bos=own.get("adds_bos", False),
    adds_eos=own.get("adds_eos", False),
    chunk_tokens=own.get("chunk", 256),
    **options,
  )


def samples(name: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
  """Yields arrays and values whose numbers say which sample they are."""
  count, sizes, _ = _SAMPLES[name]
  seed = 100 + int.from_bytes(hashlib.sha256(name.encode()).digest()[:2])
  which = below(seed, count, len(sizes))
  for number in range(count):
    height, width = sizes[int(which[number])]
    pixels = np.full((height, width, 3), number % 251, np.uint8)
    pixels[0, 0] = seed % 256, number // 251, height
    latent = np.full((height // 2, width // 2), number / 8, np.float32)
    yield (
      {"pixels": pixels, "latent": latent},
      {
        "height": height,
        "width": width,
        "label": number % 16,
        "score": number / 4,
      },
    )


def _column_values(name: str, columns: dict[str, Any]) -> dict[str, Any]:
  """Returns values that every dtype holds, of tokens or documents."""
  lengths, values = _STORES[name][0].tolist(), {}
  for i, (column, spec) in enumerate(columns.items()):
    if spec.per == "document":
      values[column] = (1 + below(70 + i, len(lengths), 99)).tolist()
      continue
    flat = 1 + below(70 + i, sum(lengths) * spec.width, 99)
    split = flat.reshape(-1, *spec.shape)
    values[column] = np.split(split, np.cumsum(lengths)[:-1])
  return values


def write(root: pathlib.Path, name: str) -> None:
  """Writes a corpus as `root / name`."""
  path = root / name
  if name in _STORES or name in _LARGE:
    own = {"chunk": 256, "bos_id": 2, **{**_STORES, **_LARGE}[name][1]}
    if "columns" in own:
      own["column_values"] = _column_values(name, own["columns"])
    testing_stores.make_store(path, documents(name), **own)
  elif name == _LABELLED:
    labels = ["law", "", "poem"]
    texts = documents(name)
    stores.write_store(
      path,
      texts,
      ids=[f"{name}/{i}" for i in range(len(texts))],
      meta=[labels[i % 3] for i in range(len(texts))],
      tokenizer_info=stores.TokenizerInfo(
        kind="custom",
        sha256=hashlib.sha256(b"golden").hexdigest(),
        vocab_size=256,
        pad_id=0,
        eos_id=1,
      ),
      chunk=128,
      chunks_per_shard=2,
    )
  elif name == _WEIGHED:
    texts = documents(name)
    testing_stores.make_store(
      path,
      texts,
      levels=(0.0, 1.0, 0.5),
      label_levels=[
        below(50 + i, len(own) // 6 + 1, 3).repeat(6)[: len(own)]
        for i, own in enumerate(texts)
      ],
      weights=[0.25 * (i % 5) for i in range(len(texts))],
      chunk=128,
    )
  elif name == _PAIRS:
    prompts = [own[0] for own in _pair_lengths() for _ in range(2)]
    testing_stores.make_store(
      path,
      documents(name),
      levels=(0.0, 1.0),
      label_levels=[
        np.arange(len(tokens)) >= prompt
        for tokens, prompt in zip(documents(name), prompts, strict=True)
      ],
      pairs=True,
      bos_id=2,
      chunk=128,
    )
  elif name in _FOREIGN:
    shutil.copytree(FIXTURES / name, path)
  elif name in _RECORDS:
    testing_stores.make_array_records(
      path, documents(name), **_RECORDS[name][1]
    )
  elif _SAMPLES[name][2]:
    save_to_disk.save_to_disk(path, samples(name), samples_per_file=30)
  else:
    samples_array_record.write_samples(path, samples(name), samples_per_file=30)
  for file in path.rglob("*"):
    os.utime(file, (TIME, TIME))


def is_store(name: str) -> bool:
  """Whether a corpus is a store of our own, and not files of another kind."""
  return name in {*_STORES, *_LARGE, _LABELLED, _WEIGHED, _PAIRS}


def has_own_bytes(name: str) -> bool:
  """Whether the bytes on disk are ours alone, and no compression library's."""
  known = {**_LARGE, **_STORES}
  return is_store(name) and "compression" not in known.get(name, (0, {}))[1]


def write_beside(root: pathlib.Path) -> None:
  """Writes what configs name besides stores: tombstones, an earlier phase."""
  for name, lines in _GONE.items():
    text = "".join(f"{json.dumps(own)}\n" for own in lines)
    (root / name).write_text(text)
  expected = pathlib.Path(__file__).parent / "expected"
  kept = json.loads((expected / "sequential_documents_full.json").read_text())
  (root / PHASE).mkdir()
  states = kept["states"]
  (root / PHASE / "input.json").write_text(states[min(states)]["state"])


def write_all(root: pathlib.Path) -> None:
  """Writes every small corpus under a directory that exists."""
  write_beside(root)
  for name in SMALL:
    write(root, name)


def write_for_tests(
  root: pathlib.Path, patch: pytest.MonkeyPatch, cache: pathlib.Path
) -> None:
  """Writes every small corpus; `patch` lasts as long as they are read.

  Args:
    root: A directory that exists.
    patch: Sets where indexes go that do not lie beside a store.
    cache: That directory.
  """
  patch.setenv("XDG_CACHE_HOME", str(cache))
  write_all(root)
