# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Columns in batches are those of the tokens and documents of a plan."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import chomp_data
from chomp_data import pipeline
from chomp_data import stores
from chomp_data.plans import plan as plan_lib
from chomp_data.testing import stores as testing_stores
from chomp_data.transforms import formats
from tests.rows import targets_test
from tests.sources import small_configs

SEQ_LEN, LENGTHS = targets_test.SEQ_LEN, targets_test.LENGTHS
ROWS = targets_test.ROWS
COLUMNS = {
  "quality": stores.Column(dtype="uint8"),
  "top": stores.Column(dtype="float16", shape=(2, 3)),
  "logprob": stores.Column(dtype="float32", align="target"),
  "teacher": stores.Column(dtype="bfloat16", shape=(4,), align="target"),
  "keep": stores.Column(dtype="bool"),
  "margin": stores.Column(dtype="int16", per="document"),
  "score": stores.Column(dtype="bfloat16", per="document"),
}
FILLS = {"quality": 255, "logprob": -1.5, "margin": -7}
NAMED = tuple((n, FILLS[n]) if n in FILLS else n for n in COLUMNS)


def value(name, document, token=None):
  """Returns the value of a token or document: never 0 or a fill value."""
  column = COLUMNS[name]
  number = 1 + document + 17 * (0 if token is None else token + 1)
  flat = (number + np.arange(column.width)) % 97 + 1
  if column.dtype == "bool":
    flat = flat * 0 + 1
  return flat.reshape(column.shape).astype(column.numpy_dtype)


def values(name, lengths=LENGTHS):
  """Returns the values of all documents."""
  column = COLUMNS[name]
  if column.per == "document":
    return [value(name, document) for document in range(len(lengths))]
  return [
    np.asarray([value(name, i, k) for k in range(n)], column.numpy_dtype)
    if n
    else np.zeros((0, *column.shape), column.numpy_dtype)
    for i, n in enumerate(lengths)
  ]


def make_store(path, names=tuple(COLUMNS), **options):
  rng = np.random.default_rng(3)
  return testing_stores.make_store(
    path,
    [rng.integers(3, 250, n) for n in LENGTHS],
    bos_id=2,
    chunk=16,
    chunks_per_shard=4,
    columns={name: COLUMNS[name] for name in names} or None,
    column_values={name: values(name) for name in names},
    **options,
  )


@pytest.fixture(scope="module")
def root(tmp_path_factory):
  root = tmp_path_factory.mktemp("columns")
  make_store(root / "chats")
  make_store(root / "text", compression="zstd")
  make_store(root / "plain", ())
  make_store(root / "part", ("quality", "margin"))
  return root


def config(root, rows, names=("chats",), **changes):
  stores = {name: root / name for name in names}
  return small_configs.of_rows(stores, rows, **{"columns": NAMED, **changes})


def in_lengths(root, **rows):
  data = config(root, [rows], ("chats", "text"))
  return small_configs.in_buckets(data, **rows)


def test_columns_of_stores_that_are_read_as_one(root):
  paths = [str(root / "chats"), str(root / "text")]
  data = config(root, [ROWS["ffd"]])
  one = chomp_data.build(data)
  data["sources"]["chats"]["store"] = paths
  both = chomp_data.build(data)
  assert both.num_steps > one.num_steps
  seen = set()
  for step in range(both.num_steps):
    batch, plan = both.batch(step), both.plan(step)
    documents = plan.row_documents(batch["margin"].shape[1])
    seen |= set(documents.reshape(-1).tolist())
    for row, slot in np.argwhere(documents >= 0):
      document = int(documents[row, slot]) % len(LENGTHS)
      assert batch["margin"][row, slot] == value("margin", document)
    for i in range(len(plan)):
      first = int(plan.start[i]), int(plan.document[i]) % len(LENGTHS)
      if plan.stored()[0][i]:
        got = batch["quality"][plan.row[i], plan.column[i]]
        assert got == value("quality", first[1], first[0])
  assert max(seen) >= len(LENGTHS)


def test_a_store_without_a_column_is_an_error_unless_a_fill_is_declared(root):
  names = ("chats", "plain")
  data = config(root, [ROWS["ffd"]] * 2, names, columns=("quality",))
  with pytest.raises(chomp_data.ConfigError) as error:
    chomp_data.build(data)
  assert "'quality', which 'plain' lacks" in str(error.value)
  assert "('quality', 0)" in str(error.value)
  with_fills = tuple((name, FILLS.get(name, 0)) for name in COLUMNS)
  pipe = chomp_data.build({**data, "columns": with_fills})
  plain = pipe.source_names.index("plain")
  for step in range(6):
    batch = pipe.batch(step)
    rows = batch["source_id"] == plain
    for name in COLUMNS:
      assert (batch[name][rows] == FILLS.get(name, 0)).all()
      assert (batch[name][~rows] != FILLS.get(name, 0)).any() or rows.all()
  data = config(root, [ROWS["ffd"]], ("part",), columns=("quality",))
  data["sources"]["part"]["store"] = [str(root / "part"), str(root / "plain")]
  with pytest.raises(chomp_data.ConfigError, match="'part' lacks"):
    chomp_data.build(data)
  pipe = chomp_data.build({**data, "columns": (("quality", 3),)})
  batch = pipe.batch(pipe.num_steps - 1)
  assert (batch["quality"] == 3).any()


@pytest.mark.parametrize(
  ("columns", "message"),
  [
    (("qualty",), "`quality`"),
    (("tokens",), "got 'tokens'"),
    (("quality", "quality"), "distinct names"),
    ((("quality", float("nan")),), "finite fill value"),
    ((("quality", 256),), "that uint8 holds, got 256"),
    ((("quality", 0.5),), "that uint8 holds, got 0.5"),
    ("quality", "a list of"),
    (((1, 2),), "a list of"),
  ],
)
def test_wrong_columns_are_refused(root, columns, message):
  data = config(root, [ROWS["ffd"]], columns=columns)
  with pytest.raises(chomp_data.ConfigError, match=r"data\.columns") as e:
    chomp_data.build(data)
  assert message in str(e.value)


def test_columns_of_one_name_that_differ_are_refused(root, tmp_path):
  testing_stores.make_store(
    tmp_path / "other",
    [[3] * 40],
    columns={"quality": stores.Column(dtype="float32")},
    column_values={"quality": [[0.5] * 40]},
  )
  data = config(root, [ROWS["ffd"]] * 2, ("chats", "text"))
  data["columns"] = ("quality",)
  data["sources"]["text"]["store"] = str(tmp_path / "other")
  with pytest.raises(chomp_data.ConfigError, match="alike in all sources"):
    chomp_data.build(data)


def test_columns_are_in_a_fingerprint_where_they_are_named(root):
  data = config(root, [ROWS["ffd"]], columns=())
  unset = chomp_data.build(data).fingerprint
  assert "columns" not in unset
  named = chomp_data.build({**data, "columns": (("margin", 2), "keep")})
  assert named.fingerprint == {**unset, "columns": {"margin": 2, "keep": 0}}


@pytest.mark.parametrize("name", formats.FORMATS)
def test_formats_keep_columns(root, name):
  data = config(root, [ROWS["ffd"]])
  canonical = chomp_data.build(data).batch(1)
  plain = chomp_data.build({**data, "columns": (), "batch_format": name})
  batch = chomp_data.build({**data, "batch_format": name}).batch(1)
  assert set(batch) == {*plain.batch(1), *COLUMNS}
  for column in COLUMNS:
    np.testing.assert_array_equal(batch[column], canonical[column])


def test_a_layout_moves_columns_with_their_tokens(root):
  data = config(root, [ROWS["ffd"]], num_targets=1)
  canonical = chomp_data.build(data).batch(1)
  layout = {"kind": "dual_chunk_swap", "shards": 4}
  pipe = chomp_data.build({**data, "sequence_layout": layout})
  order = pipe.run_options.sequence_layout.order(SEQ_LEN)
  batch = pipe.batch(1)
  for name, column in COLUMNS.items():
    wanted = canonical[name]
    if column.per == "token":
      wanted = wanted[:, order]
    np.testing.assert_array_equal(batch[name], wanted, name)


def test_columns_on_devices_are_those_of_the_host(root):
  data = config(root, [ROWS["ffd"]], device_fields="always")
  sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
  with chomp_data.make_iterator(data, sharding) as iterator:
    for step in range(4):
      wanted, batch = chomp_data.build(data).batch(step), next(iterator)
      for name, column in COLUMNS.items():
        assert batch[name].dtype == jnp.dtype(column.numpy_dtype)
        np.testing.assert_array_equal(np.asarray(batch[name]), wanted[name])
      np.testing.assert_array_equal(
        np.asarray(batch["tokens"]), wanted["tokens"]
      )


@pytest.mark.parametrize("rows", ["sequential", "ffd", "windows"])
def test_a_process_reads_the_values_of_its_columns_alone(root, rows):
  data = config(root, [ROWS[rows]], num_targets=1)
  pipe = chomp_data.build(data)
  for low, high in ((0, 8), (8, 16), (3, 11), (15, 16)):
    ranges = {str(SEQ_LEN): (low, min(high + 1, SEQ_LEN + 1))}
    source = pipeline.batch_source(pipe, plan_lib.LocalRows(columns=ranges))
    for step in range(min(pipe.num_steps, 6)):
      whole, part = pipe.batch(step), source[step]
      for name, column in COLUMNS.items():
        if column.per == "document":
          np.testing.assert_array_equal(part[name], whole[name], name)
          continue
        np.testing.assert_array_equal(
          part[name][:, low:high], whole[name][:, low:high], name
        )
        fill = np.asarray(FILLS.get(name, 0), column.numpy_dtype)
        assert (part[name][:, :low] == fill).all()
        assert (part[name][:, high + 1 :] == fill).all()
