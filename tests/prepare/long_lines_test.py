# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Lines, files and texts that are too long: refused, in bounded memory."""

import dataclasses
import itertools
import json
import pathlib
import subprocess
import sys
import textwrap
import tracemalloc

import hypothesis
from hypothesis import strategies as st
import pytest

from chomp_data import errors
from chomp_data import stores
from chomp_data.prepare import readers
from chomp_data.prepare import records
from chomp_data.prepare import rejections
from chomp_data.prepare.reading import byte_blocks
from tests import laws
from tests.prepare import corpora

MIB = 2**20
OPTIONS = records.ReadOptions(raw=False, max_document_bytes=MIB)


def line(size, letter="a"):
  """A line of JSON of so many bytes."""
  shell = len(json.dumps({"text": ""}))
  return json.dumps({"text": letter * (size - shell)}).encode()


def peak_bytes(call):
  """The most that Python held during a call, and what it returned."""
  tracemalloc.start()
  try:
    result = call()
    return tracemalloc.get_traced_memory()[1], result
  finally:
    tracemalloc.stop()


def read(path, skipped=None, part_bytes=2**40, options=OPTIONS):
  return [
    (document.name, len(document.text))
    for document in corpora.read(path, part_bytes, skipped, options)
  ]


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz", "x.jsonl.zst"])
def test_a_line_that_is_too_long_is_named_or_skipped(tmp_path, name):
  texts = [("short", "b"), ("long", "a" * 20 * MIB), ("last", "c")]
  path = corpora.json_lines(tmp_path, texts, name)
  with pytest.raises(
    errors.BadInput, match=rf"{name}:2 must be at most 1,048,576 bytes, got m"
  ):
    read(path)
  skipped = rejections.Rejections()
  peak, found = peak_bytes(lambda: read(path, skipped))
  assert found == [("short", 1), ("last", 1)]
  assert skipped.reasons == {"too long": 1}
  # Blocks of a MiB; 64 bytes of zstd are up to 2 of them.
  assert peak < 10 * MIB


def test_of_an_endless_line_no_more_than_the_limit_is_read(
  tmp_path, monkeypatch
):
  (tmp_path / "x.jsonl").write_bytes(b"a" * 40 * MIB)
  count = [0]
  blocks = byte_blocks.blocks

  def counted(*args, **named):
    for block in blocks(*args, **named):
      count[0] += len(block)
      yield block

  piece, *_ = corpora.pieces(tmp_path / "x.jsonl", 2 * MIB, OPTIONS)
  monkeypatch.setattr(byte_blocks, "blocks", counted)
  with pytest.raises(errors.BadInput, match=r"x\.jsonl:1 must be at most"):
    list(readers.documents(piece, OPTIONS))
  assert count[0] <= 3 * MIB
  # Where it is skipped, the pieces after its own look for its end.
  assert not list(readers.documents(piece, OPTIONS, rejections.Rejections()))
  assert count[0] <= 6 * MIB


@pytest.mark.parametrize("first", ["", "\N{PILE OF POO}"])
@pytest.mark.parametrize("letter", ["a", "é", "\N{PILE OF POO}"])
def test_the_longest_line_takes_a_known_multiple_of_memory(
  tmp_path, letter, first
):
  # One such letter makes Python hold every other in four bytes.
  text = first + letter * (4 * MIB // len(letter.encode()) - 99)
  own = json.dumps({"text": text}, ensure_ascii=False).encode()
  (tmp_path / "x.jsonl").write_bytes(b"{}\n" + own + b"\n")
  options = dataclasses.replace(OPTIONS, max_document_bytes=4 * MIB)
  skipped = rejections.Rejections()
  peak, found = peak_bytes(
    lambda: read(tmp_path / "x.jsonl", skipped, options=options)
  )
  assert found == [("x.jsonl:2", len(text))]
  assert peak < 10 * 4 * MIB


# Linux counts the pages of whoever starts a process as that process's own, and
# tests hold much: so what is measured is started by one that holds little.
MEASURED = textwrap.dedent("""
  import os
  import subprocess
  import sys

  process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
  _, status, used = os.wait4(process.pid, 0)
  process.returncode = os.waitstatus_to_exitcode(status)
  print(process.returncode, used.ru_maxrss)
""")


@pytest.mark.slow
def test_a_line_of_300_mb_takes_bounded_memory_of_the_command(tmp_path):
  word = b"word " * 200_000
  with open(tmp_path / "x.jsonl", "wb") as file:
    file.write(b'{"text": "a"}\n{"text": "')
    for _ in range(300):
      file.write(word)
    file.write(b'"}\n{"text": "b"}\n')
  tool = pathlib.Path(__file__).parents[2] / "tools" / "prepare.py"
  flags = [f"--input={tmp_path / 'x.jsonl'}", f"--output={tmp_path / 'out'}"]

  def peak_of(*more):
    """The command's exit code, its largest resident set, and its stderr."""
    command = [sys.executable, "-c", MEASURED, sys.executable, tool, *flags]
    ran = subprocess.run([*command, *more], capture_output=True, text=True)
    code, peak = ran.stdout.split()
    return int(code), int(peak) * 1024, ran.stderr

  # Of one that is refused as much as a line may have, and the process itself.
  most = records.MAX_DOCUMENT_BYTES + 150 * MIB
  code, peak, told = peak_of()
  assert code == 1
  assert "x.jsonl:2 must be at most 268,435,456 bytes" in told
  assert peak < most
  assert peak_of("--on_error=skip")[0] == 0
  assert stores.open_store(tmp_path / "out").num_tokens == 2
  code, peak, told = peak_of("--overwrite", "--max_document_bytes=400000000")
  assert code == 0, told
  assert stores.open_store(tmp_path / "out").num_tokens == 300_000_002
  assert peak < 6 * 300 * 10**6


@pytest.mark.parametrize("kind", ["text", "parquet", "array_record"])
def test_texts_of_other_kinds_are_refused_by_their_size_too(tmp_path, kind):
  texts = [("a", "short"), ("b", "x" * (MIB + 1)), ("c", "y" * MIB)]
  if kind == "text":
    path = tmp_path / "b.txt"
    path.write_text(texts[1][1])
    match = r"b\.txt must be at most 1,048,576"
  elif kind == "parquet":
    path, match = corpora.parquet(tmp_path, texts), r"x\.parquet:1 must be at"
  else:
    path = corpora.array_record_of_text(tmp_path, texts)
    match = r"x\.array_record:1 must be at"
  with pytest.raises(errors.BadInput, match=match):
    read(path)
  if kind != "text":
    assert [size for _, size in read(path, rejections.Rejections())] == [5, MIB]


def test_text_is_measured_in_bytes(tmp_path):
  for size in (MIB // 4, MIB // 4 + 1):
    record = {"text": "\N{PILE OF POO}" * size}
    if size == MIB // 4:
      (document,) = records.documents(record, "n", "w", OPTIONS)
      assert len(document.text) == size
    else:
      with pytest.raises(errors.BadInput, match="w must be at most"):
        list(records.documents(record, "n", "w", OPTIONS))


@laws.examples(60)
@hypothesis.given(
  sizes=st.lists(st.integers(0, 40), min_size=1, max_size=8),
  most=st.integers(1, 40),
  part_bytes=st.integers(1, 60),
  block=st.integers(1, 30),
)
def test_only_lines_that_are_too_long_are_left_out(
  tmp_path_factory, sizes, most, part_bytes, block
):
  path = tmp_path_factory.mktemp("r") / "x.jsonl"
  lines = [str(10**size)[:size].encode() for size in sizes]
  path.write_bytes(b"\n".join(lines))
  options = dataclasses.replace(OPTIONS, max_document_bytes=most)
  with corpora.blocks_of(block):
    skipped = rejections.Rejections()
    assert not read(path, skipped, part_bytes, options)
  expected = {
    "not JSON": sum(0 < size <= most for size in sizes),
    "too long": sum(size > most for size in sizes),
  }
  assert skipped.reasons == {k: n for k, n in expected.items() if n}
  numbers = [int(own.split()[0].partition(":")[2]) for own in skipped.first]
  assert numbers == [
    number for number, size in zip(itertools.count(1), sizes) if size
  ]  # fmt: skip


def test_the_store_counts_what_was_left_out_by_reason(tmp_path, prepare):
  lines = [
    b'{"text": "fine"}',
    line(999),
    b"{",
    b"{}",
    b"{",
    b'{"text": "\xff"}',
  ]
  (tmp_path / "x.jsonl").write_bytes(b"\n".join(lines))
  (tmp_path / "y.pdf").write_bytes(b"%PDF-1.4")
  (tmp_path / "z.txt").write_bytes(b"a" * 500)
  store, _ = prepare(
    tmp_path, on_error="skip", max_document_bytes=400, shard_bytes=50
  )
  assert store.num_documents == 1
  assert store.manifest.prepared["skipped"]["reasons"] == {
    "no input": 1, "no text": 1, "not JSON": 2, "not UTF-8": 1, "too long": 2,
  }  # fmt: skip
  with pytest.raises(errors.PrepareError, match="`--max_document_bytes` must"):
    prepare(tmp_path, output="other", max_document_bytes=0)
