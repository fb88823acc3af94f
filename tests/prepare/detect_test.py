# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Detection: text and JSON lines are read, and nothing else as text."""

import dataclasses
import gzip
import io
import json
import pickle
import re
import struct
import zipfile

from array_record.python import array_record_module
import numpy as np
import pytest
import zstandard

from chomp_data import errors
from chomp_data.prepare import detect
from chomp_data.prepare import input_plan
from chomp_data.prepare import inputs
from chomp_data.prepare import records
from tests.prepare import corpora

TEXTS = {
  "a.txt": "plain",
  "b.md": "# ñandú\n",
  "c.py": "\f\nprint('\\0')\n",
  "d.rs": "fn main() {}",
  "log": "\x1b[1mbold\x1b[0m\a",
  "LICENSE": "{} is not JSON",
  "METADATA": "Name: x\n",
  "Makefile": "all:\n\techo",
  "empty": "",
  "x.csv": "a,b\n",
  "bzip2.txt": "BZh is what bzip2 begins with",
  "parquet.txt": "PAR1 is what Parquet begins with",
  "bom.txt": "\ufeffwith a mark",
  "lines.txt": '{"text": "of a name that says text"}\n',
}


def _npy():
  out = io.BytesIO()
  np.save(out, np.arange(9))
  return out.getvalue()


def _zip():
  out = io.BytesIO()
  with zipfile.ZipFile(out, "w") as archive:
    archive.writestr("a", "text")
  return out.getvalue()


def _sentencepiece():
  """Messages of (piece, score, type), as its models begin with."""
  pieces = []
  for piece in ("<unk>", "<s>", "\u2581the"):
    name = piece.encode()
    body = b"\n" + bytes([len(name)]) + name
    body += b"\x15" + struct.pack("<f", -1.5) + b"\x18\x02"
    pieces.append(b"\n" + bytes([len(body)]) + body)
  return b"".join(pieces)


BINARIES = {
  "gzip": gzip.compress(b"text"),
  "zstd": zstandard.compress(b"text"),
  "zip": _zip(),
  "a NumPy array": _npy(),
  "a pickle": pickle.dumps([1, 2]),
  "PNG": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR",
  "JPEG": b"\xff\xd8\xff\xe0\x00\x10JFIF",
  "PDF": b"%PDF-1.4\nonly text so far\n",
  "ELF": b"\x7fELF\x02\x01\x01\x00",
  "a SentencePiece model": _sentencepiece(),
  "UTF-16": "text".encode("utf-16"),
  "binary data": b"text\x00and more",
}


OPTIONS = records.ReadOptions(raw=False)


def sort_out(path, encoding_errors="strict"):
  options = dataclasses.replace(OPTIONS, encoding_errors=encoding_errors)
  planned = corpora.planned(path, options=options)
  return (
    [own.file.name for own in planned if own.error is None],
    [str(own.error) for own in planned if own.error is not None],
  )


def test_text_of_any_name_is_text(tmp_path):
  for name, text in TEXTS.items():
    (tmp_path / name).write_text(text, encoding="utf-8")
  for encoding_errors in ("strict", "replace"):
    assert sort_out(tmp_path, encoding_errors) == (sorted(TEXTS), [])


@pytest.mark.parametrize("encoding_errors", ["strict", "replace"])
@pytest.mark.parametrize("name", ["data", "data.txt", "data.jsonl"])
@pytest.mark.parametrize("what", BINARIES)
def test_data_is_told_by_its_content(tmp_path, name, what, encoding_errors):
  if name == "data.jsonl" and what == "binary data":
    pytest.skip("a bad line, which the reader names")
  (tmp_path / name).write_bytes(BINARIES[what])
  known, (error,) = sort_out(tmp_path, encoding_errors)
  assert not known
  assert str(tmp_path / name) in error
  assert f", got {what}. " in error
  assert "--exclude" in error
  assert "--on_error=skip" in error


def test_tables_and_records_are_told_by_their_beginning(tmp_path):
  parquet = pytest.importorskip("pyarrow.parquet")
  arrow = pytest.importorskip("pyarrow")
  table = arrow.table({"text": ["only ASCII"]})
  parquet.write_table(table, str(tmp_path / "part-0"))
  with arrow.ipc.new_file(str(tmp_path / "part-1"), table.schema) as out:
    out.write_table(table)
  with arrow.ipc.new_stream(str(tmp_path / "part-2"), table.schema) as out:
    out.write_table(table)
  writer = array_record_module.ArrayRecordWriter(str(tmp_path / "part-3"))
  writer.write(b"text")
  writer.close()
  planned = corpora.planned(tmp_path)
  assert [own.file.kind for own in planned] == [
    "parquet", "arrow", "arrow", "array_record",
  ]  # fmt: skip
  assert not any(own.error for own in planned)
  for i in range(4):
    (tmp_path / f"part-{i}").rename(tmp_path / f"{i}.jsonl")
  known, problems = sort_out(tmp_path)
  assert not known
  assert "got Parquet. Give it a name that ends in .parquet." in problems[0]
  assert "got ArrayRecord. Give it a name" in problems[3]


@pytest.mark.parametrize(
  "name", ["x.parquet", "x.arrow", "x.array_record-00000-of-00002"]
)
@pytest.mark.parametrize("content", ["", "looks like text"])
def test_what_names_itself_a_table_must_be_one(tmp_path, name, content):
  (tmp_path / name).write_text(content)
  known, (error,) = sort_out(tmp_path)
  assert not known
  assert re.search(f"{name} must be a (whole|complete) .* file, got ", error)


@pytest.mark.parametrize(
  "name",
  ["x.bin", "x.model", "x.npy", "x.tfrecord", "x.pdf", "x.txt.gz", "x.PT",
   "x.tar"],
)  # fmt: skip
@pytest.mark.parametrize("content", ["", "looks like text"])
def test_some_names_are_never_text(tmp_path, name, content):
  (tmp_path / name).write_text(content)
  known, (error,) = sort_out(tmp_path)
  assert not known
  assert re.search(f"{name} must be .*, got .* by its name. ", error)


@pytest.mark.parametrize("offset", [0, 3, detect.HEAD_BYTES - 2])
def test_a_byte_that_is_no_utf8_is_named_by_its_offset(tmp_path, offset):
  (tmp_path / "x.txt").write_bytes(b"a" * offset + b"\xe9" + b"bc" * 9)
  _, (error,) = sort_out(tmp_path)
  assert f"x.txt must be UTF-8, got byte 0xe9 at offset {offset}." in error
  assert sort_out(tmp_path, "replace") == (["x.txt"], [])


@pytest.mark.parametrize("cut", range(5))
def test_a_character_across_the_end_of_the_head_is_text(tmp_path, cut):
  text = "a" * (detect.HEAD_BYTES - cut) + "🎉 and more"
  (tmp_path / "x.txt").write_text(text, encoding="utf-8")
  assert sort_out(tmp_path) == (["x.txt"], [])


def test_a_character_that_the_end_of_a_file_cuts_is_no_text(tmp_path):
  (tmp_path / "x.txt").write_bytes("é".encode()[:1])
  assert "at offset 0" in sort_out(tmp_path)[1][0]


@pytest.mark.parametrize(
  "lines",
  [
    '{"text": "a"}',
    '{"text": "a"}\n{"text": "b"}\n',
    '\n\ufeff \n{"text": "a"}\n',
    '\ufeff{"text": "a"}\n',
    '{"text": "damaged\n{"text": "b"}\n',
    '{"text": "damaged',
    '{"text": "' + "long " * detect.HEAD_BYTES + '"}\n{}',
    "",
    "null",
  ],
)
@pytest.mark.parametrize("name", ["x.json", "x.json.gz", "x.json.zst"])
def test_json_lines_in_json_are_read(tmp_path, name, lines):
  write(tmp_path / name, lines)
  assert sort_out(tmp_path) == ([name], [])


@pytest.mark.parametrize(
  ("document", "what"),
  [
    (json.dumps([{"text": "a"}]), "a JSON array. Write an object a line"),
    (json.dumps([{"text": "a"}], indent=1), "a JSON array"),
    ("[\n", "a JSON array"),
    ('[{"text": "a"},\n{"text": "b"}]', "a JSON array"),
    (json.dumps({"text": "a"}, indent=1), "JSON over several lines. Write"),
    ('{\n"text": "a"}', "JSON over several lines"),
    ('{"data": [\n1]}', "JSON over several lines"),
  ],
)
@pytest.mark.parametrize("name", ["x.json", "x.json.gz", "x.json.zst"])
def test_one_json_document_is_an_error(tmp_path, name, document, what):
  write(tmp_path / name, document)
  known, (error,) = sort_out(tmp_path)
  assert not known
  assert re.search(f"{name} must be .*, got {what}", error)


def test_json_lines_without_a_suffix_ask_for_a_name(tmp_path):
  (tmp_path / "part-0").write_text('{"text": "a"}\n{"text": "b"}\n')
  (error,) = sort_out(tmp_path)[1]
  assert "got JSON lines. Give it a name that ends in .jsonl." in error


def test_what_cannot_be_opened_is_an_error_also_where_others_are_skipped(
  tmp_path,
):
  (tmp_path / "a.txt").write_text("a")
  found = inputs.discover([str(tmp_path)], [])
  (tmp_path / "a.txt").unlink()
  with pytest.raises(errors.PrepareError, match="No such file") as caught:
    list(input_plan.plan_files(found, 2**20, OPTIONS, "", map))
  assert not isinstance(caught.value, errors.BadInput)


def write(path, text):
  data = text.encode()
  pack = {".gz": gzip.compress, ".zst": zstandard.compress}
  path.write_bytes(pack.get(path.suffix, bytes)(data))
