# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Stores written as ArrayRecord: what others read, and how we train on it."""

import grain
import numpy as np
import pytest

from chomp_data import pipeline
from chomp_data import stores
from chomp_data.stores.array_record import record_writer
from chomp_data.testing import batch_hashes
from chomp_data.testing import stores as testing_stores
from tests import in_process


@pytest.fixture(scope="module")
def documents():
  rng = np.random.default_rng(0)
  return [rng.integers(0, 250, n) for n in rng.integers(0, 90, 60)]


@pytest.fixture(params=[250, 70_000], ids=["uint16", "uint32"])
def both(request, tmp_path, documents):
  """A store, and the same documents as ArrayRecord in several files."""
  scale = request.param // 250
  store = testing_stores.make_store(
    tmp_path / "zarr",
    [own * scale for own in documents],
    vocab_size=request.param,
    adds_eos=True,
    chunk=256 * 1024,
  )
  path = tmp_path / "records"
  record_writer.write(store, path, file_bytes=1_000)
  return store, path


def test_stock_grain_reads_the_documents(both):
  store, path = both
  files = sorted(str(own) for own in path.glob("*.array_record"))
  assert len(files) > 3
  source = grain.sources.ArrayRecordDataSource(files)
  dtype = "<u2" if store.opened.tokenizer.vocab_size <= 2**16 else "<u4"
  found = [np.frombuffer(source[i], dtype).tolist() for i in range(len(source))]
  assert found == [
    stores.read_document(store, i).tolist() for i in range(store.num_documents)
  ]


def test_it_opens_without_options_and_holds_the_same(both):
  store, path = both
  found = stores.open_store(path)
  assert found.num_tokens == store.num_tokens
  assert found.opened.token_dtype == store.opened.token_dtype
  one, other = found.opened.tokenizer, store.opened.tokenizer
  for name in ("vocab_size", "pad_id", "eos_id", "bos_id", "adds_eos"):
    assert getattr(one, name) == getattr(other, name), name
  stores.read_document(found, 3)


@pytest.mark.parametrize(
  ("rows", "shuffle"),
  [("sequential", "block"), ("bin", "full"), ("multi_splice", "none")],
)
def test_a_run_is_the_same_from_either(both, rows, shuffle):
  hashes = []
  for path in (both[0].path, str(both[1])):
    data = {
      "seq_len": 32,
      "global_batch_size": 4,
      "epochs": 2,
      "sources": {
        "web": {
          "store": path,
          "rows": {"kind": rows},
          "shuffle": {"kind": shuffle},
        }
      },
    }
    pipe = pipeline.build(data)
    hashes.append(
      [
        batch_hashes.batch_sha256(pipe.batch(step))
        for step in range(pipe.num_steps)
      ]
    )
  assert hashes[0] == hashes[1]


def test_the_same_store_gives_the_same_bytes(both, tmp_path):
  store, path = both
  record_writer.write(store, tmp_path / "again", file_bytes=1_000)
  for file in path.iterdir():
    assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes()


def test_what_is_there_is_replaced_on_request_only(both, tmp_path):
  store, path = both
  with pytest.raises(stores.StoreError, match="must be empty"):
    record_writer.write(store, path)
  record_writer.write(store, path, overwrite=True)
  assert len(list(path.glob("*.array_record"))) == 1
  (path / "notes.txt").write_text("mine")
  with pytest.raises(stores.StoreError, match="must be empty"):
    record_writer.write(store, path, overwrite=True)
  assert not list(tmp_path.glob("*.writing"))


def test_labels_have_no_place_in_records(tmp_path):
  store = testing_stores.make_store(
    tmp_path / "zarr",
    [[1, 2, 3]],
    levels=[0.0, 1.0],
    label_levels=[[0, 1, 1]],
  )
  with pytest.raises(stores.StoreError, match="without labels"):
    record_writer.write(store, tmp_path / "records")
  assert not (tmp_path / "records").exists()


def test_options_that_were_altered_are_an_error(both):
  _, path = both
  (path / "array_record.json").write_text('{"vocab_size": 0}')
  with pytest.raises(stores.StoreError, match=r"array_record\.json"):
    stores.open_store(path)


def test_prepare_writes_records_that_train_as_its_stores_do(tmp_path):
  source = tmp_path / "text.jsonl"
  lines = [f'{{"id": "{i}", "text": "{"word " * (i + 1)}"}}' for i in range(30)]
  source.write_text("\n".join(lines) + "\n")
  flags = [f"--input={source}", "--workers=1"]
  for name, own in (("zarr", []), ("records", ["--format=array_record"])):
    done = in_process.run_tool(
      "prepare", *flags, f"--output={tmp_path / name}", *own, check=True
    )
    assert "30" in done.stdout
  done = in_process.run_tool(
    "prepare", *flags, f"--output={tmp_path / 'records'}",
    "--format=array_record", check=True,
  )  # fmt: skip
  assert "nothing to do" in done.stdout
  assert not list(tmp_path.glob("*.partial"))
  one = stores.open_store(tmp_path / "zarr")
  other = stores.open_store(tmp_path / "records")
  assert other.num_documents == one.num_documents == 30
  tokens = [own.read_tokens([0], [own.num_tokens]) for own in (one, other)]
  assert tokens[0].tolist() == tokens[1].tolist()
  done = in_process.run_tool(
    "prepare", *flags, f"--output={tmp_path / 'x'}",
    "--format=array_record", "--compression=zstd",
  )  # fmt: skip
  assert done.returncode == 1
  assert "`--compression` must be none" in done.stderr
  source.write_text(lines[0] + "\n")
  done = in_process.run_tool(
    "prepare", *flags, f"--output={tmp_path / 'records'}",
    "--format=array_record",
  )  # fmt: skip
  assert done.returncode == 1
  assert "same inputs and options" in done.stderr
  in_process.run_tool(
    "prepare", *flags, f"--output={tmp_path / 'records'}",
    "--format=array_record", "--overwrite", check=True,
  )  # fmt: skip
  assert stores.open_store(tmp_path / "records").num_documents == 1
