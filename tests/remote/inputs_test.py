# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Inputs of `prepare` in buckets: the stores of local copies, by ranges."""

import glob
import itertools
import json
import os
import pathlib
import random
import re
import time

import pytest

from chomp_data import errors
from chomp_data.prepare import inputs
from chomp_data.prepare import readers
from chomp_data.prepare import records
from chomp_data.prepare import run
from chomp_data.storage import object_files
from chomp_data.storage import opening
from chomp_data.storage import requests
from tests.prepare import corpora

DOCUMENTS = corpora.DOCUMENTS[:40]
KINDS = {
  "text": lambda path: texts(path, DOCUMENTS[:12]),
  "jsonl": lambda path: corpora.json_lines(path, DOCUMENTS),
  "jsonl.gz": lambda path: corpora.json_lines(path, DOCUMENTS, "x.jsonl.gz"),
  "jsonl.zst": lambda path: corpora.json_lines(path, DOCUMENTS, "x.json.zst"),
  "parquet": lambda path: corpora.parquet(path, DOCUMENTS),
  "arrow": lambda path: corpora.arrow_file(path, DOCUMENTS),
  "save_to_disk": lambda path: corpora.saved(path, DOCUMENTS),
  "array_record": lambda path: corpora.array_record_of_text(path, DOCUMENTS),
  "examples": lambda path: corpora.array_record_of_examples(path, DOCUMENTS),
}


def texts(directory, documents):
  for name, text in documents:
    file = directory / "texts" / name[0] / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
  return directory / "texts"


def upload(directory, url):
  """Puts the files of a directory below a URL."""
  place = opening.open_storage(url)
  for file in sorted(directory.rglob("*")):
    # The emulator of GCS takes no empty objects.
    if file.is_file() and file.stat().st_size:
      place.put(file.relative_to(directory).as_posix(), file.read_bytes())


def prepare(output, *patterns, **changes):
  options = {"shard_bytes": 2**15, "chunk": 2**10, **changes}
  return run.prepare(
    run.Options(tuple(map(str, patterns)), str(output), **options)
  )[0]


def contents(path):
  """Every file of a store; of what it was made of not when that was written."""
  found = {
    file.relative_to(path).as_posix(): file.read_bytes()
    for file in pathlib.Path(path).rglob("*")
    if file.is_file()
  }
  manifest = json.loads(found["manifest.json"])
  manifest["prepared"]["inputs"].pop("sha256")
  manifest.pop("digest")  # Of the manifest itself.
  return {**found, "manifest.json": manifest}


# What a kind asks of a place is the same for both schemes.
@pytest.mark.parametrize(
  ("bucket", "kind"),
  [
    pytest.param(scheme, kind, marks=[pytest.mark.slow] if slow else [])
    for kind in KINDS
    for scheme, slow in (
      ("s3", kind != "jsonl"),
      ("gs", kind not in ("text", "array_record")),
    )
  ],
  indirect=["bucket"],
)
def test_the_store_is_that_of_local_copies(bucket, kind, tmp_path, monkeypatch):
  monkeypatch.setattr(requests, "RETRY_DELAYS_S", (0.01, 0.02, 0.04, 0.08))
  source = tmp_path / "source"
  source.mkdir()
  path = KINDS[kind](source)
  upload(source, bucket.root)
  name = path.relative_to(source).as_posix()
  changes = {"text_key": "text", "id_key": "none"}
  bucket.fault = lambda request: 503 if request.number % 7 == 3 else None
  before = requests.counts.retries
  prepare(tmp_path / "remote", f"{bucket.root}/{name}", **changes)
  assert requests.counts.retries > before
  prepare(tmp_path / "local", path, **changes)
  assert contents(tmp_path / "remote") == contents(tmp_path / "local")
  # Asked for again, nothing is made, and of no object more than its head read.
  bucket.clear()
  written = run.prepare(
    run.Options(
      (f"{bucket.root}/{name}",),
      str(tmp_path / "remote"),
      shard_bytes=2**15,
      chunk=2**10,
      **changes,
    )
  )[1]
  assert not written


@pytest.mark.parametrize(
  "engine",
  [
    {"duplicates": "drop"},
    pytest.param({"workers": 2}, marks=pytest.mark.slow),
  ],
)
def test_workers_and_rounds_before_give_the_same(gs_bucket, engine, tmp_path):
  source = tmp_path / "source"
  source.mkdir()
  corpora.json_lines(source, [*DOCUMENTS, *DOCUMENTS[5:9]])
  upload(source, gs_bucket.root)
  prepare(tmp_path / "remote", gs_bucket.root, **engine)
  prepare(tmp_path / "local", source, **engine)
  assert contents(tmp_path / "remote") == contents(tmp_path / "local")


NAMES = ["a", "b.txt", ".hidden", "d/a", "d/b.txt", "d/.h/a", "d/e/b.txt",
         "d/e/a", ".d/a", "d/e/f/a.txt"]  # fmt: skip


def test_globs_are_those_of_files(tmp_path):
  for name in NAMES:
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("1")
  parts = ("*", "**", "d", "?", "*.txt", "[ab]", ".*", "e", ".h")
  for count in (1, 2, 3):
    for own in itertools.product(parts, repeat=count):
      pattern = "/".join(own)
      if not glob.has_magic(pattern):
        continue
      wanted = {
        os.path.relpath(path, tmp_path)
        for path in glob.iglob(f"{tmp_path}/{pattern}", recursive=True)
        if os.path.isfile(path)
      }
      found = {n for n in NAMES if inputs.expand_globs(own, n.split("/"))}
      assert found == wanted, pattern


def test_directories_globs_and_exclusions_find_what_they_do_locally(
  bucket, tmp_path
):
  for name in NAMES:
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("text")
  upload(tmp_path, bucket.root)
  for pattern, excludes in (
    ("", []),
    ("d", ["*.txt"]),
    ("d/b.txt", []),
    ("**/*.txt", []),
    ("**/*", ["d/e/*", "*/b.txt"]),
    ("*/*", []),
  ):
    local = inputs.discover([f"{tmp_path}/{pattern}"], excludes)
    found = inputs.discover([f"{bucket.root}/{pattern}"], excludes)
    assert [(own.name, own.size) for own in found] == [
      (own.name, own.size) for own in local
    ], pattern
    assert all(own.path.startswith(bucket.root) for own in found)
  with pytest.raises(errors.PrepareError, match=r"/nix', which matches none"):
    inputs.discover([f"{bucket.root}/nix"], [])
  place = opening.open_storage(f"{bucket.root}/d/saved")
  for name in ("state.json", "dataset_info.json", "x.arrow"):
    place.put(name, b"damaged")
  exclude = f"{bucket.root}/d/saved/*"
  with pytest.raises(errors.PrepareError, match=re.escape(exclude)):
    inputs.discover([f"{bucket.root}/d"], [])
  for own in (exclude, "saved/*"):
    found = inputs.discover([f"{bucket.root}/d"], [own])
    assert [file.name for file in found] == [
      file.name for file in inputs.discover([f"{tmp_path}/d"], [])
    ]


SIZES = [1, 100, 2**16, 2**20 - 1, 2**20, 2**20 + 1, 3 * 2**20, 9_000_001]


def test_sizes_and_versions_of_objects_are_found(bucket):
  place = opening.open_storage(bucket.root)
  for size in SIZES:
    place.put(f"{size}", bytes(size))
  for size in SIZES:
    bucket.clear()
    found = place.head(f"{size}")
    assert found.size == size
    assert place.head(f"{size}").version == found.version
    assert bucket.bytes_out < 3 * 2**20
  assert place.head("nix") is None
  assert place.head("nix") is None
  place.put("1", b"2")
  assert place.head("1").size == 1


def test_a_file_over_ranges_reads_as_one(bucket, monkeypatch):
  monkeypatch.setattr(object_files, "RANGE", 1_000)
  monkeypatch.setattr(object_files, "HEAD_MARGIN", 16)
  data = random.Random(0).randbytes(5_000)
  storage = opening.open_storage(bucket.root)
  storage.put("data", data)
  rng = random.Random(1)
  for until in (None, 0, 1_234):
    for buffered in (True, False):
      file = storage.open_file("data", 5_000, until=until, buffered=buffered)
      for _ in range(12):
        begin, size = rng.randrange(5_100), rng.randrange(2_500)
        file.seek(begin)
        found = file.read(size)
        if buffered or until is None:
          assert found == data[begin : begin + size]
        else:
          assert data[begin : begin + size].startswith(found)
  bucket.clear()
  file = storage.open_file("data", 5_000)
  assert file.read() == data
  assert len(bucket.reads()) == 5


def test_pieces_of_lines_are_read_by_few_ranges(bucket, tmp_path, monkeypatch):
  monkeypatch.setattr(object_files, "RANGE", 2**14 + 2**10)
  monkeypatch.setattr(object_files, "HEAD_MARGIN", 2**9)
  lines = "".join(f'{{"text": "line {i}"}}\n' for i in range(20_000))
  opening.open_storage(bucket.root).put("x.jsonl", lines.encode())
  pieces = corpora.pieces(f"{bucket.root}/x.jsonl", 2**16)
  assert len(pieces) > 6
  options = records.ReadOptions(raw=False)
  for piece in pieces[1:-1]:
    bucket.clear()
    names = [own.name for own in readers.documents(piece, options)]
    assert names[0] == f"x.jsonl:{piece.first}"
    # The ranges, and whether the object is still the same.
    assert len(bucket.requests) == 5
    assert bucket.bytes_out < 2**16 + 2**12


def test_of_parquet_only_what_is_asked_for_is_read(bucket, tmp_path):
  import pyarrow as arrow
  import pyarrow.parquet

  rows = 40
  noise = random.Random(0)
  other = [noise.randbytes(2**16) for _ in range(rows)]
  table = arrow.table({"text": ["short"] * rows, "other": other})
  pyarrow.parquet.write_table(
    table, str(tmp_path / "x.parquet"), row_group_size=10
  )
  upload(tmp_path, bucket.root)
  bucket.clear()
  prepare(tmp_path / "out", f"{bucket.root}/x.parquet")
  # Footers, and pages of texts: not the 2.6 MB of the other column.
  found = [own for own in bucket.requests if own.begin is not None]
  assert bucket.bytes_out < 2**20 + 2**16, found


def test_an_object_that_changes_while_it_is_read_is_an_error(bucket):
  place = opening.open_storage(bucket.root)
  place.put("x.jsonl", b'{"text": "1"}\n')
  (piece,) = corpora.pieces(f"{bucket.root}/x.jsonl")
  place.put("x.jsonl", b'{"text": "2"}\n')
  options = records.ReadOptions(raw=False)
  with pytest.raises(errors.PrepareError, match=r"x\.jsonl must not change"):
    list(readers.documents(piece, options))


@pytest.mark.parametrize("name", ["x.jsonl", "x.parquet", "", "*.jsonl"])
@pytest.mark.parametrize("status", [403, 404])
def test_what_may_not_be_read_is_said_at_once(bucket, name, status, tmp_path):
  bucket.fault = lambda request: status
  began = time.monotonic()
  with pytest.raises(errors.PrepareError) as caught:
    prepare(tmp_path / "out", f"{bucket.root}/{name}")
  assert bucket.root in str(caught.value)
  said = {403: "credentials", 404: "matches none|exists"}[status]
  assert caught.match(said)
  assert time.monotonic() - began < 20.0


def test_damage_is_left_out_and_counted(gs_bucket, tmp_path):
  source = tmp_path / "source"
  source.mkdir()
  corpora.json_lines(source, DOCUMENTS)
  for path in (
    corpora.array_record_of_text(source, DOCUMENTS),
    corpora.parquet(source, DOCUMENTS),
    corpora.arrow_file(source, DOCUMENTS),
    corpora.json_lines(source, DOCUMENTS, "y.jsonl.gz"),
  ):
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
  upload(source, gs_bucket.root)
  remote = prepare(tmp_path / "out", gs_bucket.root, on_error="skip")
  local = prepare(tmp_path / "local", source, on_error="skip")
  assert remote.hash == local.hash
  skipped = remote.manifest.prepared["skipped"]["reasons"]
  assert skipped == local.manifest.prepared["skipped"]["reasons"]
  assert skipped == {"damaged": 3, "truncated": 1}
  with pytest.raises(errors.PrepareError, match=f"{gs_bucket.root}/x"):
    prepare(tmp_path / "fail", gs_bucket.root)
