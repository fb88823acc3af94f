# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Mixes against `datasets.interleave_datasets`, where both mean the same.

Both take rows of each source in its own order and stop by the same strategies.
Theirs draws sources at random, ours takes the least consumed; given our draws,
theirs must give our rows and end where ours ends.
"""

import collections
import itertools

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data import pipeline
from chomp_data.testing import stores as testing_stores
from tests import laws

# Long, and of the reference trainer or other libraries: see `make test-slow`.
pytestmark = pytest.mark.slow

NAMES = "abc"
STRATEGIES = st.sampled_from(
  ["first_exhausted", "all_exhausted", "all_exhausted_without_replacement"]
)
LENGTHS = st.fixed_dictionaries(
  {name: st.integers(3, 12) for name in "ab"},
  optional={"c": st.integers(3, 12)},
)
WEIGHTS = st.sampled_from([0.1, 0.2, 0.3, 0.5, 0.9])


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
  """Stores of rows of two tokens, (source, number of the row), by length."""
  root, made = tmp_path_factory.mktemp("stores"), {}

  def get(name, length):
    if (name, length) not in made:
      rows = [[NAMES.index(name), 3 + i] for i in range(length)]
      made[name, length] = str(root / f"{name}{length}")
      testing_stores.make_store(made[name, length], rows)
    return made[name, length]

  return get


def theirs(lengths, strategy, **options):
  """Returns (source, row) in the order of `interleave_datasets`."""
  # Not above: its import takes as long as all these tests.
  datasets = pytest.importorskip("datasets", exc_type=ImportError)
  sources = [
    datasets.Dataset.from_dict({"source": [name] * n, "row": list(range(n))})
    for name, n in lengths.items()
  ]
  mixed = datasets.interleave_datasets(
    sources, stopping_strategy=strategy, **options
  )
  return list(zip(mixed["source"], mixed["row"], strict=True))


def ours(stores, lengths, strategy, weights=None):
  """Returns (source, row) in our order, as long as is said in advance."""
  pipe = pipeline.build(
    {
      "seq_len": 2,
      "global_batch_size": 1,
      "sources": {
        name: {"store": stores(name, n), "rows": {"kind": "sequential"}}
        for name, n in lengths.items()
      },
      "mix": {"kind": "weighted", "exhaustion": strategy, "weights": weights},
      "epochs": 1,
    }
  )
  batches = (pipe.canonical(step) for step in range(pipe.num_steps))
  tokens = np.concatenate([batch["tokens"] for batch in batches])
  return [(NAMES[source], row - 3) for source, row in tokens.tolist()]


class Drawn:
  """A random generator that draws what it is told, and then the first."""

  def __init__(self, draws):
    self.draws = itertools.chain(draws, itertools.repeat(0))

  def choice(self, count, size, p):
    return np.fromiter(itertools.islice(self.draws, size), np.int64)


@laws.examples(40)
@hypothesis.given(st.data(), LENGTHS, STRATEGIES)
def test_from_our_draws_theirs_makes_our_rows(stores, data, lengths, strategy):
  weights = {name: data.draw(WEIGHTS) for name in lengths}
  own = ours(stores, lengths, strategy, weights)
  names = list(lengths)
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(
      np.random,
      "default_rng",
      lambda seed: Drawn([names.index(name) for name, _ in own]),
    )
    whole = sum(weights.values())
    shares = [weights[name] / whole for name in names]
    assert theirs(lengths, strategy, probabilities=shares) == own


@laws.examples(40)
@hypothesis.given(LENGTHS, STRATEGIES)
def test_in_turn_both_end_within_a_turn(stores, lengths, strategy):
  """Without probabilities theirs ends with a whole turn, as it begins one."""
  one, other = theirs(lengths, strategy), ours(stores, lengths, strategy)
  missing = collections.Counter(one) - collections.Counter(other)
  assert not collections.Counter(other) - collections.Counter(one)
  if strategy == "all_exhausted_without_replacement":
    assert not missing
  else:
    assert missing.total() < len(lengths)


@pytest.mark.parametrize(
  ("strategy", "length"),
  [
    # The 80th row of a is after 79 / 9 rows of b, the 100th of b after 891.
    ("first_exhausted", 89),
    ("all_exhausted", 991 + 1),
    ("all_exhausted_without_replacement", 180),
  ],
)
def test_our_length_is_theirs_on_average(stores, strategy, length):
  lengths, weights = {"a": 80, "b": 100}, {"a": 0.9, "b": 0.1}
  assert len(ours(stores, lengths, strategy, weights)) == length
  drawn = [
    len(theirs(lengths, strategy, probabilities=[0.9, 0.1], seed=seed))
    for seed in range(20)
  ]
  # A length deviates by 3 of 89, or 95 of 1,000.
  assert np.mean(drawn) == pytest.approx(length, rel=0.07)
