# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Prepare: the same store however it is made, interrupted or repeated."""

import gzip
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import time

import pytest

from chomp_data import errors
from chomp_data import stores
from chomp_data.prepare import engines
from chomp_data.prepare import lazy
from chomp_data.prepare import parts
from chomp_data.prepare import run
from chomp_data.prepare import tokenizers
from chomp_data.storage import publish


def digest(path):
  """Returns a hash of every file's name and bytes."""
  out = hashlib.sha256()
  for file in sorted(pathlib.Path(path).rglob("*")):
    if file.is_file():
      out.update(file.relative_to(path).as_posix().encode())
      out.update(file.read_bytes())
  return out.hexdigest()


def texts_of(store):
  tokenizer = tokenizers.load_tokenizer(store)
  return {
    store.document_ids([i])[0]: tokenizer.decode(stores.read_document(store, i))
    for i in range(store.num_documents)
  }


def test_every_document_is_there_once_in_order(corpus, prepare, tmp_path):
  store, written = prepare(corpus)
  assert written
  assert list(texts_of(store).items()) == [
    ("a.txt", "première ligne\nzweite Zeile\n"),
    ("b.txt", "second file\n"),
    ("deep/er/c.txt", "日本語 🎉"),
    ("lines.jsonl:1", "one"),
    ("the second", "two"),
    ("4", "four"),
    ("lines.jsonl:6", "no newline"),
  ]
  assert store.manifest.num_empty_skipped == 2
  stores.verify_store(store.path)
  assert sorted(os.listdir(tmp_path)) == ["corpus", "out"]
  assert str(tmp_path) not in (tmp_path / "out/manifest.json").read_text()


def test_any_number_of_workers_gives_the_same_bytes(corpus, prepare, tmp_path):
  digests = set()
  for workers in (0, 1, 2, 3):
    prepare(corpus, output=f"out{workers}", workers=workers)
    digests.add(digest(tmp_path / f"out{workers}"))
  assert len(digests) == 1


def test_the_size_of_input_shards_changes_no_document(corpus, prepare):
  hashes = {
    prepare(corpus, output=f"out{size}", shard_bytes=size)[0].hash
    for size in (1, 16, 2**25)
  }
  assert len(hashes) == 1


@pytest.mark.parametrize(
  ("changes", "match"),
  [
    ({"text_key": "body"}, "text_key: 'text' there, 'body' asked for"),
    ({"compression": "zstd"}, "compression: 'none' there"),
    ({"exclude": ("a*",)}, "inputs: .*'files': 5.*'files': 4"),
  ],
)
def test_a_store_of_other_options_is_kept_unless_overwritten(
  corpus, prepare, changes, match
):
  first, _ = prepare(corpus)
  with pytest.raises(stores.StoreError, match=match):
    prepare(corpus, **changes)
  assert stores.open_store(first.path).hash == first.hash
  if "text_key" in changes:
    changes = {**changes, "exclude": ("*.jsonl",)}
  second, written = prepare(corpus, overwrite=True, **changes)
  assert written
  assert second.manifest.prepared != first.manifest.prepared
  assert not os.path.exists(first.path + ".old")


def test_a_damaged_store_is_replaced_only_on_request(corpus, prepare, tmp_path):
  first, _ = prepare(corpus)
  (tmp_path / "out" / "tokens" / "c" / "0").unlink()
  with pytest.raises(stores.StoreError, match="--overwrite"):
    prepare(corpus)
  second, written = prepare(corpus, overwrite=True)
  assert written
  assert second.hash == first.hash


def test_an_output_inside_the_input_is_no_input(corpus, prepare):
  expected = prepare(corpus)[0].hash
  assert prepare(corpus, output="corpus/out")[0].hash == expected
  again, written = prepare(corpus, output="corpus/out")
  assert not written
  assert again.hash == expected


def test_an_output_that_a_link_puts_inside_the_input_is_no_input(
  corpus, prepare, tmp_path
):
  expected = prepare(corpus)[0].hash
  (tmp_path / "link").symlink_to(corpus)
  for inputs, output in (
    ([corpus], "link/one"),
    ([tmp_path / "link"], "corpus/two"),
    ([f"{tmp_path}/link/**"], "corpus/three"),
  ):
    for is_first in (True, False):
      store, written = prepare(*inputs, output=output)
      assert (store.hash, written) == (expected, is_first)
    shutil.rmtree(tmp_path / output)


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("output_format", ["zarr", "array_record"])
def test_a_link_at_the_output_stays_and_leads_to_the_store(
  corpus, prepare, tmp_path, exists, output_format
):
  disk = tmp_path / "disk"
  disk.mkdir()
  if exists:
    (disk / "store").mkdir()
  (tmp_path / "out").symlink_to(disk / "store")
  first, _ = prepare(corpus, format=output_format)
  (corpus / "a.txt").write_text("another text")
  second, _ = prepare(corpus, format=output_format, overwrite=True)
  assert second.hash != first.hash
  assert stores.open_store(disk / "store").hash == second.hash
  assert (tmp_path / "out").is_symlink()
  assert not [*tmp_path.rglob("*.partial"), *tmp_path.rglob("*.lock")]


def test_all_bad_options_are_named_at_once(corpus, prepare, tmp_path):
  (tmp_path / "folder").mkdir()
  (tmp_path / "folder" / "thesis.txt").write_text("years of work")
  with pytest.raises(errors.PrepareError) as caught:
    prepare(
      corpus / "*.md",
      output="folder",
      tokenizer=tokenizers.TokenizerSpec("nowhere.json"),
      workers=-1,
      compression="gzip",
      text_key="",
    )
  for part in (
    "*.md", "thesis.txt", "nowhere.json", "--workers", "'gzip'", "--text_key"
  ):  # fmt: skip
    assert part in str(caught.value)


def test_no_document_at_all_is_an_error(corpus, prepare, tmp_path):
  with pytest.raises(errors.PrepareError, match="hold a document"):
    prepare(corpus / "empty.txt")
  assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_in_a_part_names_the_line_and_publishes_nothing(
  corpus, prepare, tmp_path, workers
):
  (corpus / "z.jsonl").write_text('{"text": "a"}\n{"txt": "b"}\n')
  with pytest.raises(errors.PrepareError, match=r"z\.jsonl:2.*\['txt'\]"):
    prepare(corpus, workers=workers)
  assert not (tmp_path / "out").exists()
  (corpus / "z.jsonl").write_text('{"text": "a"}\n')
  store, _ = prepare(corpus, workers=workers)
  assert store.num_documents == 8
  assert sorted(os.listdir(tmp_path)) == ["corpus", "out"]


def _spoil(corpus):
  """Adds inputs that no document can be made of; returns a clean corpus."""
  (corpus / "deep" / "store").write_bytes(b"PAR1\x00\x00PAR1")
  (corpus / "late.txt").write_bytes(b"a" * 2**17 + b"\xe9")
  lines = '{"text": "fine"}\n{\n{"txt": "b"}\n'
  (corpus / "z.jsonl").write_text(lines * 9)
  damaged = bytearray(gzip.compress(b'{"text": "lost"}\n' * 2**16))
  damaged[-5] ^= 1  # Of the checksum.
  (corpus / "z.json.gz").write_bytes(damaged)


@pytest.mark.parametrize("workers", [0, 2])
def test_bad_inputs_are_skipped_on_request_and_counted_the_same(
  corpus, prepare, workers
):
  expected = list(texts_of(prepare(corpus, output="clean")[0]).items())
  _spoil(corpus)
  with pytest.raises(errors.PrepareError, match="got Parquet"):
    prepare(corpus, workers=workers)
  stores_of = {}
  for shard_bytes in (16, 2**25):
    store, written = prepare(
      corpus,
      output=f"out{shard_bytes}",
      on_error="skip",
      workers=workers,
      shard_bytes=shard_bytes,
    )
    assert written
    fine = [(f"z.jsonl:{i}", "fine") for i in range(1, 26, 3)]
    assert list(texts_of(store).items()) == expected + fine
    stores_of[shard_bytes] = store
  skipped = [store.manifest.prepared["skipped"] for store in stores_of.values()]
  assert skipped[0] == skipped[1]
  assert (skipped[0]["files"], skipped[0]["lines"]) == (3, 18)
  assert [one.split()[0] for one in skipped[0]["first"]] == [
    "deep/store", "late.txt", "z.json.gz", "z.jsonl:2", "z.jsonl:3",
    "z.jsonl:5", "z.jsonl:6", "z.jsonl:8", "z.jsonl:9", "z.jsonl:11",
  ]  # fmt: skip
  assert "byte 0xe9 at offset 131072" in skipped[0]["first"][1]


def test_a_store_that_skipped_is_none_of_a_run_that_does_not(corpus, prepare):
  plain, _ = prepare(corpus, output="plain")
  assert not {"skipped", "on_error"} & set(plain.manifest.prepared)
  store, _ = prepare(corpus, on_error="skip")
  assert store.hash == plain.hash
  assert store.manifest.prepared["skipped"] == {
    "files": 0, "lines": 0, "first": [], "reasons": {},
  }  # fmt: skip
  with pytest.raises(stores.StoreError, match="on_error: 'skip' there, None"):
    prepare(corpus)


def test_a_run_that_skips_all_is_an_error(corpus, prepare):
  (corpus / "x.json").write_text('{"txt": 1}\n' * 3)
  with pytest.raises(
    errors.PrepareError,
    match=r"\(left out: 3 no text; the first is x\.json:1 must have the key",
  ):
    prepare(corpus / "x.json", on_error="skip")
  (corpus / "x.bin").write_text("")
  with pytest.raises(errors.PrepareError, match=r"left out: 1 no input"):
    prepare(corpus / "x.bin", on_error="skip")


def test_what_is_skipped_depends_not_on_permissions(corpus, prepare):
  (corpus / "a.txt").chmod(0)
  if os.access(corpus / "a.txt", os.R_OK):
    pytest.skip("this user may read all")
  with pytest.raises(errors.PrepareError, match=r"a\.txt must be readable"):
    prepare(corpus, on_error="skip")


def test_parts_that_are_done_are_not_made_again(corpus, prepare, monkeypatch):
  made = []
  make_part = parts.make_part

  def fail_at_the_third(task):
    if len(made) == 2:
      raise OSError("No space left on device")
    made.append(task.key)
    return make_part(task)

  with monkeypatch.context() as patch:
    patch.setattr(parts, "make_part", fail_at_the_third)
    with pytest.raises(OSError, match="No space"):
      prepare(corpus)
  first = list(made)

  def record(task):
    made.append(task.key)
    return make_part(task)

  monkeypatch.setattr(parts, "make_part", record)
  store, _ = prepare(corpus)
  assert store.num_documents == 7
  assert len(first) == 2 < len(made)
  assert len(set(made)) == len(made)


def test_a_damaged_part_is_made_again(corpus, prepare, tmp_path):
  def stop(progress):
    if progress.stage == "write":
      raise RuntimeError("stopped before the parts are joined")

  clean = prepare(corpus, output=str(tmp_path / "clean"))[0].hash
  directory = tmp_path / "out.partial" / "parts"
  for pattern in ("*.part/*", "*.json"):
    for change in (
      lambda d: bytes([d[0] ^ 1]) + d[1:],
      lambda d: d[:-2] + bytes([d[-2] ^ 1]) + d[-1:],
      lambda d: d[:-1],
      lambda d: d + b"\0",
    ):
      with pytest.raises(RuntimeError, match="stopped"):
        prepare(corpus, report=stop)
      files = sorted(directory.glob(pattern))
      file = next(own for own in files if own.stat().st_size)
      file.write_bytes(change(file.read_bytes()))
      assert prepare(corpus)[0].hash == clean
      assert not directory.exists()
      shutil.rmtree(tmp_path / "out")


def test_the_second_of_two_runs_is_refused(corpus, prepare, tmp_path):
  with (
    publish.lock(tmp_path / "out"),
    pytest.raises(stores.StoreError, match=r"out\.lock"),
  ):
    prepare(corpus)


def child_processes(pid):
  try:
    text = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
  except OSError:
    return []
  return [int(child) for child in text.split()]


def _alive(pid):
  try:
    return " Z " not in pathlib.Path(f"/proc/{pid}/stat").read_text()
  except OSError:
    return False


def all_ended(pids):
  return not any(map(_alive, pids))


def wait_for(condition, seconds):
  deadline = time.monotonic() + seconds
  while not condition() and time.monotonic() < deadline:
    time.sleep(0.002)
  return condition()


def _die(task):
  os._exit(task)


def test_a_worker_that_dies_is_an_error():
  with pytest.raises(errors.PrepareError, match="--workers=2 died"):
    list(engines.Pool(2).run(_die, [3, 3, 3]))


@pytest.mark.parametrize("workers", [0, 2])
def test_tasks_are_made_as_workers_need_them(workers):
  numbers = []
  tasks = lazy.LazySequence(lambda i: numbers.append(i) or -i, 200)
  engine = engines.Pool(workers)
  results = engine.run(abs, tasks)
  first, result = next(results)
  assert result == first
  assert len(numbers) < 20
  assert {first, *(number for number, _ in results)} == set(range(200))
  engine.close()


def test_workers_import_what_they_need_only():
  # The script of the command is imported again by each worker.
  code = """import sys
import chomp_data.commands.scripts
from chomp_data.prepare import engines, parts, shards
print(*sys.modules)"""
  ended = subprocess.run(
    [sys.executable, "-c", code], capture_output=True, text=True, check=True
  )
  heavy = {"jax", "absl", "grain", "tensorstore", "rich", "pyarrow", "tqdm"}
  heavy |= {"array_record", "jinja2", "tokenizers", "ml_collections", "asyncio"}
  assert not heavy & set(ended.stdout.split())


def test_progress_of_one_part_is_told_by_bytes(tmp_path):
  lines = '{"text": "some words that are read"}\n' * 20_000
  (tmp_path / "one.jsonl").write_text(lines)
  seen = []
  store, _ = run.prepare(
    run.Options((str(tmp_path / "one.jsonl"),), str(tmp_path / "out")),
    seen.append,
  )
  encoding = [own for own in seen if own.stage == "encode"]
  done = [own.done_bytes for own in encoding]
  assert done[0] == 0
  assert done == sorted(done)
  assert len(set(done)) > 10, "only whole parts are told"
  assert done[-1] == encoding[-1].total_bytes == len(lines)
  counted = [own.documents for own in encoding]
  assert counted == sorted(counted)
  assert len(set(counted)) > 10, "only documents of whole parts are counted"
  assert counted[-1] == 20_000
  writing = [own for own in seen if own.stage == "write"]
  assert writing[-1].done_bytes == writing[-1].total_bytes > 0
  assert writing[-1].documents == store.num_documents == 20_000
