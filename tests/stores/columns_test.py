# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Columns of stores: written, read, copied, verified, and refused."""

import json
import pathlib

import ml_dtypes
import numpy as np
import pytest
import tensorstore

import chomp_data
from chomp_data import stores
from chomp_data.commands import stores as command
from chomp_data.stores import columns
from chomp_data.stores import copying
from chomp_data.testing import stores as testing_stores

LENGTHS = (5, 0, 17, 3, 30, 1)
COLUMNS = {
  name: stores.Column(dtype=name, shape=(3,) * (i % 2))
  for i, name in enumerate(columns.DTYPES)
} | {"of_document": stores.Column(dtype="bfloat16", per="document")}
# Columns may not be called as they are of a dtype alone.
COLUMNS = {f"c_{name}": column for name, column in COLUMNS.items()}


def values(seed=0, lengths=LENGTHS):
  rng = np.random.default_rng(seed)
  out = {}
  for name, column in COLUMNS.items():
    dtype = column.numpy_dtype
    if column.per == "document":
      out[name] = list(rng.normal(size=len(lengths)).astype(dtype))
      continue
    drawn = [rng.integers(0, 2, (n, *column.shape)) for n in lengths]
    if dtype.kind not in "biu":
      drawn = [rng.normal(size=(n, *column.shape)) for n in lengths]
    out[name] = [value.astype(dtype) for value in drawn]
  return out


def make(path, seed=0, **options):
  rng = np.random.default_rng(seed)
  return testing_stores.make_store(
    path,
    [rng.integers(3, 250, n) for n in LENGTHS],
    ids=[f"{seed}-{i}" for i in range(len(LENGTHS))],
    columns=COLUMNS,
    column_values=values(seed),
    chunk=16,
    chunks_per_shard=4,
    **options,
  )


def whole(store, name):
  """Returns all values of a column."""
  stored = store.opened.columns[name]
  per_document = stored.column.per == "document"
  count = store.num_documents if per_document else store.num_tokens
  return stored.read(0, count)


def wanted(name, *seeds):
  parts = [values(seed)[name] for seed in seeds]
  if COLUMNS[name].per == "document":
    return np.concatenate(parts)
  return np.concatenate([value for part in parts for value in part])


def run(*args):
  """Returns the exit status, or the message, of `chomp-stores`."""
  with pytest.raises(SystemExit) as status:
    command.main([*map(str, args)])
  return status.value.code


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_column_is_read_as_it_was_written(tmp_path, compression):
  """Also by other readers of zarr."""
  store = make(tmp_path / "store", compression=compression)
  stores.verify_store(store.path)
  for name, column in COLUMNS.items():
    stored = store.opened.columns[name]
    assert stored.column == column
    read = whole(store, name)
    assert read.dtype == column.numpy_dtype
    np.testing.assert_array_equal(read, wanted(name, 0))
    np.testing.assert_array_equal(stored.read(2, 5), read[2:5])
    path = f"{store.path}/{columns.array_name(name)}"
    opened = tensorstore.open(
      {"driver": "zarr3", "kvstore": {"driver": "file", "path": path}}
    ).result()
    np.testing.assert_array_equal(opened.read().result(), read.reshape(-1))


def test_the_schema_rises_with_columns_alone(tmp_path):
  with_columns = make(tmp_path / "with")
  without = testing_stores.make_store(tmp_path / "without", [[3, 4]])
  entry = json.loads(
    pathlib.Path(with_columns.path, "manifest.json").read_text()
  )
  assert entry["schema"] == 3
  assert entry["columns"]["c_uint32"] == {"dtype": "uint32", "per": "token"}
  assert entry["columns"]["c_int8"] == {
    "dtype": "int8",
    "per": "token",
    "shape": [3],
  }
  manifest = json.loads(pathlib.Path(without.path, "manifest.json").read_text())
  assert manifest["schema"] == 2
  assert "columns" not in manifest


def test_a_changed_byte_of_a_column_is_refused(tmp_path):
  store = make(tmp_path / "store")
  for name in COLUMNS:
    file = pathlib.Path(store.path, columns.array_name(name), "c", "0")
    before = file.read_bytes()
    file.write_bytes(before[:1] + bytes([before[1] ^ 1]) + before[2:])
    damaged = stores.open_store(store.path)
    with pytest.raises(stores.StoreError, match=str(file)):
      whole(damaged, name)
    with pytest.raises(stores.StoreError, match=str(file)):
      stores.verify_store(store.path)
    file.write_bytes(before)


def test_merge_split_and_convert_keep_columns(tmp_path):
  one, two = make(tmp_path / "a", 1), make(tmp_path / "b", 2)
  out = tmp_path / "merged"
  assert run("merge", one.path, two.path, "--output", out) == 0
  merged = stores.verify_store(out)
  assert set(merged.columns) == set(COLUMNS)
  for name in COLUMNS:
    np.testing.assert_array_equal(
      whole(stores.open_store(out), name), wanted(name, 1, 2)
    )
  assert run("convert", out, "--to", "zstd", "--output", tmp_path / "z") == 0
  assert stores.open_store(tmp_path / "z").hash == merged.hash
  rest, held = tmp_path / "rest", tmp_path / "held"
  args = ("--output", rest, "--held_out", held, "--fraction", "0.4")
  assert run("split", out, *args) == 0
  for path in (rest, held):
    part = stores.open_store(path)
    stores.verify_store(path)
    for i, document in enumerate(part.document_ids(range(part.num_documents))):
      seed, number = map(int, document.split("-"))
      first, length = (int(x[0]) for x in part.bounds(np.asarray([i])))
      for name, column in COLUMNS.items():
        stored = part.opened.columns[name]
        got, expected = None, values(seed)[name][number]
        if column.per == "document":
          got = stored.read(i, i + 1)[0]
        else:
          got = stored.read(first, first + length)
        np.testing.assert_array_equal(got, expected, name)


def test_batches_of_copies_are_of_bounded_bytes(tmp_path):
  wide = np.arange(8, dtype=np.float32).repeat(2**10)
  store = testing_stores.make_store(
    tmp_path / "store",
    [[5] * 2**10] * 8,
    chunk=2**16,
    columns={"wide": stores.Column("float32", (2**10,))},
    column_values={
      "wide": [np.tile(v[:, None], 2**10) for v in np.split(wide, 8)]
    },
  )
  batches = [*copying.document_batches(store)]
  read = [batch.token_columns["wide"] for batch in batches]
  np.testing.assert_array_equal(np.concatenate(read)[:, 7], wide)
  assert [batch.first for batch in batches] == [0, 3, 6]
  for batch in batches:
    size = batch.tokens.nbytes + batch.token_columns["wide"].nbytes
    assert size <= 2**24  # Of 2^22 tokens without columns.


def test_array_record_has_no_place_for_columns(tmp_path):
  store = make(tmp_path / "store")
  out = tmp_path / "records"
  args = ("convert", store.path, "--to", "array_record", "--output", out)
  assert "--drop_columns" in str(run(*args))
  assert not out.exists()
  assert run(*args, "--drop_columns") == 0
  kept = ("convert", args[1], f"--output={tmp_path / 'zstd'}", "--to=zstd")
  assert "--drop_columns" in str(run(*kept, "--drop_columns"))
  assert stores.open_store(out).num_tokens == store.num_tokens


def test_a_merge_of_stores_with_other_columns_is_refused(tmp_path):
  make(tmp_path / "a")
  testing_stores.make_store(tmp_path / "plain", [[3, 4]])
  paths = tmp_path / "a", tmp_path / "plain"
  message = str(run("merge", *paths, "--output", tmp_path / "m"))
  assert "plain must have the column 'c_" in message


def test_info_names_columns(tmp_path, capsys):
  make(tmp_path / "store")
  run("info", tmp_path / "store", "--format", "json")
  shown = json.loads(capsys.readouterr().out)["columns"]
  assert shown["c_int8"] == "int8[3] per token"
  assert shown["c_of_document"] == "bfloat16 per document"


@pytest.mark.parametrize(
  ("column", "given", "match"),
  [
    ("uint8", [[1, 256], [0]], "uint8 holds"),
    ("uint8", [[1, 0.5], [0]], "uint8 holds"),
    ("float16", [[1, 1e6], [0]], "float16 holds"),
    ("uint8", [[1], [0]], r"shape \[2\]"),
    ("uint8", [["a", "b"], [0]], "must be numbers"),
    ("uint8", [[1, 2]], "as many as the documents"),
  ],
)
def test_values_that_a_column_does_not_hold_are_refused(
  tmp_path, column, given, match
):
  with pytest.raises(stores.StoreError, match=match):
    testing_stores.make_store(
      tmp_path / "store",
      [[3, 4], [5]],
      columns={"quality": stores.Column(dtype=column)},
      column_values={"quality": given},
    )
  assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
  "wrong",
  [
    {"dtype": "int64"},
    {"dtype": "uint8", "per": "row"},
    {"dtype": "uint8", "align": "next"},
    {"dtype": "uint8", "shape": (0,)},
    {"dtype": "uint8", "shape": (2**21,)},
    {"dtype": "uint8", "per": "document", "shape": (2,)},
    {"dtype": "uint8", "per": "document", "align": "target"},
  ],
)
def test_wrong_columns_are_refused(wrong):
  with pytest.raises(chomp_data.ConfigError, match="Column"):
    stores.Column(**wrong)


@pytest.mark.parametrize("name", ["tokens", "loss_mask", "a b", "", "1a"])
def test_wrong_names_are_refused(tmp_path, name):
  with pytest.raises(chomp_data.ConfigError, match="columns"):
    testing_stores.make_store(
      tmp_path / "store",
      [[3]],
      columns={name: stores.Column(dtype="uint8")},
      column_values={name: [[1]]},
    )


def test_numbers_round_in_floating_point_columns(tmp_path):
  store = testing_stores.make_store(
    tmp_path / "store",
    [[3, 4]],
    columns={"p": stores.Column(dtype="bfloat16")},
    column_values={"p": [[0.1, np.inf]]},
  )
  read = store.opened.columns["p"].read(0, 2)
  assert read.tolist() == [float(ml_dtypes.bfloat16(0.1)), float("inf")]
