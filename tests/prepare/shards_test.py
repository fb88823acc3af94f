# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Parts joined by shard files: the bytes that one writer would have written."""

import os
import pathlib
import shutil
import signal

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data import errors
from chomp_data import stores
from chomp_data.prepare import part_files
from chomp_data.prepare import shards
from chomp_data.stores.zarr import array_layout
from chomp_data.stores.zarr import array_writer
from chomp_data.stores.zarr import manifest as manifest_lib
from chomp_data.stores.zarr import store_writer
from chomp_data.stores.zarr import tree_hash
from tests import forks
from tests import laws

INFO = stores.TokenizerInfo("custom", "0" * 64, 100)
WEIGHTS = (0.0, 1.0, 0.25, 2.0)


@st.composite
def corpora(draw):
  """Parts of documents: (tokens, id, meta, weights of tokens, weight)."""
  number = iter(range(10**6))
  document = st.integers(1, 9).flatmap(
    lambda n: st.tuples(
      st.just([next(number) % 100 for _ in range(n)]),
      st.sampled_from(["a", "", "id/é", "日本", "long" * 5]),
      st.sampled_from(["", "x", "é"]),
      st.lists(st.sampled_from(WEIGHTS), min_size=n, max_size=n),
      st.sampled_from([1.0, 0.0, 3.5]),
    )
  )
  part = st.lists(document, max_size=4)
  return draw(st.lists(part, min_size=1, max_size=5).filter(any))


def runs_of(weights):
  first = np.flatnonzero(np.diff(np.asarray([-1.0, *weights])))
  return first, np.asarray(weights)[first]


def write_part(directory, key, documents, dtype, has_all, batch):
  with part_files.PartWriter(
    str(directory),
    key,
    np.dtype(dtype).newbyteorder("<"),
    has_meta=has_all,
    has_labels=has_all,
    has_weights=has_all,
  ) as writer:
    for i in range(0, len(documents), batch):
      own = documents[i : i + batch]
      weights = [w for document in own for w in document[3]]
      writer.add(
        np.asarray([t for document in own for t in document[0]]),
        np.asarray([len(document[0]) for document in own]),
        [document[1] for document in own],
        [document[2] for document in own] if has_all else None,
        runs_of(weights) if has_all else None,
        np.asarray([document[4] for document in own]) if has_all else None,
      )
    return writer.finish(0, {})


def join(root, keys, rows, chunk, compression="none"):
  arrays = shards.tasks(
    keys,
    rows,
    token_dtype="uint16",
    chunk=chunk,
    compression=compression,
    parts=str(root / "parts"),
    store=str(root / "store"),
    shard_rows=str(root / "rows"),
  )
  finished = {}
  for name, (layout, own) in arrays.items():
    # In any order.
    written = {t.shard: shards.write_shard(t) for t in reversed(own)}
    for task in own:
      assert shards.find_shard(task) == written[task.shard]
    finished[name] = shards.finished(layout, [written[t.shard] for t in own])
  manifest = manifest_lib.Manifest(
    num_documents=sum(row.num_documents for row in rows),
    num_tokens=finished["tokens"].layout.size,
    num_empty_skipped=0,
    tokenizer=INFO,
    arrays=finished,
    prepared={},
    levels=shards.levels_of(rows),
  )
  return store_writer.finish_store(root / "store", manifest, None)


def files_of(path):
  return {
    file.relative_to(path).as_posix(): file.read_bytes()
    for file in pathlib.Path(path).rglob("*")
    if file.is_file()
  }


@laws.examples(
  60, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
@hypothesis.given(
  corpus=corpora(),
  chunk=st.integers(1, 7),
  per_shard=st.integers(1, 3),
  block=st.integers(1, 40),
  batch=st.integers(1, 3),
  has_all=st.booleans(),
  compression=st.sampled_from(["none", "zstd"]),
  narrow=st.booleans(),
)
def test_joined_parts_are_the_bytes_of_one_writer(
  tmp_path_factory,
  corpus,
  chunk,
  per_shard,
  block,
  batch,
  has_all,
  compression,
  narrow,
):
  root = tmp_path_factory.mktemp("joined")
  for name in ("parts", "store", "rows"):
    (root / name).mkdir()
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(tree_hash, "BLOCK", block)
    patch.setattr(part_files, "BLOCK", 64)
    patch.setattr(array_layout, "DEFAULT_CHUNKS_PER_SHARD", per_shard)
    keys = [f"part{i}" for i in range(len(corpus))]
    dtype = "uint8" if narrow else "uint16"  # Of tokens; a store's is uint16.
    rows = [
      write_part(root / "parts", key, own, dtype, has_all, batch)
      for key, own in zip(keys, corpus, strict=True)
    ]
    for key, row in zip(keys, rows, strict=True):
      assert part_files.find(str(root / "parts"), key) == row
    manifest = join(root, keys, rows, chunk, compression)
    documents = [own for part in corpus for own in part]
    levels = shards.levels_of(rows)
    own = {}
    if has_all:
      own = {
        "meta": [document[2] for document in documents],
        "levels": levels,
        "label_levels": [
          [levels.index(w) for w in document[3]] for document in documents
        ],
        "weights": [document[4] for document in documents],
      }
    store = stores.write_store(
      root / "whole",
      [document[0] for document in documents],
      ids=[document[1] for document in documents],
      tokenizer_info=INFO,
      chunk=chunk,
      chunks_per_shard=per_shard,
      compression=compression,
      **own,
    )
    assert store.hash == manifest.hash
    assert files_of(root / "store") == files_of(root / "whole")
    stores.verify_store(root / "store")


@pytest.fixture
def parts(tmp_path):
  for name in ("parts", "store", "rows"):
    (tmp_path / name).mkdir()
  documents = [([i], str(i), "", [1.0], 1.0) for i in range(9)]
  row = write_part(tmp_path / "parts", "a", documents, "uint16", False, 4)
  return tmp_path, row


def test_a_part_that_was_altered_is_named(parts):
  root, row = parts
  file = root / "parts" / "a.part" / "00000"
  data = bytearray(file.read_bytes())
  data[-1] ^= 1
  file.write_bytes(data)
  with pytest.raises(errors.PrepareError, match=r"a\.part has other bytes"):
    join(root, ["a"], [row], 4)
  file.unlink()
  with pytest.raises(errors.PrepareError, match=r"a\.part"):
    join(root, ["a"], [row], 4)
  assert part_files.find(str(root / "parts"), "a") is None


def test_a_shard_file_that_another_task_put_there_is_written_again(parts):
  root, row = parts
  join(root, ["a"], [row], 4)
  tasks = shards.tasks(
    ["a"], [row], token_dtype="uint16", chunk=4, compression="none",
    parts=str(root / "parts"), store=str(root / "store"),
    shard_rows=str(root / "rows"),
  )["tokens"][1]  # fmt: skip
  (task,) = tasks
  assert shards.find_shard(task) is not None
  file = root / "store" / "tokens" / "c" / "0"
  shutil.copy(file, root / "other")
  (root / "other").replace(file)
  assert shards.find_shard(task) is None


def die_at_a_shard(root, row):
  def die(self):
    os.kill(os.getpid(), signal.SIGKILL)

  array_writer.ShardWriter.finish = die
  join(root, ["a"], [row], 4)


def test_a_worker_that_dies_leaves_nothing_in_the_store(parts):
  root, row = parts
  assert forks.call(die_at_a_shard, root, row) == -signal.SIGKILL
  join(root, ["a"], [row], 4)
  stores.verify_store(root / "store")


def test_weights_of_more_levels_than_a_byte_counts_are_refused(tmp_path):
  weights = [i / 300 for i in range(300)]
  documents = [([1], "", "", [weight], 1.0) for weight in weights]
  with pytest.raises(errors.PrepareError, match="at most 256 different"):
    write_part(tmp_path, "a", documents, "uint16", True, 300)
  assert list(tmp_path.iterdir()) == []
  rows = [
    write_part(tmp_path, "a", documents[:200], "uint16", True, 300),
    write_part(tmp_path, "b", documents[200:], "uint16", True, 300),
  ]
  with pytest.raises(errors.PrepareError, match="at most 256 different"):
    shards.levels_of(rows)
  assert set(manifest_lib.LABEL_ARRAYS) <= set(rows[0].sections)
