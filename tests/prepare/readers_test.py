# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Readers: the documents of a file, or what is wrong with it and where."""

import gzip
import io
import json
import os
import re

import hypothesis
from hypothesis import strategies as st
import pytest
import zstandard

from chomp_data import errors
from chomp_data.prepare import inputs
from chomp_data.prepare import readers
from chomp_data.prepare import rejections
from chomp_data.prepare.reading import base
from chomp_data.prepare.reading import byte_blocks
from chomp_data.prepare.reading import json_lines
from tests import laws
from tests.prepare import corpora

OPTIONS = corpora.OPTIONS


def whole(path):
  """A file as one piece."""
  (piece,) = corpora.pieces(path)
  return piece


def read(path, **changes):
  return [(d.name, d.text) for d in corpora.read(path, **changes)]


def write(path, data):
  """Writes bytes in the compression that the name says."""
  if path.suffix == ".gz":
    data = gzip.compress(data)
  elif path.suffix == ".zst":
    data = zstandard.compress(data)
  path.write_bytes(data)
  return path


@pytest.fixture(
  params=["x.jsonl", "x.jsonl.gz", "x.jsonl.zst", "x.json", "x.json.gz"]
)
def path(request, tmp_path):
  return tmp_path / request.param


def test_a_text_file_is_one_document(tmp_path):
  path = write(tmp_path / "x.txt", "é\r\n\x0c".encode())
  assert read(path) == [("x.txt", "é\r\n\x0c")]
  assert read(path, raw=True) == [("x.txt", "é\r\n\x0c".encode())]


def test_lines_are_documents_with_ids(path):
  records = [
    '{"text": "a", "id": "one"}', '{"text": "b\\nc", "id": 2}', "   ",
    '{"text": ""}', '{"text": "\\u00e9", "id": null}',
  ]  # fmt: skip
  for end in ("", "\n", "\r\n"):
    write(path, ("\n".join(records) + end).encode())
    assert read(path) == [
      ("one", "a"),
      ("2", "b\nc"),
      (f"{path.name}:4", ""),
      (f"{path.name}:5", "é"),
    ]


@laws.examples(30)
@hypothesis.given(
  texts=st.lists(st.text()),
  suffix=st.sampled_from(["", ".gz", ".zst"]),
  block=st.integers(1, 50),
)
def test_any_text_comes_through(tmp_path_factory, texts, suffix, block):
  path = tmp_path_factory.mktemp("r") / f"x.jsonl{suffix}"
  lines = [json.dumps({"text": t}, ensure_ascii=False) + "\n" for t in texts]
  write(path, "".join(lines).encode())
  with corpora.blocks_of(block):
    assert [text for _, text in read(path)] == texts


LINES = st.sampled_from(
  [b'{"text": "a"}', b'{"text": "bc", "id": 7}', b"", b"  ", b"{", b'"x"\r']
)


@laws.examples(60)
@hypothesis.given(
  lines=st.lists(LINES, max_size=12),
  ended=st.booleans(),
  part_bytes=st.integers(1, 80),
  block=st.integers(1, 50),
)
def test_pieces_hold_each_line_once_by_its_number(
  tmp_path_factory, lines, ended, part_bytes, block
):
  path = tmp_path_factory.mktemp("r") / "x.jsonl"
  path.write_bytes(b"\n".join(lines) + b"\n" * ended)
  with corpora.blocks_of(block):
    expected, joined = rejections.Rejections(), rejections.Rejections()
    once = list(readers.documents(whole(path), OPTIONS, expected))
    pieces = corpora.pieces(path, part_bytes)
    assert sum(piece.size for piece in pieces) == path.stat().st_size
    found = []
    for piece in pieces:
      assert piece.size <= part_bytes
      skipped = rejections.Rejections()
      found += readers.documents(piece, OPTIONS, skipped)
      joined.join(skipped)
  assert found == once
  assert joined == expected


JUNK = st.sampled_from(
  ["", " ", "\r", "\t\r", "\x0b", "\ufeff", "x", "{}", "\x85", "\u2028", "\0"]
)


@laws.examples(100)
@hypothesis.given(
  value=st.recursive(
    st.one_of(st.none(), st.booleans(), st.floats(), st.text(max_size=5)),
    lambda own: st.dictionaries(st.text(max_size=3), own, max_size=3),
  ),
  is_ascii=st.booleans(),
  before=JUNK,
  after=JUNK,
  cut=st.integers(0, 3),
)
def test_a_line_is_read_as_json_does_or_is_an_error(
  tmp_path_factory, value, is_ascii, before, after, cut
):
  text = json.dumps({"text": value}, ensure_ascii=is_ascii)
  line = (before + text + after).encode("utf-8", "surrogatepass")
  line = line[: len(line) - cut]
  path = tmp_path_factory.mktemp("lines") / "x.jsonl"
  path.write_bytes(b"{}\n" + line)
  records = list(json_lines.JsonLines().read(whole(path), OPTIONS))[1:]
  try:
    expected = json.loads(line.decode())
  except ValueError:
    expected = None
  if not line.strip():
    assert records == []
    return
  ((number, record),) = records
  assert number == 2
  if isinstance(expected, dict):
    assert repr(record) == repr(expected)
  else:
    assert isinstance(record, errors.BadInput)


def test_a_piece_within_a_line_reads_no_further_than_its_end(
  tmp_path, monkeypatch
):
  path = write(tmp_path / "x.jsonl", b'{"text": "' + b"a" * 10_000 + b'"}')
  first, *others = corpora.pieces(path, 100)
  assert len(list(readers.documents(first, OPTIONS))) == 1
  read_bytes = []
  blocks = byte_blocks.blocks

  def counted(*args, **named):
    for block in blocks(*args, **named):
      read_bytes.append(len(block))
      yield block

  monkeypatch.setattr(byte_blocks, "BLOCK", 50)
  monkeypatch.setattr(byte_blocks, "blocks", counted)
  for piece in others:
    assert not list(readers.documents(piece, OPTIONS))
  assert sum(read_bytes) <= len(others) * 150


@pytest.mark.parametrize("name", ["x.jsonl.gz", "x.jsonl.zst", "x.txt"])
def test_what_cannot_be_split_is_one_piece(tmp_path, name):
  write(tmp_path / name, b'{"text": "a"}\n' * 100)
  assert len(corpora.pieces(tmp_path / name, 10)) == 1


NESTED = {
  "text": "outer",
  "meta": {"text": "inner", "id": 7, "deep": {"er": "deepest"}},
  "a.b": "literal",
  "a": {"b": "nested", "c": "other"},
}


@pytest.mark.parametrize(
  ("key", "text"),
  [
    ("text", "outer"),
    ("meta.text", "inner"),
    ("meta.deep.er", "deepest"),
    ("a.b", "literal"),
    ("a.c", "other"),
  ],
)
def test_dots_lead_into_objects_unless_the_key_itself_has_them(path, key, text):
  write(path, json.dumps(NESTED).encode())
  assert read(path, text_key=key, id_key="meta.id") == [("7", text)]
  assert [d.meta for d in corpora.read(path, meta_key=key)] == [text]


@pytest.mark.parametrize(
  "key", ["meta.none", "none.text", "text.text", "meta.", ".text", "."]
)
def test_a_nested_key_that_is_missing_is_named_beside_those_there(path, key):
  write(path, json.dumps(NESTED).encode())
  with pytest.raises(
    errors.PrepareError,
    match=re.escape(f"must have the key {key!r}, got ['a', 'a.b', 'a.c',"),
  ):
    read(path, text_key=key)
  assert read(path, id_key=key)[0][0] == f"{path.name}:1"


def test_of_many_keys_the_first_are_named(path):
  write(path, json.dumps({f"k{i:02}": 0 for i in range(50)}).encode())
  with pytest.raises(errors.PrepareError, match=r"'k19'\] and 30 more"):
    read(path)


def test_a_byte_order_mark_is_no_text(path):
  write(path, b'\xef\xbb\xbf{"text": "a"}')
  assert read(path)[0][1] == "a"


@pytest.mark.parametrize(
  ("line", "match"),
  [
    (b'{"text": "a"', ":2 must be a JSON object"),
    (b"[" * 100_000, ":2 must be a JSON object"),
    (b'"a"', "got a str"),
    (b'{"tekst": "a", "z": 1}', r":2 must have the key 'text'.*tekst.*z"),
    (b'{"text": 3}', "string under 'text', got a int"),
    (b'{"text": null}', "got a NoneType"),
    (b'{"text": "a", "id": true}', "'id', got a bool"),
    (b'{"text": "a", "id": 1.5}', "'id', got a float"),
    (b'{"text": "\xff"}', ":2 must be UTF-8, got byte 0xff at offset 10"),
    (b'{"text": "\\ud800"}', ":2 must be valid Unicode"),
    (b'{"text": "a", "id": "\\udfff"}', ":2 must be valid Unicode"),
  ],
)
def test_a_bad_line_is_named(path, line, match):
  write(path, b'{"text": "fine"}\n' + line + b"\n")
  with pytest.raises(errors.PrepareError, match=f"{path}.*{match}|{match}"):
    read(path)


def test_encoding_errors_can_be_replaced(path):
  write(path, b'{"text": "a\xffb"}\n{"text": "\\ud800!"}\n')
  texts = [text for _, text in read(path, encoding_errors="replace")]
  assert texts == ["a\ufffdb", "\ufffd!"]


def test_text_that_is_no_utf8_is_named_with_its_offset(tmp_path):
  path = write(tmp_path / "x.txt", b"abc\xe9def")
  with pytest.raises(errors.PrepareError, match="0xe9 at offset 3"):
    read(path)
  assert read(path, encoding_errors="replace")[0][1] == "abc\ufffddef"
  with pytest.raises(errors.PrepareError, match="0xe9 at offset 3"):
    read(path, raw=True)
  raw = read(path, encoding_errors="replace", raw=True)
  assert raw[0][1] == b"abc\xe9def"


@pytest.mark.parametrize("name", ["x.jsonl.gz", "x.jsonl.zst"])
@pytest.mark.parametrize("share", [0.4, 1.0])
def test_of_a_truncated_archive_the_lines_before_its_end_are_read(
  tmp_path, name, share
):
  texts = [str(i * 7919) for i in range(60_000)]
  lines = b"".join(b'{"text": "%b"}\n' % text.encode() for text in texts)
  data = write(tmp_path / name, lines).read_bytes()
  (tmp_path / name).write_bytes(data[: int(share * len(data)) - 9])
  skipped = rejections.Rejections()
  documents = corpora.read(tmp_path / name, skipped=skipped)
  found = [corpora.as_text(document) for document in documents]
  assert found == texts[: len(found)]
  # A block of zstd is 128 KiB.
  assert len(found) > (share - 0.15) * len(texts)
  assert (skipped.files, skipped.lines) == (1, 0)
  assert skipped.reasons == {"truncated": 1}
  assert f"{name} must be a whole" in skipped.first[0]


@pytest.mark.parametrize("name", ["x.jsonl.gz", "x.jsonl.zst"])
def test_a_damaged_archive_is_skipped_whole(tmp_path, name):
  lines = b"".join(b'{"text": "%d"}\n' % (i * 7919) for i in range(99_000))
  if name.endswith(".gz"):
    data = bytearray(gzip.compress(lines))
    data[-5] ^= 1  # Of the checksum, which is followed by the size.
  else:
    packer = zstandard.ZstdCompressor(write_checksum=True)
    data = bytearray(packer.compress(lines))
    data[-1] ^= 1
  (tmp_path / name).write_bytes(data)
  skipped = rejections.Rejections()
  assert not corpora.read(tmp_path / name, skipped=skipped)
  assert (skipped.files, skipped.lines) == (1, 0)
  assert skipped.reasons == {"damaged": 1}


@pytest.mark.parametrize("name", ["x.jsonl.gz", "x.jsonl.zst"])
def test_a_damaged_archive_is_an_error_and_never_a_short_corpus(tmp_path, name):
  lines = b"".join(b'{"text": "%d"}\n' % (i * 7919) for i in range(2_000))
  data = write(tmp_path / name, lines).read_bytes()
  assert len(read(tmp_path / name)) == 2_000
  for cut in (*range(1, 30), len(data) // 2, len(data) - 1):
    (tmp_path / name).write_bytes(data[:-cut])
    with pytest.raises(errors.PrepareError, match=name):
      read(tmp_path / name)
  (tmp_path / name).write_bytes(b"no archive at all, only text")
  with pytest.raises(errors.PrepareError, match=name):
    read(tmp_path / name)


def test_joined_archives_are_read_to_the_end(tmp_path):
  line = b'{"text": "a"}\n'
  (tmp_path / "x.jsonl.gz").write_bytes(gzip.compress(line) * 3)
  (tmp_path / "x.jsonl.zst").write_bytes(zstandard.compress(line) * 3)
  assert len(read(tmp_path / "x.jsonl.gz")) == 3
  assert len(read(tmp_path / "x.jsonl.zst")) == 3
  # Without the size in its header, as a stream is written.
  buffer = io.BytesIO()
  with zstandard.ZstdCompressor().stream_writer(buffer, closefd=False) as out:
    out.write(line * 5)
  (tmp_path / "x.jsonl.zst").write_bytes(buffer.getvalue())
  assert len(read(tmp_path / "x.jsonl.zst")) == 5


@pytest.mark.parametrize(
  ("data", "time", "got"),
  [
    (b"{}\n", 1_000, r"modification time in ns, at the same size, 1000 after"),
    (b"{}\n{}\n", 1_000, r"size in bytes 6 after 3\."),
    (b"{}\n{}\n", None, r"size in bytes 6 after 3\."),
  ],
)
def test_what_changed_of_an_input_is_said(tmp_path, data, time, got):
  path = tmp_path / "a.jsonl"
  path.write_bytes(b"{}\n")
  (file,) = inputs.discover([str(path)], [])
  base.check_unchanged(file)
  path.write_bytes(data)
  if time is not None:
    os.utime(path, ns=(time, time))
  else:
    os.utime(path, ns=(file.version, file.version))
  with pytest.raises(errors.PrepareError, match=f"must not change .*{got}"):
    base.check_unchanged(file)
