"""Compiled loops give the bytes of NumPy."""

import os
import subprocess
import sys
import textwrap

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data.index import permutation
from chomp_data.index.pack import packing
from chomp_data.kernels import compiled
from tests import laws

pytest.importorskip("numba")


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
    WORK + "\n  print('numba' in sys.modules, compiled.find('feistel', 0))"
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
  told = "\n  print('numba' in sys.modules, compiled.wait())"
  assert run(WORK + told, CHOMP_DATA_KERNELS="off") == "False False\n"
  assert run(WORK + told, CHOMP_DATA_KERNELS="now") == "True True\n"


def test_without_numba_numpy_does_it():
  missing = "\n  import sys\n  sys.modules['numba'] = None"
  told = "\n  print(compiled.wait(), permutation.permute(5, 1_000, 1))"
  assert run(missing + WORK + told).startswith("False ")
