# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Records of token ids, with columns per token and per document."""

import json

import numpy as np
import pytest

from chomp_data import errors
from chomp_data import stores
from chomp_data.prepare import part_files
from chomp_data.prepare import tokenizers
from tests import in_process
from tests.prepare import long_lines_test

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

COLUMNS = {
  "column": ("top:float16[2]@target", "quality:uint8", "ok:bool"),
  "document_column": ("margin:float32",),
}
SPEC = tokenizers.TokenizerSpec(vocab_size=900, pad_id=0, eos_id=1)


def record(number, length):
  rng = np.random.default_rng(number)
  return {
    "id": f"d{number}",
    "input_ids": rng.integers(2, 900, length).tolist(),
    "top": rng.normal(size=(length, 2)).astype(np.float16).tolist(),
    "quality": rng.integers(0, 256, length).tolist(),
    "ok": (rng.random(length) < 0.5).tolist(),
    "margin": float(np.float32(rng.normal())),
  }


LENGTHS = (5, 0, 17, 1, 30)
RECORDS = [record(i, n) for i, n in enumerate(LENGTHS)]


def written(path, kind, records=RECORDS):
  """Writes records as a kind of file; returns its path."""
  file = path / f"x.{kind}"
  if kind == "jsonl":
    file.write_text("".join(json.dumps(r) + "\n" for r in records))
    return file
  top = arrow.list_(arrow.list_(arrow.float16(), 2))
  if kind == "parquet":
    top = arrow.list_(arrow.list_(arrow.float32()))
  table = arrow.table(
    {
      "id": [r["id"] for r in records],
      "input_ids": arrow.array(
        [r["input_ids"] for r in records], arrow.large_list(arrow.int32())
      ),
      "top": arrow.array(
        [np.float16(r["top"]).reshape(-1, 2).tolist() for r in records],
        arrow.list_(arrow.list_(arrow.float32())),
      ).cast(top),
      "quality": arrow.array(
        [r["quality"] for r in records], arrow.list_(arrow.uint8())
      ),
      "ok": [r["ok"] for r in records],
      "margin": [r["margin"] for r in records],
    }
  )
  if kind == "parquet":
    parquet.write_table(table, file, row_group_size=2)
  else:
    with (
      arrow.OSFile(str(file), "wb") as sink,
      arrow.ipc.new_file(sink, table.schema) as writer,
    ):
      writer.write_table(table, max_chunksize=2)
  return file


def check(store, records=RECORDS):
  stores.verify_store(store.path)
  records = [r for r in records if r["input_ids"]]
  assert store.document_ids(range(store.num_documents)) == [
    r["id"] for r in records
  ]
  opened = store.opened.columns
  for i, wanted in enumerate(records):
    first, length = (int(x[0]) for x in store.bounds(np.asarray([i])))
    assert stores.read_document(store, i).tolist() == wanted["input_ids"]
    for name in ("top", "quality", "ok"):
      read = opened[name].read(first, first + length)
      assert read.tolist() == np.asarray(wanted[name]).tolist(), name
    assert opened["margin"].read(i, i + 1).tolist() == [wanted["margin"]]


@pytest.mark.parametrize("shard_bytes", [50, 2**20])
@pytest.mark.parametrize("kind", ["jsonl", "parquet", "arrow"])
def test_columns_of_each_kind_of_records(tmp_path, prepare, kind, shard_bytes):
  store, _ = prepare(
    written(tmp_path, kind),
    ids_key="input_ids",
    tokenizer=SPEC,
    shard_bytes=shard_bytes,
    **COLUMNS,
  )
  check(store)
  info = store.opened.tokenizer
  assert (info.kind, info.vocab_size, info.eos_id) == ("custom", 900, 1)
  column = store.opened.columns["top"].column
  assert column == stores.Column("float16", (2,), align="target")
  assert store.manifest.prepared["ids_key"] == "input_ids"


def test_the_store_is_that_of_the_python_writer(tmp_path, prepare):
  store, _ = prepare(
    written(tmp_path, "jsonl"), ids_key="input_ids", tokenizer=SPEC, **COLUMNS
  )
  records = [r for r in RECORDS if r["input_ids"]]
  columns = {
    name: stored.column for name, stored in store.opened.columns.items()
  }
  other = stores.write_store(
    tmp_path / "other",
    [r["input_ids"] for r in records],
    ids=[r["id"] for r in records],
    tokenizer_info=store.opened.tokenizer,
    columns=columns,
    column_values={name: [r[name] for r in records] for name in columns},
  )
  assert other.hash == store.hash


def test_a_part_of_wide_columns_is_not_in_memory(tmp_path):
  parts = tmp_path / "parts"
  columns = {
    "wide": stores.Column("float32", (2**10,)),
    "narrow": stores.Column("bool"),
  }

  def write():
    with part_files.PartWriter(
      str(parts), "a", np.dtype("<u2"), has_meta=False, has_labels=False,
      has_weights=False, columns=columns,
    ) as writer:  # fmt: skip
      for i in range(12):
        writer.add(
          np.full(2**10, i),
          np.asarray([2**10]),
          [str(i)],
          columns={
            "wide": np.full((2**10, 2**10), i, np.float32),
            "narrow": np.full(2**10, i % 3 == 0),
          },
        )
      return writer.finish(0, {})

  peak, row = long_lines_test.peak_bytes(write)
  assert peak < 20 * 2**20  # Of 48 MiB.
  assert {file.name for file in parts.iterdir()} == {"a.json", "a.part"}
  part = part_files.Part(str(parts), "a")
  part.verify()
  assert part.row == row
  numbers = np.arange(12).repeat(2**10)
  for name, dtype, wanted in (
    ("tokens", "<u2", numbers),
    ("column_wide", "<f4", numbers.repeat(2**10)),
    ("column_narrow", "?", numbers % 3 == 0),
  ):
    assert row.size(name) == len(wanted)
    read = [*part.read(name, np.dtype(dtype), 0, len(wanted))]
    np.testing.assert_array_equal(np.concatenate(read), wanted)


def test_a_batch_of_wide_columns_is_of_fewer_tokens(
  tmp_path, prepare, monkeypatch
):
  sizes = []
  add = part_files.PartWriter.add

  def recorded(self, tokens, *args):
    sizes.append(len(tokens))
    add(self, tokens, *args)

  monkeypatch.setattr(part_files.PartWriter, "add", recorded)
  rows = [[[i] * 2**14] * 16 for i in range(6)]
  path = tmp_path / "x.jsonl"
  path.write_text(
    "".join(
      json.dumps({"input_ids": [i + 2] * 16, "wide": row}) + "\n"
      for i, row in enumerate(rows)
    )
  )
  store, _ = prepare(
    path, ids_key="input_ids", tokenizer=SPEC, column=("wide:float32[16384]",),
    shard_bytes=2**40, chunk=2**15, workers=1,
  )  # fmt: skip
  # The bytes of a batch without columns, of one document more at most.
  assert sum(sizes) == 6 * 16
  assert (max(sizes) - 16) * (4 + 4 * 2**14) < 4 * 2**20
  wide = store.opened.columns["wide"].read(0, 6 * 16)
  assert (wide == np.arange(6).repeat(16)[:, None]).all()


def test_columns_of_documents_beside_text(tmp_path, prepare):
  path = tmp_path / "x.jsonl"
  path.write_text('{"text": "one", "margin": 2}\n{"text": "", "margin": 3}\n'
                  '{"text": "two", "margin": 4.5}\n')  # fmt: skip
  store, _ = prepare(path, document_column=("margin:bfloat16",))
  assert store.opened.columns["margin"].read(0, 2).tolist() == [2, 4.5]


def test_columns_of_pairs_are_chosen_and_rejected(tmp_path, prepare):
  path = tmp_path / "x.jsonl"
  lines = [
    {"prompt": "a", "chosen": "b", "rejected": "c", "logp": [-1, -2]},
    {"prompt": "d", "chosen": "e", "rejected": "f", "logp": [-3, -4]},
  ]
  path.write_text("".join(json.dumps(line) + "\n" for line in lines))
  store, _ = prepare(
    path,
    prompt_key="prompt",
    chosen_key="chosen",
    rejected_key="rejected",
    document_column=("logp:float32",),
  )
  assert store.opened.columns["logp"].read(0, 4).tolist() == [-1, -2, -3, -4]


@pytest.mark.parametrize(
  ("changes", "match"),
  [
    ({"top": [[1, 2]]}, "float16.2. per token, aligned to targets"),
    ({"top": [[1, 2], [3]]}, "wrong|top"),
    ({"quality": [1, 300]}, "uint8 holds"),
    ({"quality": None}, "quality"),
    ({"margin": [1]}, "shape"),
    ({"margin": "x"}, "numbers"),
    ({"input_ids": [1, -2]}, "list of token ids"),
    ({"input_ids": "12"}, "list of token ids"),
    ({"input_ids": [[1], [2, 3]]}, "list of token ids"),
    (
      {"input_ids": [1, 900]},
      r"x\.jsonl:1 must have token ids below the vocabulary size 900 under"
      " 'input_ids', got 900",
    ),
  ],
)
def test_wrong_records_are_refused(tmp_path, prepare, changes, match):
  path = written(tmp_path, "jsonl", [{**record(0, 2), **changes}])
  with pytest.raises(errors.PrepareError, match=match):
    prepare(path, ids_key="input_ids", tokenizer=SPEC, **COLUMNS)


@pytest.mark.parametrize("offset", [1, 3])
def test_lists_of_a_damaged_arrow_file_are_refused(tmp_path, prepare, offset):
  path = written(tmp_path, "arrow", [record(i, 3 + i) for i in range(2)])
  # The offsets of the lists of ids, which are of 8 bytes.
  before = np.asarray([0, 3, 7], "<i8").tobytes()
  data = path.read_bytes()
  assert data.count(before) == 1
  after = np.asarray([0, 3, 7], "<i8")
  after[min(offset, 2)] = 10**8
  path.write_bytes(data.replace(before, after.tobytes()))
  with pytest.raises(errors.PrepareError, match=r"x\.arrow"):
    prepare(path, ids_key="input_ids", tokenizer=SPEC)


@pytest.mark.parametrize("kind", ["bos", "eos"])
def test_ids_must_have_the_ends_that_flags_say(tmp_path, prepare, kind):
  path = written(tmp_path, "jsonl", [record(0, 3)])
  adds = {"vocab_size": 900, f"adds_{kind}": True}
  with pytest.raises(errors.PrepareError, match=f"--{kind}_id` must be set"):
    prepare(
      path, ids_key="input_ids", tokenizer=tokenizers.TokenizerSpec(**adds)
    )
  ids = RECORDS[0]["input_ids"] if kind == "bos" else record(0, 3)["input_ids"]
  last = ids[0] if kind == "bos" else ids[-1]
  for number, ok in ((last, True), (1, False)):
    spec = tokenizers.TokenizerSpec(**adds, **{f"{kind}_id": number})
    if ok:
      prepare(path, ids_key="input_ids", tokenizer=spec)
    else:
      with pytest.raises(errors.PrepareError, match=f"with --{kind}_id=1"):
        prepare(path, ids_key="input_ids", tokenizer=spec, overwrite=True)


@pytest.mark.parametrize("duplicates", ["keep", "drop"])
def test_wrong_records_are_skipped_and_counted(tmp_path, prepare, duplicates):
  wrong = [
    {**record(7, 2), "quality": [1, 300]},
    {**record(8, 2), "input_ids": [900, 2]},
  ]
  path = written(tmp_path, "jsonl", [record(0, 3), *wrong, record(1, 4)])
  store, _ = prepare(
    path,
    ids_key="input_ids",
    tokenizer=SPEC,
    on_error="skip",
    duplicates=duplicates,
    **COLUMNS,
  )
  check(store, [record(0, 3), record(1, 4)])
  assert store.manifest.prepared["skipped"]["reasons"] == {
    "id beyond the vocabulary": 1,
    "wrong column": 1,
  }


def test_the_order_of_columns_is_no_other_store(tmp_path, prepare):
  path = written(tmp_path, "jsonl")
  options = {"ids_key": "input_ids", "tokenizer": SPEC, **COLUMNS}
  store, _ = prepare(path, **options)
  # As the flags were given, which stores of older versions have, too.
  assert store.manifest.prepared["column"] == list(COLUMNS["column"])
  options["column"] = COLUMNS["column"][::-1]
  again, written_again = prepare(path, **options)
  assert (again.hash, written_again) == (store.hash, False)
  options["column"] = COLUMNS["column"][1:]
  with pytest.raises(stores.StoreError, match="differs in column"):
    prepare(path, **options)


def test_an_id_key_that_no_record_of_ids_has_is_an_error(tmp_path, prepare):
  path = written(tmp_path, "jsonl")
  options = {"id_key": "nmae", "id_required": True, "ids_key": "input_ids"}
  with pytest.raises(errors.PrepareError, match=r"got 'nmae'.*'input_ids'"):
    prepare(path, tokenizer=SPEC, **options)


def test_the_command_reads_flags(tmp_path):
  path, out = written(tmp_path, "jsonl"), tmp_path / "out"
  flags = [f"--column={text}" for text in COLUMNS["column"]]
  flags += [f"--document_column={text}" for text in COLUMNS["document_column"]]
  args = (f"--input={path}", f"--output={out}", "--ids_key=input_ids", *flags)
  done = in_process.run_tool("prepare", *args)
  assert done.returncode
  assert "`--tokenizer` or `--vocab_size` must be given" in done.stderr
  done = in_process.run_tool("prepare", *args, "--vocab_size=900", "--eos_id=1")
  assert not done.returncode, done.stderr
  check(stores.open_store(out))
  shown = in_process.run_tool(
    "prepare", *args, "--vocab_size=900", "--preview=1"
  )
  assert str(RECORDS[0]["input_ids"][0]) in shown.stdout, shown.stderr
