# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What is found of inputs is saved, checked when it is read, and made again."""

import dataclasses

import pytest

from chomp_data.prepare import detect
from chomp_data.prepare import input_plan
from chomp_data.prepare import inputs
from chomp_data.prepare import readers
from chomp_data.prepare import records
from chomp_data.prepare import run

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
  pieces = input_plan.Plan(planned).pieces
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
