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


def test_memory_is_flat_over_ten_thousand_batches(tmp_path):
  kinds = ("bin ffd, block", "mix of three", "iterator")
  (lines,) = run("flat", tmp_path, *(f"--kind={name}" for name in kinds))
  assert len(lines) == 2 * len(kinds)
  for line in lines:
    # Tables of windows fill until they are 4 MiB.
    assert number(line["second half"]) <= 1, line


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


def test_stalls(tmp_path):
  (table,) = run("stalls", tmp_path)
  assert len(table) == 11
  for line in table:
    assert int(line["batches"].replace(",", "")) > 10
    assert 0 < float(line["median, ms"]) <= float(line["longest, ms"])


def test_scale_a_killed_packing_goes_on(tmp_path):
  packed, memory, virtual = run("scale", tmp_path)
  assert [line["sources"] for line in memory] == ["3"]
  assert [line["the same bytes"] for line in packed] == [*["yes"] * 3, ""]
  assert [line["rows"] for line in virtual] == ["sequential", "exact"]


def test_read_cost_takes_the_setting_of_the_seeds_benchmark(tmp_path):
  (arms,) = run(
    "read_cost", tmp_path,
    "--n=1024", "--strategies=full,era,block", "--era-length=256",
    "--batch-size=64", "--prefetch-batches=4", "--window-blocks=2",
  )  # fmt: skip
  assert [line["shuffle"] for line in arms] == ["full", "era", "block"] * 3
  assert arms[3]["store"] == "zstd, 4 chunks"
  ranges = {line["shuffle"]: number(line["ranges"]) for line in arms[:3]}
  # 4 groups of 4 batches of 64: an era of 256 rows is a group, one range.
  assert ranges["era"] == 4 <= ranges["block"] <= 20
  assert ranges["full"] > 10 * ranges["block"]


def test_loading_reads_starts_and_measures_memory(tmp_path):
  tables = run("loading", tmp_path)
  assert [len(table) for table in tables] == [8, 5, 2]
  for line in tables[0]:
    assert 0 < number(line["second, median"]) < 1
    assert number(line["Mtokens/s"]) <= number(line["Mpositions/s"])


def test_planning_keeps_little(tmp_path):
  packed, mixes = run("planning", tmp_path)
  assert [line["rows"] for line in packed] == [
    "sequential, full", "sequential, block", "bin ffd, block",
    "bin exact, block",
  ]  # fmt: skip
  assert [line["sources"] for line in mixes] == ["3", "8"] * 2
  held = [number(line["resident B/document"]) for line in packed]
  assert max(held) < 0.5, held


def test_buckets_compare_with_plain_loops(tmp_path):
  (table,) = run("buckets", tmp_path)
  ways = [(line["files"], line["way"]) for line in table]
  assert len(set(ways)) == len(ways) == 6
  assert all(number(line["samples/s"]) > 0 for line in table)


def test_a_host_of_a_pod_asks_for_no_more_with_more_hosts(tmp_path):
  *waits, starts = run("object_stores", tmp_path)
  assert [len(table) for table in waits] == [6, 6]
  assert len(starts) == 6
  for one, sixteen in zip(starts[::2], starts[1::2], strict=True):
    assert (one["hosts"], sixteen["hosts"]) == ("1", "16")
    assert one["rows"] == sixteen["rows"]
    # A store: its manifest, offsets, side indexes and a chunk or two.
    assert 4 * 4 <= int(sixteen["requests"]) <= 4 * 20
    assert int(sixteen["requests"]) <= int(one["requests"]) + 8


def test_answers_are_of_every_kind_of_run(tmp_path):
  visits, lists, forecasts = run("answers", tmp_path)
  assert len(visits) == 17
  assert len(lists) == 3
  assert all(number(line["exposures"]) > 100 for line in lists)
  assert {line["run"].split(",")[0] for line in forecasts} >= {
    "sequential", "bin ffd", "bin exact", "windows", "buckets of lengths"
  }  # fmt: skip
