# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Kinds of inputs: the same documents from each, in pieces or at once."""

import contextlib
import os
import pathlib
import re

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data import errors
from chomp_data.prepare import inputs
from chomp_data.prepare import readers
from chomp_data.prepare import rejections
from chomp_data.prepare.reading import tables
from tests import laws
from tests.prepare import corpora

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

OPTIONS = corpora.OPTIONS
read = corpora.read
pieces_of = corpora.pieces
KINDS = {
  "jsonl": corpora.json_lines,
  "jsonl.gz": lambda path: corpora.json_lines(path, name="x.jsonl.gz"),
  "jsonl.zst": lambda path: corpora.json_lines(path, name="x.jsonl.zst"),
  "json.gz": lambda path: corpora.json_lines(path, name="x.json.gz"),
  "parquet": corpora.parquet,
  "arrow": corpora.arrow_file,
  "save_to_disk": corpora.saved,
  "array_record": corpora.array_record_of_text,
  "examples": corpora.array_record_of_examples,
}
ALONE = [kind for kind in KINDS if kind != "save_to_disk"]


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_gives_the_same_documents(tmp_path, kind, raw):
  path = KINDS[kind](tmp_path)
  found = read(path, raw=raw)
  assert [corpora.as_text(own) for own in found] == [
    t for _, t in corpora.DOCUMENTS
  ]
  names = [own.name for own in found]
  if kind == "array_record":
    assert names[:2] == ["x.array_record:0", "x.array_record:1"]
    assert len(set(names)) == len(names)
  else:
    assert names == [name for name, _ in corpora.DOCUMENTS]


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_hold_each_document_once_in_order(tmp_path, kind):
  path = KINDS[kind](tmp_path)
  whole = read(path)
  for part_bytes in (2_000, 20_000, 300_000):
    pieces = pieces_of(path, part_bytes)
    assert [
      own for piece in pieces for own in readers.documents(piece, OPTIONS)
    ] == whole
    sizes = {}
    for piece in pieces:
      sizes.setdefault(piece.file, []).append(piece.size)
    assert all(sum(own) == file.size for file, own in sizes.items())
  packed = kind.endswith(("gz", "zst"))
  # `datasets` writes batches of 1,000 rows.
  least = 2 if kind == "save_to_disk" else 4
  assert packed or len(pieces_of(path, 20_000)) >= least


@pytest.mark.parametrize("kind", ["parquet", "arrow", "save_to_disk"])
def test_rows_without_an_id_are_called_by_their_number(tmp_path, kind):
  path = KINDS[kind](tmp_path)
  found = read(path, 20_000, id_key="none")
  numbers = [int(own.name.rpartition(":")[2]) for own in found]
  files = [own.name.rpartition(":")[0] for own in found]
  expected = []
  for name in dict.fromkeys(files):
    expected += range(files.count(name))
  assert numbers == expected


def nested(path, **columns):
  own = path / "x.parquet"
  parquet.write_table(arrow.table(columns), str(own))
  return own


def test_dots_lead_into_structs_unless_a_column_is_called_so(tmp_path):
  path = nested(
    tmp_path,
    doc=[{"body": "one", "at": {"url": "u1"}, "n": 1}, None],
    other=["not", "read"],
    **{"a.b": ["literal", "too"], "a": [{"b": "nested"}, {"b": "also"}]},
  )
  assert read(path, text_key="a.b")[0][:2] == ("x.parquet:0", "literal")
  found = read(
    path,
    text_key="doc.body",
    id_key="doc.at.url",
    skipped=rejections.Rejections(),
  )
  assert [own[:2] for own in found] == [("u1", "one")]
  with pytest.raises(errors.BadInput, match=r"parquet:1 must have a string"):
    read(path, text_key="doc.body")


def test_only_columns_that_are_needed_are_read(tmp_path, monkeypatch):
  path = nested(
    tmp_path, text=["a"], id=["i"], doc=[{"body": "b", "n": 1}], big=["x" * 999]
  )
  asked = []
  iter_batches = parquet.ParquetFile.iter_batches

  def record(self, **named):
    asked.append(named["columns"])
    return iter_batches(self, **named)

  monkeypatch.setattr(parquet.ParquetFile, "iter_batches", record)
  read(path)
  read(path, text_key="doc.body", meta_key="big", id_key="none")
  assert asked == [["id", "text"], ["big", "doc.body"]]


@pytest.mark.parametrize(
  "kind",
  ["string", "large_string", "string_view", "binary", "large_binary",
   "dictionary"],
)  # fmt: skip
def test_text_may_be_of_any_type_of_strings(tmp_path, kind):
  kinds = {
    "large_string": arrow.large_string(), "string_view": arrow.string_view(),
    "binary": arrow.binary(), "large_binary": arrow.large_binary(),
    "dictionary": arrow.dictionary(arrow.int32(), arrow.string()),
  }  # fmt: skip
  texts = arrow.array(["é", "b", "é"])
  try:
    texts = texts.cast(kinds.get(kind, arrow.string()))
  except arrow.ArrowNotImplementedError:
    pytest.skip("older versions of pyarrow do not cast to it")
  own = arrow.table({"text": texts})
  with arrow.ipc.new_stream(str(tmp_path / "x.arrow"), own.schema) as out:
    out.write_table(own)
  assert [d.text for d in read(tmp_path / "x.arrow")] == ["é", "b", "é"]


def test_text_that_is_no_utf8_is_named_by_its_row(tmp_path):
  good, bad = b"fine", b"ab\xffc"
  texts = arrow.array([good, bad, good]).view(arrow.string())
  deep = arrow.StructArray.from_arrays(
    [arrow.ListArray.from_arrays([0, 1, 2, 3], texts)], ["own"]
  )
  parquet.write_table(
    arrow.table({"text": texts, "deep": deep}), str(tmp_path / "x.parquet")
  )
  path = tmp_path / "x.parquet"
  with pytest.raises(
    errors.BadInput, match=r"x\.parquet:1 must be UTF-8, got byte 0xff at off"
  ):
    read(path)
  found = read(path, encoding_errors="replace")
  assert [own.text for own in found] == ["fine", "ab\ufffdc", "fine"]
  skipped = rejections.Rejections()
  assert len(read(path, skipped=skipped)) == 2
  assert skipped.lines == 1
  # What is nested deeper is not replaced, and no other row suffers.
  skipped = rejections.Rejections()
  read(path, skipped=skipped, meta_key="deep.own", encoding_errors="replace")
  assert ["UTF-8" in problem for problem in skipped.first] == [
    False, True, False,
  ]  # fmt: skip


@pytest.mark.parametrize(
  ("columns", "match"),
  [
    ({"body": ["a"]}, r"column 'text', got \['body'\]\. Correct --text_key"),
    ({"doc": [{"text": "a"}]}, r"got \['doc', 'doc\.text'\]"),
    ({"text": [1]}, "x.parquet:0 must have a string under 'text', got a int"),
    ({"text": [None]}, "x.parquet:0 .* got a NoneType"),
    ({"text": ["a"], "id": [1.5]}, "'id', got a float"),
    ({f"c{i:02}": [0] for i in range(30)}, "'c19'\\] and 10 more"),
  ],
)
def test_a_table_that_holds_no_documents_is_an_error(tmp_path, columns, match):
  path = nested(tmp_path, **columns)
  with pytest.raises(errors.BadInput, match=match) as caught:
    read(path)
  assert str(path) in str(caught.value)


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_columns_of_one_name_and_tables_without_any_are_errors(tmp_path, kind):
  def write(columns):
    path = tmp_path / f"x.{kind}"
    names, values = zip(*columns, strict=True) if columns else ((), ())
    table = arrow.Table.from_arrays([arrow.array([v]) for v in values], names)
    if kind == "parquet":
      parquet.write_table(table, path)
    else:
      with arrow.ipc.new_file(str(path), table.schema) as out:
        out.write_table(table)
    return path

  text = ("text", "a")
  for name, columns, keys in (
    ("text", [text, text], {}),
    ("id", [text, ("id", 1), ("id", 2)], {}),
    ("doc", [("doc", {"text": "a"}), ("doc", 1)], {"text_key": "doc.text"}),
  ):
    with pytest.raises(
      errors.BadInput, match=rf"x\.{kind} must have one column '{name}', got 2"
    ):
      read(write(columns), **keys)
  (document,) = read(write([text, ("other", 1), ("other", 2)]))
  assert document.text == "a"
  with pytest.raises(errors.BadInput, match=r"column 'text', got \[\]"):
    read(write([]))


@pytest.mark.parametrize("name", ["x.jsonl.gz", "x.json.zst"])
def test_an_archive_without_a_byte_is_truncated(tmp_path, prepare, name):
  corpora.json_lines(tmp_path)
  (tmp_path / name).write_bytes(b"")
  match = rf"{name} must be a whole .* archive, got an empty file"
  with pytest.raises(errors.PrepareError, match=match):
    prepare(tmp_path / "x.*")
  store, _ = prepare(tmp_path / "x.*", on_error="skip")
  assert store.num_documents == len(corpora.DOCUMENTS)
  assert store.manifest.prepared["skipped"]["reasons"] == {"truncated": 1}


def test_of_mixed_schemas_the_file_that_lacks_the_column_is_named(
  tmp_path, prepare
):
  for name, column in (("a", "text"), ("b", "body"), ("c", "text")):
    parquet.write_table(
      arrow.table({column: [name], "id": [name]}), tmp_path / f"{name}.parquet"
    )
  with pytest.raises(
    errors.PrepareError, match=r"b\.parquet must have the column 'text'"
  ):
    prepare(tmp_path / "*.parquet")
  store, _ = prepare(tmp_path / "*.parquet", on_error="skip")
  assert store.document_ids(np.arange(2)) == ["a", "c"]
  assert store.manifest.prepared["skipped"]["files"] == 1


@pytest.mark.parametrize("kind", ALONE)
def test_a_file_that_is_cut_is_an_error_and_never_a_short_corpus(
  tmp_path, kind
):
  path = KINDS[kind](tmp_path)
  data = path.read_bytes()
  cuts = [1, 8, 100, len(data) // 2, len(data) - 20]
  for cut in cuts[3:] if kind == "jsonl" else cuts:
    path.write_bytes(data[:-cut])
    with pytest.raises(errors.PrepareError, match=re.escape(path.name)):
      read(path)


SMALL = [(f"d{i}", f"téxt {i} " * 20) for i in range(40)]


@laws.examples(60)
@hypothesis.given(
  kind=st.sampled_from(
    ["parquet", "arrow", "save_to_disk", "array_record", "examples"]
  ),
  at=st.floats(0, 1, exclude_max=True),
  byte=st.integers(0, 255),
)
def test_damaged_bytes_are_told_or_read_as_others(
  tmp_path_factory, kind, at, byte
):
  path = KINDS[kind](tmp_path_factory.mktemp("k"), SMALL)
  file = corpora.planned(path)[0].file.path
  data = bytearray(pathlib.Path(file).read_bytes())
  data[int(at * len(data))] = byte
  pathlib.Path(file).write_bytes(bytes(data))
  with contextlib.suppress(errors.PrepareError):
    found = read(path, 200)
    # Their formats have checksums.
    if kind in ("array_record", "examples"):
      assert [corpora.as_text(own) for own in found] == [
        text for _, text in SMALL
      ]


def test_checksums_of_parquet_are_compared_where_it_has_them(tmp_path):
  path = tmp_path / "x.parquet"
  parquet.write_table(
    corpora.table(SMALL), str(path), compression="none", use_dictionary=False,
    write_page_checksum=True,
  )  # fmt: skip
  data = path.read_bytes()
  at = data.index("téxt 7".encode())
  path.write_bytes(data[:at] + b"s" + data[at + 1 :])
  with pytest.raises(errors.BadInput, match="must be a whole Parquet file"):
    read(path)


@pytest.mark.parametrize("kind", ALONE)
def test_a_file_that_changes_while_it_is_read_is_an_error(tmp_path, kind):
  path = KINDS[kind](tmp_path)
  pieces = pieces_of(path)
  documents = readers.documents(pieces[0], OPTIONS)
  next(documents)
  path.write_bytes(path.read_bytes() + b" ")
  with pytest.raises(errors.PrepareError, match=r"must not change|must be a"):
    list(documents)


@pytest.mark.parametrize("kind", ["parquet", "arrow", "save_to_disk"])
def test_a_file_that_is_cut_while_it_is_read_is_an_error(
  tmp_path, kind, monkeypatch
):
  monkeypatch.setattr(tables, "MAX_ROWS", 1)
  texts = [(f"{i}", f"{i} " * 200) for i in range(1_200)]
  path = KINDS[kind](tmp_path, texts)
  (piece, *_) = pieces_of(path)
  documents = readers.documents(piece, OPTIONS)
  next(documents)
  # A memory map would end the process here.
  os.truncate(piece.file.path, 2_000)
  with pytest.raises(
    errors.PrepareError, match=r"must be a whole|must not change"
  ):
    list(documents)


def test_a_stream_that_is_cut_between_batches_is_an_error(tmp_path):
  own = corpora.table(SMALL)
  ends = []
  with (
    open(tmp_path / "x.arrow", "wb") as raw,
    arrow.ipc.new_stream(raw, own.schema) as out,
  ):
    for begin in range(0, len(SMALL), 10):
      out.write_table(own.slice(begin, 10))
      ends.append(raw.tell())
  assert len(read(tmp_path / "x.arrow")) == len(SMALL)
  os.truncate(tmp_path / "x.arrow", ends[1])
  with pytest.raises(errors.BadInput, match="got a stream without its end"):
    read(tmp_path / "x.arrow")


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("encoded", [False, True])
def test_streams_of_every_kind_are_read_in_pieces(
  tmp_path, compression, encoded
):
  texts = arrow.array([f"text {i % 50}" for i in range(500)])
  if encoded:
    texts = texts.dictionary_encode()
  table = arrow.table({"text": texts, "n": range(500)})
  for kind in ("new_stream", "new_file"):
    path = tmp_path / f"{kind}.arrow"
    options = arrow.ipc.IpcWriteOptions(compression=compression)
    with getattr(arrow.ipc, kind)(
      str(path), table.schema, options=options
    ) as out:
      for i in range(0, 500, 20):
        out.write_table(table.slice(i, 20))
    found = read(path, 1_000, id_key="n")
    assert [own.name for own in found] == [str(i) for i in range(500)]
    assert [own.text for own in found] == [f"text {i % 50}" for i in range(500)]


def test_a_directory_of_splits_names_them(tmp_path):
  datasets = pytest.importorskip("datasets")
  own = datasets.Dataset.from_dict({"text": ["a", "b"]})
  splits = datasets.DatasetDict({"train": own, "test": own})
  splits.save_to_disk(str(tmp_path / "all"))
  with pytest.raises(
    errors.PrepareError, match=r"got a directory of the splits train, test"
  ):
    inputs.discover([str(tmp_path / "all")], [])
  found = read(tmp_path / "all" / "train")
  assert [own.text for own in found] == ["a", "b"]


def test_of_a_saved_directory_only_its_own_files_are_read(tmp_path):
  path = corpora.saved(tmp_path, shards=3)
  (path / "cache-0123.arrow").write_bytes(b"left by map")
  assert len(corpora.planned(path)) == 3
  (path / "data-00001-of-00003.arrow").unlink()
  with pytest.raises(
    errors.PrepareError, match=r"data-00001-of-00003\.arrow must exist"
  ):
    corpora.planned(path)


def test_a_summary_of_other_parquet_files_is_refused(tmp_path):
  collected = []
  parquet.write_to_dataset(
    corpora.table(), str(tmp_path / "in"), metadata_collector=collected
  )
  parquet.write_metadata(
    corpora.table().schema,
    str(tmp_path / "in" / "_metadata"),
    metadata_collector=collected,
  )
  with pytest.raises(errors.BadInput, match=r"_metadata .* a summary of other"):
    read(tmp_path / "in")


def test_without_pyarrow_the_extra_is_named(tmp_path, monkeypatch):
  path = corpora.parquet(tmp_path)
  monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
  with pytest.raises(errors.PrepareError, match="the extra `arrow`"):
    read(path)


def test_records_of_another_kind_than_the_first_are_named(tmp_path):
  path = corpora.array_record(
    tmp_path, [corpora.example(text=[b"a"]), b"text", corpora.example(text=[])]
  )
  with pytest.raises(
    errors.BadInput, match=r"array_record:1 must be a tf\.train\.Example as"
  ):
    read(path)
  skipped = rejections.Rejections()
  assert [own.text for own in read(path, skipped=skipped)] == ["a"]
  assert skipped.lines == 2


def test_examples_of_several_values_are_no_text(tmp_path):
  path = corpora.array_record(tmp_path, [corpora.example(text=[b"a", b"b"])])
  with pytest.raises(errors.BadInput, match="'text', got a list"):
    read(path)


def test_features_that_are_ids_and_kept_besides_are_taken(tmp_path):
  path = corpora.array_record(
    tmp_path, [corpora.example(text=[b"a"], n=[7], f=[0.5], url=[b"u"])]
  )
  (found,) = read(path, id_key="n", meta_key="url")
  assert found[:3] == ("7", "a", "u")
  (found,) = read(path, id_key="url", meta_key="f")
  assert found[2] == "0.5"


@pytest.mark.parametrize("records", [[], [b""], [b"", b"text"]])
def test_records_may_be_empty(tmp_path, records):
  path = corpora.array_record(tmp_path, records)
  assert [own.text for own in read(path)] == [own.decode() for own in records]
