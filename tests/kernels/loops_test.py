# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Compiled loops give the bytes of NumPy."""

import dataclasses
import fractions
import os
import subprocess
import sys
import textwrap
import threading
import types

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data import sources
from chomp_data import stores
from chomp_data.index import hashing
from chomp_data.index import permutation
from chomp_data.index.mix import least_consumed
from chomp_data.index.mix import unit_sums
from chomp_data.index.pack import packing
from chomp_data.kernels import chunks
from chomp_data.kernels import compiled
from chomp_data.kernels import signatures
from chomp_data.ops import row_layout
from chomp_data.ops import spans as spans_lib
from chomp_data.plans import order_sums
from chomp_data.testing import stores as testing_stores
from tests import laws
from tests.ops import row_layout_test

pytest.importorskip("numba")
machine_code = pytest.importorskip("chomp_data.kernels.machine_code")


# Memory that is told by its address.
KEPT = []


def both(call):
  """What NumPy and the compiled loop return."""
  with compiled.allowed(False):
    slow = call()
  with compiled.allowed(True) as are:
    assert are
    return slow, call()


@laws.examples(60)
@hypothesis.given(st.data())
def test_permutations(data):
  draw = data.draw
  most = draw(st.sampled_from([40, 300, 10**6, 2**33, 2**47]))
  count = draw(st.sampled_from([1, 3, 70]))
  rng = np.random.default_rng(draw(st.integers(0, 2**32)))
  one = st.booleans()
  size = rng.integers(1, most, 1 if draw(one) else count)
  key = rng.integers(0, 2**64, 1 if draw(one) else count, dtype=np.uint64)
  if len(key) > 1 and draw(one):
    key[1:] = key[0]
  index = rng.integers(0, size, count)
  if draw(one):
    size = np.broadcast_to(size, count)  # Which cannot be written to.
  for function in (permutation.permute, permutation.inverse):
    slow, fast = both(lambda f=function: f(index, size, key))
    np.testing.assert_array_equal(slow, fast)


def test_all_of_a_permutation_in_several_parts():
  index = np.arange(100_000)
  slow, fast = both(lambda: permutation.permute(index, len(index), 2**63 + 1))
  np.testing.assert_array_equal(slow, fast)
  with compiled.allowed(True):
    back = permutation.inverse(fast, len(index), 2**63 + 1)
  np.testing.assert_array_equal(back, index)


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


def in_chunks(size, rng):
  """Tokens, and where they lie: chunks in any order."""
  dtype = rng.choice([np.uint8, np.uint16, np.uint32])
  chunk = int(rng.integers(1, 9))
  lies = rng.permutation(-(-size // chunk))
  memory = rng.integers(0, 256, (len(lies), chunk)).astype(dtype)
  address = memory.ctypes.data + lies * memory[0].nbytes
  own = chunks.Chunks(address, memory.itemsize, chunk, size, threading.RLock())
  KEPT.append(memory)
  return own, memory[lies].reshape(-1)[:size]


def test_what_may_not_be_read_or_is_out_of_bounds_is_not_copied():
  own, values = in_chunks(40, np.random.default_rng(0))
  spans = row_layout_test.plan([[(0, 6, 1)], [(2, 3, 1)]])

  def told(offset):
    planned = dataclasses.replace(spans, offset=np.asarray(offset))
    memory = row_layout.InMemory({3: (own, True)})
    tokens = np.full((2, 6), -1, np.int32)
    with compiled.allowed(True):
      return row_layout.copy_rows(planned, lambda: memory, tokens), tokens

  found, tokens = told([4, 37])
  assert found is not None
  assert tokens.tolist() == [
    values[4:10].tolist(),
    [-1, -1, *values[37:].tolist(), -1],
  ]
  for offset in ([4, 38], [-1, 4], [2**62, 4]):
    assert told(offset)[0] is None
  own.address[4 // own.chunk] = 0
  assert told([4, 37])[0] is None


@pytest.mark.parametrize(("joined", "copies"), [(True, 1), (False, 3)])
def test_copies_that_follow_each_other_are_one_on_request(joined, copies):
  own, values = in_chunks(40, np.random.default_rng(0))
  rows = row_layout_test.plan([[(0, 3, 1), (3, 3, 2)], [(0, 6, 1)]])
  spans = dataclasses.replace(rows, offset=np.asarray([4, 7, 10]))
  memory = row_layout.InMemory({0: (own, joined)})
  tokens = np.zeros((2, 6), np.int32)
  with compiled.allowed(True):
    (told,) = row_layout.copy_rows(spans, lambda: memory, tokens) or []
  found = row_layout.copies(spans, 6, None, joined)
  assert told[0] == len(found[0]) == copies
  assert tokens.reshape(-1).tolist() == values[4:16].tolist()


def test_reads_are_counted_alike(tmp_path):
  documents = [np.arange(size) % 250 for size in (300, 200, 1, 45)]
  store = testing_stores.make_store(tmp_path, documents, chunk=64)
  source = sources.SequentialSource(
    store, sources.SequentialOptions(), seq_len=50
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
def test_rows_that_are_placed_and_what_is_copied_to_them(case, data):
  draw, one = data.draw, st.booleans()
  seq_len, rows = case
  spans = row_layout_test.plan(rows)
  size = len(spans)
  rng = np.random.default_rng(draw(st.integers(0, 2**32)))
  flags = {
    n: rng.random(size) < 0.5 for n in ("gone", "bos", "eos") if draw(one)
  }
  if "eos" in flags and "bos" in flags:
    flags["eos"] &= (spans.length > 1) | ~flags["bos"]
  # Of two sources, parts of which follow each other in their stores.
  source = rng.integers(0, 2, size).astype(np.int32)
  stored = np.cumsum(spans.length) - spans.length
  offset = 10 + stored + np.cumsum(rng.integers(0, 4, size) == 0)
  spans = dataclasses.replace(spans, source=source, offset=offset, **flags)
  layout = row_layout.RowLayout(
    seq_len,
    filler_id=9,
    trailing_filler_in_segment=draw(one),
    token_before_document=draw(st.sampled_from([None, 5])),
    positions=draw(st.sampled_from(["column", "segment"])),
    bos_id=draw(st.sampled_from([None, 6])),
    eos_id=draw(st.sampled_from([None, 7])),
  )
  if layout.bos_id is None or layout.eos_id is None:
    # Sources that plan what is added have both of them.
    added = {
      n: None for n in ("bos", "eos") if getattr(layout, f"{n}_id") is None
    }
    spans = dataclasses.replace(spans, **added)
  joined, sources = draw(one), draw(st.sampled_from([(None,), (0, 1)]))
  size = int(np.max(spans.offset + spans.length, initial=1))
  arrays = [in_chunks(size, rng) for _ in sources]

  def read():
    fields = row_layout.placed(spans, layout)
    tokens, live = fields["tokens"], spans.live()
    memory = row_layout.InMemory(
      {i: (own, joined) for i, (own, _) in enumerate(arrays)}
    )
    told = row_layout.copy_rows(live, lambda: memory, tokens)
    if told is not None:
      return fields, told
    told = []
    for number, (own, values) in zip(sources, arrays, strict=True):
      found = row_layout.copies(live, seq_len, number, joined)
      parts = 0
      for start, length, to in np.transpose(found).tolist():
        tokens.reshape(-1)[to : to + length] = values[start : start + length]
        if length:
          parts += (start + length - 1) // own.chunk - start // own.chunk + 1
      told.append([len(found[0]), parts])
    return fields, told

  (slow, slow_told), (fast, fast_told) = both(read)
  assert fast_told == slow_told
  for name, value in slow.items():
    assert fast[name].dtype == value.dtype
    np.testing.assert_array_equal(fast[name], value)


@laws.examples(60)
@hypothesis.given(st.data())
def test_sums_of_what_steps_hold(data):
  draw, one = data.draw, st.booleans()
  rng = np.random.default_rng(draw(st.integers(0, 2**32)))
  num_steps, size = draw(st.integers(1, 4)), draw(st.integers(1, 5))
  row = np.sort(rng.integers(0, num_steps * size, draw(st.integers(0, 60))))
  count, sources = len(row), draw(st.integers(1, 3))
  column, length, start = rng.integers(0, 2**40, (3, count))
  spans = spans_lib.Spans(
    num_rows=num_steps * size,
    row=row,
    source=rng.integers(0, sources, count).astype(np.int32),
    document=rng.integers(0, 2**62, count),
    start=start,
    offset=start,
    length=length,
    column=column,
    segment=rng.integers(1, 2**31, count).astype(np.int32),
    **{n: rng.random(count) < 0.5 for n in ("bos", "eos", "gone") if draw(one)},
  )
  names = [order_sums.name_keys(str(i)) for i in range(sources)]
  given_ = (
    spans,
    rng.integers(0, 2**62, num_steps),
    rng.integers(0, 2**40, num_steps * size),
    np.stack(names, 1),
    rng.random(size) < 0.5 if draw(one) else None,
  )
  slow, fast = both(lambda: order_sums.of_spans(*given_))
  assert slow == fast


@laws.examples(60)
@hypothesis.given(st.data())
def test_rows_of_sources_that_are_merged(data):
  draw = data.draw
  rng = np.random.default_rng(draw(st.integers(0, 2**32)))
  most = draw(st.sampled_from([1, 2, 5, 2_048, 2**40]))
  count = draw(st.sampled_from([2, 3, 70]))
  sequences = []
  for _ in range(count):
    units = rng.integers(0, most + 1, rng.integers(1, 60))
    units[0] = most
    cycles = None if rng.random() < 0.5 else 2
    sequences.append(unit_sums.ArrayUnits(units, cycles))
  weights = rng.integers(1, draw(st.sampled_from([2, 8, 10**6])), count)
  merge = least_consumed.Merge(
    [
      least_consumed.Source(own, hashing.fold_key(0, i), own.num_rows)
      for i, own in enumerate(sequences)
    ],
    [fractions.Fraction(int(own), 1_000) for own in weights],
    [0] * count,
    [0] * count,
    rng.integers(0, 3, count).tolist(),
    3,
  )

  def rows():
    here, found = np.zeros(count, np.int64), []
    for wanted in (1, 7, 400):
      *pairs, here = merge.advance(here, wanted)
      found += [*pairs, here]
    return np.concatenate(found)

  slow, fast = both(rows)
  np.testing.assert_array_equal(slow, fast)


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
  store._opened.tokens._max_open = 2
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
  from chomp_data.index import permutation
  from chomp_data.kernels import compiled

  index = np.arange(1_000)
  assert permutation.permute(index, 1_000, 1).sum() == index.sum()
"""


def test_nothing_is_loaded_before_there_is_work():
  told = run(
    WORK + "\n  print('llvmlite' in sys.modules, compiled.find('feistel', 0))"
  )
  assert told == "False None\n"


@pytest.mark.slow
def test_much_work_loads_them_in_a_thread():
  more = """
  for _ in range(40):
    permutation.permute(np.arange(10**6), 10**6, 1)
  compiled._loaded.thread.join()
  print(compiled.find("feistel", 0) is not None)
  """
  assert run(WORK + more) == "True\n"


def test_a_variable_says_never_or_now():
  told = "\n  print('llvmlite' in sys.modules, compiled.wait())"
  assert run(WORK + told, CHOMP_DATA_KERNELS="off") == "False False\n"
  assert run(WORK + told, CHOMP_DATA_KERNELS="now") == "True True\n"


def test_numba_itself_is_never_loaded():
  told = "\n  print(compiled.wait(), 'numba' in sys.modules)"
  assert run(WORK + told) == "True False\n"


def test_without_numba_numpy_does_it():
  missing = "\n  import sys\n  sys.modules['llvmlite'] = None"
  told = "\n  print(compiled.wait(), permutation.permute(5, 1_000, 1))"
  assert run(missing + WORK + told).startswith("False ")


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
  """Nothing is compiled yet; it would be kept in this directory."""
  monkeypatch.setattr(machine_code, "_HERE", tmp_path / "package")
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
  (tmp_path / "package").mkdir()
  for name in machine_code._SOURCES:
    (tmp_path / "package" / name).write_bytes(b"")
  return tmp_path


@pytest.mark.slow
def test_what_is_compiled_is_kept_where_it_can_be(elsewhere, monkeypatch):
  kept = elsewhere / "package" / "__pycache__"
  kept.write_bytes(b"")  # No directory can be made there.
  assert machine_code.loops().keys() == signatures.SIGNATURES.keys()
  (file,) = (elsewhere / "cache" / "chomp_data_kernels").iterdir()
  monkeypatch.setattr(machine_code, "_build", None)  # Not again.
  assert machine_code.loops().keys() == signatures.SIGNATURES.keys()
  # A file that was cut short, or has another bit, is made anew.
  whole = file.read_bytes()
  flipped = bytearray(whole)
  flipped[5_000] ^= 1
  for damaged in (whole[:1_000], whole[:-1_000], b"", flipped):
    file.write_bytes(damaged)
    with pytest.raises(TypeError, match="not callable"):
      machine_code.loops()


def test_numba_that_fails_is_told_and_numpy_does_it(elsewhere, monkeypatch):
  lost = types.SimpleNamespace(path=[], executable=sys.executable)
  monkeypatch.setattr(machine_code, "sys", lost)
  with pytest.raises(RuntimeError, match="No module named"):
    machine_code.loops()
  assert not list(elsewhere.glob("**/*.json"))


def test_an_array_that_a_loop_cannot_take_is_an_error():
  with compiled.allowed(True):
    loop = compiled.find("feistel", 0)
    value = np.zeros(4, np.uint64)
    scratch = np.zeros(8, np.uint64), np.zeros(8, np.uint32)
    for own in (value.astype(np.int64), np.zeros(8, np.uint64)[::2]):
      with pytest.raises(TypeError, match="feistel must get contiguous uint64"):
        loop(value, own, value, False, *scratch, value)
