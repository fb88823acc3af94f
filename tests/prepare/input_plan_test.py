# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What is found of inputs is saved, checked when it is read, and made again."""

import dataclasses
import itertools
import tracemalloc

import pytest

from chomp_data.prepare import detect
from chomp_data.prepare import file_list
from chomp_data.prepare import input_plan
from chomp_data.prepare import inputs
from chomp_data.prepare import options as options_lib
from chomp_data.prepare import readers
from chomp_data.prepare import records
from chomp_data.prepare import run
from chomp_data.prepare.reading import base
from chomp_data.storage import bucket
from chomp_data.storage import storage

READ = records.ReadOptions(raw=False)


@pytest.fixture
def calls(monkeypatch):
  """The files that were looked at, and the pieces that were counted."""
  seen = []
  for module, name in ((detect, "look"), (readers, "count")):
    real = getattr(module, name)

    def counted(first, *others, real=real):
      seen.append(first)
      return real(first, *others)

    monkeypatch.setattr(module, name, counted)
  return seen


def plan(root, work):
  files = inputs.discover([str(root)], [])
  planned = list(input_plan.plan_files(files, 64, READ, str(work), map))
  pieces = input_plan.Plan(files, planned).pieces
  return planned, list(input_plan.number(pieces, str(work), map))


@pytest.fixture
def root(tmp_path):
  root = tmp_path / "in"
  root.mkdir()
  for i in range(3):
    lines = [f'{{"text": "line {k} of {i}"}}\n' for k in range(9 + i)]
    (root / f"{i}.jsonl").write_text("".join(lines))
  (root / "damaged").write_bytes(b"\x80\x04 a pickle")
  return root


def test_a_second_run_looks_at_no_file_and_counts_nothing(
  root, tmp_path, calls
):
  whole = plan(root, tmp_path / "work")
  assert len(calls) > 4
  (refused,) = [own for own in whole[0] if own.error is not None]
  assert "got a pickle" in str(refused.error)
  calls.clear()
  assert plan(root, tmp_path / "work") == whole
  assert not calls
  # Without a directory nothing is saved.
  assert plan(root, "") == whole
  assert calls


@pytest.mark.parametrize("kept_bytes", [0, 5, 40, None])
def test_a_damaged_result_is_made_again(root, tmp_path, calls, kept_bytes):
  whole = plan(root, tmp_path / "work")
  for file in (tmp_path / "work" / "plan").iterdir():
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data if kept_bytes is None else data[:kept_bytes])
  calls.clear()
  assert plan(root, tmp_path / "work") == whole
  assert calls


def test_a_file_that_changes_is_looked_at_again(root, tmp_path, calls):
  plan(root, tmp_path / "work")
  (root / "1.jsonl").write_text('{"text": "another"}\n')
  calls.clear()
  planned, pieces = plan(root, tmp_path / "work")
  assert calls
  assert (planned, pieces) == plan(root, "")


def test_a_killed_run_with_overwrite_looks_at_no_file_again(
  root, tmp_path, calls
):
  (root / "damaged").unlink()
  options = run.Options((str(root),), str(tmp_path / "out"))
  run.prepare(options)
  (root / "3.jsonl").write_text('{"text": "another"}\n')
  options = dataclasses.replace(options, overwrite=True)

  def stop(progress):
    if progress.stage == "encode":
      raise KeyboardInterrupt

  calls.clear()
  with pytest.raises(KeyboardInterrupt):
    run.prepare(options, stop)
  assert calls
  calls.clear()
  store, written = run.prepare(options)
  assert written
  assert store.num_documents == 31
  assert not calls


def test_numbers_of_lines_go_on_through_the_pieces_of_a_file(root):
  _, pieces = plan(root, "")
  for piece in pieces:
    before = [own for own in pieces if own.file == piece.file]
    before = before[: before.index(piece)]
    assert piece.first == 1 + sum(readers.count(own) for own in before)


def listed(count):
  """What a listing says of many objects."""
  for i in range(count):
    yield storage.ObjectInfo(
      f"part-{i // 1_000:04}/{i:08}.parquet",
      2**20,
      f'"{i:032x}"',
      f'"{i:032x}"',
    )


def looked_at(task):
  """The files of a task, each with another version and one piece."""
  return [
    detect.PlannedFile(
      dataclasses.replace(file, version=f"{i:016}"), ((0, 1, 0, file.size),)
    )
    for i, file in enumerate(task.files)
  ]


def most_bytes_of_plan(monkeypatch, count):
  """Lists, plans and identifies objects; returns the peak of memory."""
  monkeypatch.setattr(bucket.BucketStorage, "list", lambda self: listed(count))
  monkeypatch.setattr(input_plan, "look", looked_at)
  options = options_lib.Options(("s3://bucket/corpus",), "")
  tracemalloc.start()
  try:
    files = inputs.discover(options.inputs, [])
    options_lib.inputs_identity(files)
    planned = input_plan.plan_files(files, 2**20, READ, "", map)
    plan = input_plan.Plan(files, planned)
    refused = (file for file, _ in plan.refused_files())
    options_lib.inputs_identity(itertools.chain(plan.read_files(), refused))
    assert len(plan.pieces) == count
    return tracemalloc.get_traced_memory()[1]
  finally:
    tracemalloc.stop()


def test_planning_takes_few_bytes_of_memory_per_file(monkeypatch):
  few, many = (
    most_bytes_of_plan(monkeypatch, count) for count in (1_000, 5_000)
  )
  assert (many - few) / 4_000 < 300


def test_packed_files_are_sorted_by_name_and_path():
  names = ["a", "a!", "a/b", "ab", "\x01", "\u00e9", "\U0001f600", "\uffff"]
  files = [
    base.InputFile(name, path, i, version, "text", "none")
    for i, (name, path, version) in enumerate(
      itertools.product(names, [*names, "\udce9"], (None, 1, '"1"'))
    )
  ]
  rows = [file_list.pack_file(file) for file in reversed(files)]
  packed = file_list.FileList(sorted(rows))
  key = lambda file: (file.name, file.path)  # noqa: E731
  assert list(map(key, packed)) == sorted(map(key, files))
  assert set(packed) == set(files)
  packed[3] = files[0]
  assert packed[3:5] == [files[0], packed[4]]
