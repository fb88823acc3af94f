# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Compiled loops give the bytes of NumPy."""

import dataclasses
import os
import subprocess
import sys
import textwrap

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

import chomp_data
from chomp_data import stores
from chomp_data.kernels import compiled
from chomp_data.pack import packing
from chomp_data.rows import row_layout
from chomp_data.testing import stores as testing_stores
from tests import laws
from tests.rows import row_layout_test

pytest.importorskip("numba")


def both(call):
  """What NumPy and the compiled loop return."""
  with compiled.allowed(False):
    slow = call()
  with compiled.allowed(True) as are:
    assert are
    return slow, call()


@laws.examples(100)
@hypothesis.given(st.data())
def test_first_fit_decreasing(data):
  draw = data.draw
  capacity = draw(st.integers(1, 60))
  sizes = st.integers(1, capacity)
  length = np.asarray(draw(st.lists(sizes, max_size=80)), np.int64)
  length.flags.writeable = False
  most_items = draw(st.none() | st.integers(1, 5))
  most_bins = draw(st.none() | st.integers(1, 20))
  slow, fast = both(
    lambda: packing.first_fit_decreasing(
      length, capacity, most_items, most_bins
    )
  )
  np.testing.assert_array_equal(slow[0], fast[0])
  assert slow[1] == fast[1]


def test_reads_are_counted_alike(tmp_path):
  documents = [np.arange(size) % 250 for size in (300, 200, 1, 45)]
  store = testing_stores.make_store(tmp_path, documents, chunk=64)
  source = chomp_data.SequentialSource(
    store, chomp_data.SequentialOptions(), seq_len=50
  )
  spans = source.plan(np.arange(len(source)))
  source.read(spans)  # Chunks are checked.

  def counts():
    before = store.counters.as_dict()
    fields = source.read(spans)
    after = store.counters.as_dict()
    told = {name: after[name] - before[name] for name in after}
    return told, {name: own.tolist() for name, own in fields.items()}

  slow, fast = both(counts)
  assert slow == fast
  assert slow[0]["chunk_requests"] > slow[0]["spans"] > 0


@laws.examples(100)
@hypothesis.given(case=row_layout_test.rows_of_spans(), data=st.data())
def test_rows_that_are_placed(case, data):
  draw, one = data.draw, st.booleans()
  seq_len, rows = case
  spans = row_layout_test.plan(rows)
  size = len(spans)
  rng = np.random.default_rng(draw(st.integers(0, 2**32)))
  values = {
    n: rng.integers(0, 6, size).astype(np.int8)
    for n in ("added_before", "added_after")
    if draw(one)
  }
  if len(values) == 2:
    values["added_after"] *= (spans.length > 1) | (values["added_before"] == 0)
  if draw(one):
    values["masked"] = rng.random(size) < 0.5
  spans = dataclasses.replace(spans, **values)
  layout = row_layout.RowLayout(
    seq_len,
    filler_id=9,
    trailing_filler_in_segment=draw(one),
    token_before_document=draw(st.sampled_from([None, 5])),
    positions=draw(st.sampled_from(["column", "segment"])),
    bos_id=draw(st.sampled_from([None, 6])),
    eos_id=draw(st.sampled_from([None, 7])),
    sentinel_ids=(10, 11, 12),
  )
  live = spans.live()
  _, lengths, positions = row_layout.copies(live, seq_len)

  def fields():
    values = row_layout.placed(spans, layout)
    # What tokens of the store are copied over is not written.
    tokens = values["tokens"].reshape(-1)
    for length, position in zip(lengths, positions, strict=True):
      tokens[position : position + length] = 3
    return values

  slow, fast = both(fields)
  for name, value in slow.items():
    assert fast[name].dtype == value.dtype
    np.testing.assert_array_equal(fast[name], value)


@pytest.mark.parametrize("vocab_size", [200, 50_000, 100_000])
def test_copies_of_tokens(tmp_path, vocab_size):
  rng = np.random.default_rng(0)
  tokens = rng.integers(3, vocab_size, 1_000)
  testing_stores.make_store(
    tmp_path / "store",
    [tokens],
    vocab_size=vocab_size,
    chunk=16,
    chunks_per_shard=3,
  )
  stores_ = [stores.open_store(tmp_path / "store") for _ in range(2)]
  for count, longest in ((1, 1_000), (7, 40), (300, 3), (200, 200), (0, 1)):
    for _ in range(5):
      lengths = rng.integers(0, longest + 1, count)
      starts = rng.integers(0, 1_001 - lengths, count)
      begin = np.cumsum(lengths) - lengths
      wanted = np.concatenate(
        [
          tokens[:0],
          *(tokens[a : a + n] for a, n in zip(starts, lengths, strict=True)),
        ]
      )
      for store, yes in zip(stores_, (False, True), strict=True):
        out = np.full(int(lengths.sum()), -1, np.int32)
        with compiled.allowed(yes):
          store.copy_tokens(starts, lengths, out, begin)
        np.testing.assert_array_equal(out, wanted)
  slow, fast = (store.counters for store in stores_)
  assert slow == fast


def test_copies_from_shards_that_are_closed_meanwhile(tmp_path):
  testing_stores.make_store(
    tmp_path / "store", [range(3, 99)], chunk=4, chunks_per_shard=2
  )
  store = stores.open_store(tmp_path / "store")
  store.opened.tokens.max_open_shards = 2
  rng = np.random.default_rng(0)
  with compiled.allowed(True):
    for _ in range(100):
      starts, lengths = rng.integers(0, 90, 2), rng.integers(0, 7, 2)
      out = np.zeros(14, np.int32)
      store.copy_tokens(starts, lengths, out, np.asarray([0, 7]))
      for start, length, found in zip(
        starts, lengths, out.reshape(2, 7), strict=True
      ):
        wanted = np.arange(3 + start, 3 + start + length)
        np.testing.assert_array_equal(found[:length], wanted)
        assert not found[length:].any()


def test_a_copy_out_of_bounds_is_the_same_error(tmp_path):
  testing_stores.make_store(tmp_path / "store", [range(3, 99)], chunk=16)
  store = stores.open_store(tmp_path / "store")
  out, one = np.zeros(8, np.int32), np.asarray([4])
  with compiled.allowed(True):
    for start, position in ((-1, 0), (93, 0), (2**63 - 2, 0), (0, 5), (0, -1)):
      with pytest.raises(IndexError, match="span 0 must be within"):
        store.copy_tokens(np.asarray([start]), one, out, np.asarray([position]))


def run(program, **environment):
  """What a fresh process prints."""
  found = subprocess.run(
    [sys.executable, "-c", textwrap.dedent(program)],
    capture_output=True,
    text=True,
    env={**os.environ, "CHOMP_DATA_KERNELS": "", **environment},
  )
  assert found.returncode == 0, found.stderr
  return found.stdout


WORK = """
  import sys
  import numpy as np
  from chomp_data.pack import packing
  from chomp_data.kernels import compiled

  def pack(size):
    length = np.arange(size) % 100 + 1
    return packing.first_fit_decreasing(length, 100)[1]

  assert pack(100) == 51
"""


def test_nothing_is_loaded_before_there_is_work():
  program = "\n  print('numba' in sys.modules, compiled.find('first_fit', 0))"
  assert run(WORK + program) == "False None\n"


@pytest.mark.slow
def test_much_work_loads_them_in_a_thread():
  program = """
  import threading
  for _ in range(10):
    pack(100_000)
  (thread,) = (t for t in threading.enumerate() if t.name == "kernels")
  thread.join()
  print(compiled.find("first_fit", 0) is not None)
  """
  assert run(WORK + program) == "True\n"


def test_a_variable_says_never_or_now():
  program = "\n  print('numba' in sys.modules, compiled.wait())"
  assert run(WORK + program, CHOMP_DATA_KERNELS="off") == "False False\n"
  assert run(WORK + program, CHOMP_DATA_KERNELS="now") == "True True\n"


@pytest.mark.parametrize("name", ["numba", "llvmlite"])
def test_without_numba_numpy_does_it(name):
  missing = f"\n  import sys\n  sys.modules['{name}'] = None"
  program = "\n  print(compiled.wait(), pack(100))"
  assert run(missing + WORK + program) == "False 51\n"


def test_a_process_that_ends_while_loops_are_loaded_ends_cleanly():
  program = "\n  compiled.find('first_fit', 1.0)\n  print('end')"
  assert run(WORK + program) == "end\n"


def test_an_array_that_a_loop_cannot_take_is_an_error():
  with compiled.allowed(True):
    loop = compiled.find("first_fit", 0)
    assert loop is not None
    one, four = np.ones(1, np.int64), np.zeros(4, np.int64)
    assert loop(0 * one, one, 9, 1, 1, four, one, one) == 1
    read_only = np.broadcast_to(np.int64(1), 1)
    for array in (one.astype(np.int32), np.zeros(8, np.int64)[::2], read_only):
      with pytest.raises(TypeError, match="No matching definition"):
        loop(0 * one, one, 9, 1, 1, four, one, array)
