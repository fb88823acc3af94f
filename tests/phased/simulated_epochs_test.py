# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Simulated epochs: which documents are selected, and how often runs pass.

The reference was written from the definition by somebody who had not seen the
package (`simulated_epochs_reference`). Hashes and token counts are put into
its words here.
"""

import fractions

import numpy as np
import pytest

import chomp_data
from chomp_data import schema
from chomp_data.index import hashing
from chomp_data.loading import state as state_lib
from chomp_data.phased import simulated_epochs
from chomp_data.sources import document_columns
from chomp_data.testing import stores as testing_stores
from tests.phased import simulated_epochs_reference as reference

SEQ_LEN = 32
ROWS = {
  "sequential": {"kind": "sequential", "shuffle_documents": "full"},
  "bos_eos": {"kind": "sequential", "add_bos": True, "add_eos": True},
  "ffd": {"kind": "bin", "packing_buffer_docs": 8, "add_eos": True},
  "exact": {
    "kind": "bin",
    "packing_algorithm": "exact",
    "packing_buffer_docs": 8,
    "shuffle_documents": "block",
  },
  "truncate": {"kind": "bin", "long_documents": "truncate"},
  "fim": {
    "kind": "bin",
    "add_eos": True,
    "long_documents": "drop",
    "fim": {"rate": 0.5, "prefix_id": 251, "suffix_id": 252, "middle_id": 253},
  },
  "drop": {"kind": "bin", "long_documents": "drop", "add_eos": True},
}
COUNTS = {"a": 90, "b": 47, "c": 25}


def lengths_of(name):
  rng = np.random.default_rng(len(name) + COUNTS[name])
  lengths = rng.integers(1, 60, COUNTS[name])
  lengths[::9] *= 3
  lengths[[2, 5, -1]] = 0
  return lengths


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
  root = tmp_path_factory.mktemp("stores")
  for name in COUNTS:
    documents = [
      [3 + (number + i) % 240 for i in range(length)]
      for number, length in enumerate(lengths_of(name).tolist())
    ]
    testing_stores.make_store(
      root / name, documents, ids=[f"{name}{i}" for i in range(COUNTS[name])],
      bos_id=2,
    )  # fmt: skip
  return {name: str(root / name) for name in COUNTS}


def hashes_of(source, count):
  key = hashing.fold_key("simulated_epochs", source)
  return hashing.fold(key, np.arange(count)).tolist()


def consumed(lengths, rows):
  """Returns the tokens that rows consume of documents, as a list."""
  added = rows.get("add_bos", False) + rows.get("add_eos", False)
  out = []
  for length in lengths.tolist():
    tokens = length + added if length else 0
    policy = rows.get("long_documents", "cut")
    longest = SEQ_LEN - 3 * ("fim" in rows)
    if tokens > longest and policy != "cut":
      tokens = longest if policy == "truncate" else 0
    out.append(tokens)
  return out


def config(sources, simulated=None, **fields):
  data = {
    "seq_len": SEQ_LEN,
    "global_batch_size": 4,
    "seed": 3,
    "epochs": None,
    "sources": sources,
    **fields,
  }
  if simulated is not None:
    target, run = simulated
    data["simulated_epochs"] = {"target_tokens": target, "run_tokens": run}
  return data


def source(path, rows="sequential", **fields):
  return {"store": path, "rows": ROWS[rows], **fields}


def documents_read(pipe, name):
  """Returns the documents of an epoch of a source that is alone, a set."""
  rows = pipe.run_plan.ordered[name]
  spans = rows.plan(np.arange(rows.epochs.size(0)))
  return set(spans.document.tolist())


# Which documents are selected.


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("name", COUNTS)
def test_documents_are_those_of_the_reference(paths, name, rows):
  lengths = lengths_of(name)
  tokens = consumed(lengths, ROWS[rows])
  hashes = hashes_of(name, len(lengths))
  rng = np.random.default_rng(len(rows))
  compared = 0
  for _ in range(12):
    target = int(rng.integers(1, 10**12))
    run = int(rng.integers(1, target + 1))
    least = reference.smallest_run_tokens([tokens], [hashes], target, SEQ_LEN)
    data = config({name: source(paths[name], rows)}, (target, run))
    if run < least:
      with pytest.raises(
        schema.ConfigError, match=f"run_tokens` must be at least {least} "
      ):
        chomp_data.build(data)
      continue
    wanted = reference.select_documents(tokens, hashes, target, run)
    pipe = chomp_data.build(data)
    # Documents of which rows consume nothing are in no row.
    assert documents_read(pipe, name) == {
      d for d, selected in enumerate(wanted) if selected and tokens[d]
    }
    threshold = reference.hash_threshold(
      hashes, [s and t > 0 for s, t in zip(wanted, tokens, strict=True)]
    )
    fields = pipe.fingerprint["sources"][name]
    assert fields["simulated_epochs"] == {"threshold": f"{threshold:016x}"}
    compared += 1
  assert compared > 4


@pytest.mark.parametrize("rows", ["sequential", "drop"])
def test_the_smallest_run_is_that_of_the_reference(paths, rows):
  """Also for targets so small that a token of the run is many documents."""
  lengths = [lengths_of(name) for name in COUNTS]
  tokens = [consumed(each, ROWS[rows]) for each in lengths]
  hashes = [hashes_of(n, count) for n, count in COUNTS.items()]
  for target in (7, 100, 2_345, 10**9):
    least = {
      name: reference.smallest_run_tokens(
        [tokens[i]], [hashes[i]], target, SEQ_LEN
      )
      for i, name in enumerate(COUNTS)
    }
    for name, smallest in least.items():
      one = {name: source(paths[name], rows)}
      chomp_data.build(config(one, (target, smallest)))
      if smallest > 1:
        with pytest.raises(schema.ConfigError) as caught:
          chomp_data.build(config(one, (target, smallest - 1)))
        assert f"at least {smallest} " in str(caught.value)
    every = {name: source(paths[name], rows) for name in COUNTS}
    smallest = max(least.values())
    assert smallest == reference.smallest_run_tokens(
      tokens, hashes, target, SEQ_LEN
    )
    chomp_data.build(config(every, (target, smallest), mix={}))
    if smallest > 1:
      with pytest.raises(schema.ConfigError) as caught:
        chomp_data.build(config(every, (target, 1), mix={}))
      # A line for each source that is left with less than a row.
      assert len(caught.value.problems) == sum(n > 1 for n in least.values())


def test_smaller_runs_select_subsets(paths):
  before = set()
  for run in (200, 300, 500, 800, 1_000):
    pipe = chomp_data.build(
      config({"a": source(paths["a"], "exact")}, (1_000, run))
    )
    documents = documents_read(pipe, "a")
    assert before <= documents
    before = documents
  assert before == set(np.flatnonzero(lengths_of("a")).tolist())


def test_all_tokens_are_the_run_without_a_selection(tmp_path):
  rows = "ffd"
  documents = [[5 + i % 90] * (1 + i % 70) for i in range(80)]
  path = testing_stores.make_store(tmp_path / "all", documents).path
  whole = chomp_data.build(config({"a": source(path, rows)}))
  same = chomp_data.build(config({"a": source(path, rows)}, (10**9, 10**9)))
  for step in (0, 1, 7, 100):
    for field, value in whole.batch(step).items():
      np.testing.assert_array_equal(same.batch(step)[field], value, field)


def test_a_seed_and_the_order_of_rows_select_the_same(paths):
  selections = [
    documents_read(
      chomp_data.build(
        config({"b": source(paths["b"], shuffle=order)}, (10, 4), seed=seed)
      ),
      "b",
    )
    for seed, order in ((0, {"kind": "none"}), (9, {"kind": "full"}))
  ]
  assert selections[0] == selections[1]


@pytest.mark.parametrize("most", [7, 1 << 20])
def test_large_stores_have_a_side_index(tmp_path, monkeypatch, most):
  lengths = np.random.default_rng(4).integers(0, 40, 300)
  documents = [[9] * length for length in lengths.tolist()]
  path = testing_stores.make_store(tmp_path / "large", documents).path
  data = config({"a": source(path, "ffd")}, (100, 37))
  small = chomp_data.build(data)
  monkeypatch.setattr(document_columns, "MIN_ON_DISK", 1)
  monkeypatch.setattr(simulated_epochs, "PASS_DOCUMENTS", most)
  for _ in range(2):
    large = chomp_data.build(data)
    assert large.fingerprint == small.fingerprint
    np.testing.assert_array_equal(
      large.plan(0, 20).document, small.plan(0, 20).document
    )
  (index,) = (tmp_path / "large.index").glob("simulated_epochs-*")
  # Another share is another index.
  chomp_data.build(config({"a": source(path, "ffd")}, (100, 38)))
  assert len([*index.parent.glob("simulated_epochs-*")]) == 2


def test_documents_in_buckets_are_those_of_the_reference(paths):
  lengths = lengths_of("a")
  tokens = [n + 1 if n else 0 for n in lengths.tolist()]
  hashes = hashes_of("a", len(tokens))
  data = {
    "seed": 3,
    "document_id": True,
    "buckets": {
      "kind": "length",
      "lengths": (8, 16, 32),
      "tokens_per_batch": 32,
    },
    "sources": {"a": {"store": paths["a"], "rows": {"add_eos": True}}},
    "epochs": 1,
    "remainder": "pad",
  }
  for target, run in ((10, 1), (10, 4), (1_000, 987), (5, 5)):
    simulated = {"target_tokens": target, "run_tokens": run}
    pipe = chomp_data.build({**data, "simulated_epochs": simulated})
    selected = reference.select_documents(tokens, hashes, target, run)
    counts = np.zeros(len(tokens), np.int64)
    for step in range(pipe.num_steps):
      spans = pipe.plan(step)
      np.add.at(counts, spans.document, spans.length)
    assert counts.tolist() == [
      n if is_in else 0 for n, is_in in zip(tokens, selected, strict=True)
    ]
    read = pipe.sources["a"].documents_used()
    assert read.tolist() == np.flatnonzero(counts).tolist()


# How often a run passes over its sources.


class Run:
  """The tokens that each step of a run takes of each source."""

  def __init__(self, data, steps):
    self.pipe = chomp_data.build(data)
    taken = np.zeros((steps + 1, len(self.pipe.source_names)), np.int64)
    spans = self.pipe.plan(0, steps)
    step = spans.row // self.pipe.global_batch_size
    np.add.at(taken, (step + 1, spans.source), spans.length)
    self.taken = np.cumsum(taken, axis=0)

  def passes(self, tokens, pass_tokens):
    """Returns passes at the first step that reaches some tokens."""
    step = int(np.searchsorted(self.taken.sum(axis=1), tokens))
    return [
      fractions.Fraction(int(n), int(m))
      for n, m in zip(self.taken[step], pass_tokens, strict=True)
    ]


WEIGHTS = {"a": 0.5, "b": 0.2, "c": 0.3}


@pytest.mark.parametrize(
  ("rows", "share", "stages"),
  [("sequential", "1/3", False), ("ffd", "1/7", True), ("drop", "1/2", False)],
)
def test_passes_are_those_of_the_full_run(paths, rows, share, stages):
  """At any point of both runs, to within the bound that the reference proves.

  With stages, whose steps are scaled, each stage adds the error of a merge.
  """
  share = fractions.Fraction(share)
  steps = 180 if stages else 240
  target = steps * 4 * SEQ_LEN
  run = int(target * share)
  mix = {"weights": WEIGHTS}
  half = {"weights": WEIGHTS}
  if stages:
    change, others = 70, {"a": 0.2, "b": 0.7, "c": 0.1}
    mix = {"stages": [(0, WEIGHTS), (change, others)]}
    half = {"stages": [(0, WEIGHTS), (round(change * share), others)]}
  every = {name: source(paths[name], rows) for name in COUNTS}
  full = Run(config(every, mix=mix), steps + 80)
  simulated = Run(config(every, (target, run), mix=half), steps + 80)
  names = full.pipe.source_names
  assert names == simulated.pipe.source_names
  tokens = [consumed(lengths_of(name), ROWS[rows]) for name in names]
  hashes = [hashes_of(name, COUNTS[name]) for name in names]
  selected = [
    reference.select_documents(tokens[i], hashes[i], target, run)
    for i in range(len(names))
  ]
  held = [
    sum(n for n, is_in in zip(*each, strict=True) if is_in)
    for each in zip(tokens, selected, strict=True)
  ]
  for part in (fractions.Fraction(n, 8) for n in range(1, 9)):
    result = {
      "selected": selected,
      "full": {"passes": full.passes(int(target * part), map(sum, tokens))},
      "simulated": {"passes": simulated.passes(int(run * part), held)},
    }
    for line in reference.agreement(
      result, tokens, target, run, [SEQ_LEN] * len(names), batch_rows=4
    ):
      bound = line["proved_bound"] * (3 if stages else 1)
      assert line["difference_tokens"] <= bound
  # It is a law of selections: the first tokens of all documents differ more.
  plain = Run(config(every, mix=half), steps)
  unselected = plain.passes(run, map(sum, tokens))
  assert all(
    passes > 1.5 * other
    for passes, other in zip(
      result["simulated"]["passes"], unselected, strict=True
    )
  )


# What is refused.


def refused(data):
  with pytest.raises(schema.ConfigError) as caught:
    chomp_data.build(data)
  return str(caught.value)


def test_what_cannot_be_selected_is_refused(paths, tmp_path):
  simulated = (1_000, 300)
  for kind in ("splice", "multi_splice", "windows"):
    one = {"a": {"store": paths["a"], "rows": {"kind": kind}}}
    message = refused(config(one, simulated))
    assert "`config.data.sources.a.rows.kind` must be 'sequential'" in message
    assert f"got '{kind}'" in message
  both = (paths["a"], paths["b"])
  message = refused(config({"a": source(both, joined=(0, 2))}, simulated))
  assert "`config.data.sources.a.joined` must be 0" in message
  assert "got (0, 2)" in message
  message = refused(
    config({"a": source(paths["a"])}, simulated, start_after=str(tmp_path))
  )
  assert "must be None with start_after" in message
  message = refused(config({"a": source(paths["a"])}, (300, 1_000)))
  assert "run_tokens` must be at most target_tokens, got 1000 and 300" in (
    message
  )
  for wrong in (0, -1, 1.5, "many"):
    message = refused(config({"a": source(paths["a"])}, (1_000, wrong)))
    assert "`config.data.simulated_epochs.run_tokens` must be" in message
  message = refused(
    {
      "global_batch_size": 4,
      "buckets": {"kind": "resolution", "sizes": ((4, 4),)},
      "sources": {"a": {"store": paths["a"]}},
      "simulated_epochs": {"target_tokens": 10, "run_tokens": 5},
    }
  )
  assert "`config.data.simulated_epochs` must be None for samples" in message


def test_a_store_without_a_row_says_so_whatever_the_share(tmp_path):
  path = testing_stores.make_store(tmp_path / "tiny", [[7] * 9, [8] * 4]).path
  message = refused(config({"a": source(path)}, (1_000, 1)))
  assert "`config.data.seq_len` must be at most the tokens" in message


def saved(data, steps):
  with chomp_data.make_iterator(data) as batches:
    for _ in range(steps):
      next(batches)
    return batches.get_state()


def test_a_state_of_another_selection_is_refused(paths):
  one = {"a": source(paths["a"])}
  state = saved(config(one, (1_000, 300)), 3)
  for other in (None, (1_000, 500)):
    with (
      chomp_data.make_iterator(config(one, other)) as batches,
      pytest.raises(state_lib.StateError, match=r"sources\.a\.simulated_epoch"),
    ):
      batches.set_state(state)
  # The same documents by other numbers are the same run.
  with chomp_data.make_iterator(config(one, (10, 3))) as batches:
    batches.set_state(state)
    assert batches.step == 3


def test_a_store_that_is_appended_does_not_join(paths):
  state = saved(config({"a": source(paths["a"])}, (1_000, 300)), 3)
  both = {"a": source((paths["a"], paths["b"]))}
  with (
    chomp_data.make_iterator(config(both, (1_000, 300))) as batches,
    pytest.raises(state_lib.StateError, match=r"sources\.a\.store"),
  ):
    batches.set_state(state)
  # Stores that are there from the start are one source.
  state = saved(config(both, (1_000, 300)), 3)
  with chomp_data.make_iterator(config(both, (1_000, 300))) as batches:
    batches.set_state(state)
    next(batches)


def test_no_run_starts_after_one_of_selected_documents(paths, tmp_path):
  checkpoint = tmp_path / "run" / "checkpoints" / "3" / "input"
  checkpoint.mkdir(parents=True)
  one = {"a": source(paths["a"])}
  state = saved(config(one, (1_000, 300)), 3)
  (checkpoint / "input.json").write_bytes(state)
  message = refused(config(one, start_after=str(tmp_path / "run")))
  assert "must be of a run without simulated_epochs" in message


def test_pairs_are_refused(tmp_path):
  documents = [[5] * 20 for _ in range(8)]
  path = testing_stores.make_store(
    tmp_path / "pairs",
    documents,
    levels=(0.0, 1.0),
    label_levels=[[1] * 20 for _ in documents],
    pairs=True,
  ).path
  message = refused(config({"a": source(path, "ffd")}, (10, 5)))
  assert "must be None for the preference pairs of source 'a'" in message
