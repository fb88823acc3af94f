# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Benchmarks run, and their tables say what must hold on any machine."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
pytestmark = pytest.mark.slow

# The store of lengths against a real one, in a process of its own: absl's
# flags are global, and benchmarks define the same names.
AGAINST_A_STORE = """
import json, pathlib, sys
import numpy as np
from benchmarks import corpora
import chomp_data
real = corpora.make_corpus(pathlib.Path(sys.argv[1], "real"), 3_000)
fake = corpora.LengthsStore(pathlib.Path(sys.argv[1], "fake"), 3_000)
some = np.asarray([2_999, 0, 17, 17])
same = [
  *(getattr(fake, name) == getattr(real, name) for name in (
    "num_documents", "num_tokens"
  )),
  *(getattr(fake.opened, name) == getattr(real.opened, name) for name in (
    "chunk_tokens", "token_dtype"
  )),
  fake.opened.tokenizer.vocab_size == real.opened.tokenizer.vocab_size,
  all(np.array_equal(a, b)
      for a, b in zip(fake.bounds(some), real.bounds(some), strict=True)),
]
for batch in (1_000, 4_000):
  for a, b in zip(
    fake.iter_lengths(batch), real.iter_lengths(batch), strict=True
  ):
    same.append(a[0] == b[0] and np.array_equal(a[1], b[1]))
for options in (
  chomp_data.BinOptions(packing_buffer_docs=500),
  chomp_data.BinOptions(packing_algorithm="exact"),
):
  plans = [
    chomp_data.BinSource(store, options, seq_len=2_048).plan(np.arange(300))
    for store in (fake, real)
  ]
  same += [
    np.array_equal(getattr(plans[0], name), getattr(plans[1], name))
    for name in ("row", "document", "offset", "length", "column")
  ]
print(json.dumps([bool(value) for value in same]))
"""


def run(name, directory, *arguments):
  """Runs a benchmark; returns its tables."""
  output = directory / f"{name}.md"
  found = subprocess.run(
    [
      sys.executable,
      str(ROOT / "benchmarks" / f"{name}.py"),
      "--small",
      f"--output={output}",
      f"--directory={directory}",
      *arguments,
    ],
    cwd=ROOT,
    env={**os.environ, "JAX_PLATFORMS": "cpu"},
    capture_output=True,
    text=True,
  )
  assert found.returncode == 0, found.stdout + found.stderr
  return tables_of(output.read_text())


def tables_of(text):
  """Returns Markdown tables in their order, each a list of dicts."""
  tables, head = [], None
  for line in text.splitlines():
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    if not line.startswith("|"):
      head = None
    elif head is None:
      head = cells
      tables.append([])
    elif set(line) - set("| -"):
      tables[-1].append(dict(zip(head, cells, strict=True)))
  return tables


def number(text):
  return float(text.split(" ")[0].replace(",", "").rstrip("%"))


def test_many_sources_hold_no_descriptor_and_a_killed_packing_goes_on(tmp_path):
  mixes, chains, packed, memory, virtual = run("scale", tmp_path)
  assert [line["sources"] for line in mixes] == ["2", "5"]
  assert [line["descriptors"] for line in mixes] == ["0", "0"]
  assert [line["stages"] for line in chains] == ["1", "50", "1", "50", "2"]
  assert [line["the same bytes"] for line in packed] == [*["yes"] * 3, ""]
  assert [line["sources"] for line in memory] == ["3"] * 3
  assert [line["rows"] for line in virtual] == ["sequential", "exact"]


def test_memory_is_flat_over_ten_thousand_batches(tmp_path):
  kinds = ("bin ffd, block", "mix of three", "iterator")
  (lines,) = run("flat", tmp_path, *(f"--kind={name}" for name in kinds))
  assert len(lines) == 2 * len(kinds)
  for line in lines:
    # Tables of windows fill until they are 4 MiB.
    assert number(line["second half"]) <= 1, line


def test_fields_made_on_devices_travel_in_half_of_the_bytes(tmp_path):
  (lines,) = run("device_fields", tmp_path)
  assert len(lines) == 4
  for line in lines:
    assert line["bytes a token, arrays"] == "13.00"
    # Tokens, segments and positions of 16 bits, the mask one bit a position.
    assert line["bytes a token, device"] == "6.13"


@pytest.fixture(scope="module")
def read_cost(tmp_path_factory):
  directory = tmp_path_factory.mktemp("read_cost")
  return run("read_cost", directory)


def test_block_shuffle_reads_few_ranges_and_full_reads_many(read_cost):
  arms = read_cost[0]
  assert len(arms) == 12
  ranges = {line["shuffle"]: number(line["ranges"]) for line in arms[:4]}
  # 4 groups of 2,048 rows; 16 blocks in each of them.
  assert ranges["none"] == ranges["era"] == 4
  assert 4 < ranges["block"] <= 64
  assert ranges["full"] > 20 * ranges["block"]


def test_read_cost_takes_the_setting_of_the_seeds_benchmark(tmp_path):
  (arms,) = run(
    "read_cost", tmp_path,
    "--n=1024", "--strategies=full,era", "--era-length=256",
    "--batch-size=64", "--prefetch-batches=4",
  )  # fmt: skip
  assert [line["shuffle"] for line in arms] == ["full", "era"] * 3
  # 4 groups of 4 batches of 64: an era of 256 rows is a group, one range.
  eras = [line for line in arms if line["shuffle"] == "era"]
  assert [line["ranges"] for line in eras] == ["4"] * 3
  _, groups, _ = run(
    "read_cost", tmp_path,
    "--n=1024", "--strategies=block", "--window-blocks=2", "--batch-size=64",
    "--prefetch-batches=2",
  )  # fmt: skip
  assert {line["group"] for line in groups} == {"1", "2"}
  assert {line["store"] for line in groups} == {"mapped", "zstd, 4 chunks"}


def test_a_misaligned_resume_fetches_no_chunk_twice(read_cost):
  lines = read_cost[1]
  assert {line["from batch"] for line in lines} == {"0", "3"}
  assert {number(line["over chunks"]) for line in lines} == {1.0}
  ranges = {
    (line["group"], line["from batch"]): number(line["ranges/example"])
    for line in lines
  }
  assert ranges["8", "0"] < 0.02 < ranges["1", "0"]
  # Of the window that it begins in, only what is left is read: scattered rows.
  assert ranges["8", "3"] < 0.1 < ranges["1", "3"]


def test_sequential_epochs_fetch_each_chunk_once(read_cost):
  lines = read_cost[2]
  own = [line for line in lines if line["rows"].startswith("sequential")]
  assert len(own) == 4
  assert {number(line["over chunks"]) for line in own} == {1.0}


def test_packing_tables_hold_what_packing_promises(tmp_path):
  tables = run("packing", tmp_path, "--parts=utilisation,planning,reserved")
  utilisation, planning = tables[0], tables[1]
  assert len(utilisation) == 3 * 2 * 2
  for line in utilisation:
    full = number(line["utilisation"])
    assert 90 < full <= number(line["lower bound"])
    if line["algorithm"] == "exact":
      assert full == number(line["lower bound"])
    else:
      assert number(line["cut"]) == 0
  assert [line["rows"] for line in planning] == [
    "sequential, full",
    "sequential, block",
    "bin ffd, block",
    "bin exact, block",
  ]


def test_packing_reads_starts_and_measures_memory(tmp_path):
  tables = run("packing", tmp_path, "--parts=loading,starts,memory")
  assert [len(table) for table in tables] == [10, 5, 2]
  for line in tables[0]:
    assert 0 < number(line["second, median"]) < 1
    assert number(line["Mtokens/s"]) <= number(line["Mpositions/s"])


def test_balanced_shards_of_packed_rows_are_within_five_percent(tmp_path):
  ratios, times, planning = run("balance", tmp_path)
  assert len(ratios) == 2 * 2
  for line in ratios:
    planned, dealt = line["4 a shard"].split(" > ")
    assert number(planned) > 1.5
    assert number(dealt) <= (1.05 if line["rows"] == "bin ffd" else 1.2)
  assert len(times) == 4
  assert len(planning) == 2


def test_packed_pairs_have_little_padding(tmp_path):
  packing, reading, training = run("pairs", tmp_path)
  none, shared = packing
  assert number(none["padding"]) <= 0.5
  assert number(shared["padding"]) <= 1.5
  packed, padded = (number(line["positions a pair"]) for line in reading)
  assert packed < padded / 2
  assert all(number(line["ms a pair"]) > 0 for line in training)


def test_the_store_of_lengths_plans_as_a_real_store(tmp_path):
  found = subprocess.run(
    [sys.executable, "-c", AGAINST_A_STORE, str(tmp_path)],
    cwd=ROOT,
    capture_output=True,
    text=True,
  )
  assert found.returncode == 0, found.stderr
  assert all(json.loads(found.stdout)), found.stdout


def test_preparing_is_measured_by_input(tmp_path):
  (lines,) = run("preparing", tmp_path, "--tokenizers=byte", "--repeats=1")
  assert [line["input"] for line in lines] == ["JSON lines", "Parquet"]
  for line in lines:
    rates = [number(line[name]) for name in line if "MB/s" in name]
    assert len(rates) == 3
    assert min(rates) > 0
    # Bytes are no work: to prepare them is more than to read them.
    assert number(line["CPU overhead, 1 worker"]) > 0


def test_forecasting_asks_about_every_kind_of_run(tmp_path):
  (table,) = run("forecasting", tmp_path)
  assert all(float(own["accounts"]) < 20 for own in table)
  assert {own["run"].split(",")[0] for own in table} >= {
    "sequential", "bin ffd", "bin exact", "windows", "multi_splice", "buckets"
  }  # fmt: skip


def test_stalls(tmp_path):
  (table,) = run("stalls", tmp_path)
  assert len(table) == 11
  for line in table:
    assert int(line["batches"].replace(",", "")) > 10
    assert 0 < float(line["median, ms"]) <= float(line["longest, ms"])


def test_a_host_of_a_pod_asks_for_no_more_with_more_hosts(tmp_path):
  (table,) = run("cold_start", tmp_path)
  assert len(table) == 6
  for one, sixteen in zip(table[::2], table[1::2], strict=True):
    assert (one["hosts"], sixteen["hosts"]) == ("1", "16")
    assert one["rows"] == sixteen["rows"]
    # A store: its manifest, offsets, side indexes and a chunk or two.
    assert 4 * 4 <= int(sixteen["requests"]) <= 4 * 20
    assert int(sixteen["requests"]) <= int(one["requests"]) + 8
    assert float(sixteen["first batch, s"]) < 10


def test_tracing_asks_about_every_kind_of_run(tmp_path):
  table, lists = run("tracing", tmp_path)
  assert len(table) == 16
  assert all(number(line["document, s"]) >= 0 for line in table)
  assert len(lists) == 2
  assert all(number(line["exposures"]) > 100 for line in lists)


def test_waits_for_a_bucket_are_measured(tmp_path):
  tables = run("remote", tmp_path)
  assert [len(table) for table in tables] == [6, 6]
  for line in (line for table in tables for line in table):
    assert number(line["median ms"]) <= number(line["longest ms"])


def test_megatron_in_place_is_compared_with_a_plain_copy(tmp_path):
  (table,) = run("megatron", tmp_path)
  assert [line["tokens of a span"] for line in table] == ["2,048", "256"]
  # As fast on a quiet machine, or faster; here others may run.
  for line in table:
    plain = number(line["NumPy slices, M tokens/s"])
    assert number(line["copy_tokens"]) > plain / 4


def test_lanes_fetch_each_chunk_about_once(tmp_path):
  (table,) = run("lanes", tmp_path)
  assert len(table) == 9
  for line in table:
    assert 1 <= number(line["chunks"]) < (16 if line["lanes"] == "none" else 2)
