# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Laws of every run: each is stated once, and holds for the whole catalogue.

Only what docs/api.md names and the functions behind the commands is used, so
that these tests outlive any change of what lies below. What a law compares
with is counted from single batches, in the plainest way there is.
"""

import collections
import functools
import itertools
import json
import os
import pathlib
import subprocess
import sys

import grain
import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

import chomp_data
from chomp_data import row_kinds
from chomp_data.audit import difference
from chomp_data.audit import forecast
from chomp_data.audit import verifying
from chomp_data.loading import batches
from chomp_data.loading import step_records
from chomp_data.plans import balance
from chomp_data.rows import spans as spans_lib
from tests.audit import document_lists_test
from tests.audit import visits_test
from tests.catalogue import costs
from tests.catalogue import runs
from tests.golden import cases
from tests.golden import corpora
from tests.golden import measuring
from tests.loading import processes
from tests.loading import sharding_test

REPOSITORY = pathlib.Path(__file__).parents[2]
BOS, EOS = 2, 1

SAMPLES = {"sizes", "sizes_stages"}
FOREIGN = {"megatron", "levanter"}
TEXT = [name for name in runs.NAMES if name not in SAMPLES]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
  """Every small corpus of the golden cases, written anew."""
  root = tmp_path_factory.mktemp("catalogue")
  with pytest.MonkeyPatch.context() as patch:
    corpora.write_for_tests(root, patch, tmp_path_factory.mktemp("cache"))
    yield root


@pytest.fixture(params=runs.marked(runs.NAMES))
def name(request):
  return request.param


@pytest.fixture
def data(name, root):
  return runs.data_of(name, root)


@pytest.fixture(scope="module")
def built(root):
  """Builds a run, once for all laws: a plan has no state."""
  return functools.cache(
    lambda name: chomp_data.build(runs.data_of(name, root))
  )


@pytest.fixture
def pipe(name, built):
  return built(name)


_SPLICES = ("splice", "multi_splice")

text_only = pytest.mark.parametrize("name", runs.marked(TEXT))


def on_devices(pipe, step):
  """Returns the batch of a step as devices have it, dealt by cost or not."""
  batch = pipe.batch(step)
  if not balance.is_asked(pipe.run_options.data):
    return batch
  order = pipe.row_order(step)
  return {field: value[order] for field, value in batch.items()}


def same(batch, wanted):
  """Asserts that two batches have the same fields, of the same values."""
  assert sorted(batch) == sorted(wanted)
  for field, value in wanted.items():
    np.testing.assert_array_equal(np.asarray(batch[field]), value, field)


# What a batch holds.


@text_only
def test_a_batch_holds_the_tokens_that_the_plan_names(name, root, pipe):
  """And filler, without loss, where the plan has nothing."""
  if name in FOREIGN:
    pytest.skip("another tool's files: tests/stores hold what they contain")
  documents = runs.documents_of(name, pipe)
  for step in runs.steps_of(pipe):
    batch, spans = pipe.canonical(step), pipe.plan(step).live()
    wanted = np.full(batch["tokens"].shape, -1)
    for at in range(len(spans)):
      tokens = documents[spans.source[at]][spans.document[at]]
      source = pipe.sources[pipe.source_names[spans.source[at]]]
      added = [None, BOS, EOS, *source.layout.sentinel_ids]
      bos, eos = (
        [added[own[at]]] if own is not None and own[at] else []
        for own in (spans.added_before, spans.added_after)
      )
      length = int(spans.length[at])
      first = int(spans.start[at])
      inside = tokens[first : first + length - len(bos) - len(eos)]
      column = int(spans.column[at])
      row = wanted[spans.row[at], column : column + length]
      assert (row == -1).all(), "spans overlap"
      row[:] = [*bos, *inside, *eos]
      assert (
        batch["segment_ids"][spans.row[at], column : column + length]
        == spans.segment[at]
      ).all()
    filler = wanted == -1
    np.testing.assert_array_equal(batch["tokens"][~filler], wanted[~filler])
    assert not batch["loss_mask"][filler].any()


@text_only
def test_a_label_stays_in_its_document(name, data, pipe):
  """A position is trained on where the plan has a next token for it."""
  crosses = data.get("mask_boundary_loss") is False
  for step in runs.steps_of(pipe):
    batch, spans = pipe.canonical(step), pipe.plan(step).live()
    owner = np.full(batch["tokens"].shape, -1)
    for at in range(len(spans)):
      column, length = int(spans.column[at]), int(spans.length[at])
      owner[spans.row[at], column : column + length] = at
    trained = batch["loss_mask"] > 0
    assert (owner[trained] >= 0).all()
    inner = trained[:, :-1]
    after = owner[:, 1:][inner]
    assert (after >= 0).all()
    if not crosses:
      np.testing.assert_array_equal(
        batch["segment_ids"][:, :-1][inner], batch["segment_ids"][:, 1:][inner]
      )
    if not data.get("lookahead"):
      assert not trained[:, -1].any()


@text_only
def test_positions_count_within_segments(name, data, pipe):
  if name == "sequential_era":
    pytest.skip("`reset_positions` is False: they count within rows")
  if data.get("tombstones"):
    pytest.skip("a document that is gone in part goes on after a gap")
  # Splices have positions of their own: tests/splice/source_test.py.
  spliced = [
    data["sources"].get(own, {}).get("rows", {}).get("kind") in _SPLICES
    for own in pipe.source_names
  ]
  for step in runs.steps_of(pipe):
    batch = pipe.canonical(step)
    segments, positions = batch["segment_ids"], batch["positions"]
    same_segment = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
    steps = np.diff(positions, axis=1)
    assert (steps[same_segment] == 1).all()
    begins = ~same_segment & (segments[:, 1:] > 0)
    begins &= ~np.isin(batch["source_id"], np.flatnonzero(spliced))[:, None]
    assert (positions[:, 1:][begins] == 0).all()


def test_planning_reads_no_token(pipe, monkeypatch):
  def refused(*args, **options):
    raise AssertionError("tokens are read")

  for source in pipe.sources.values():
    for name in ("copy_tokens", "read_tokens"):
      monkeypatch.setattr(type(source.store), name, refused)
  for step in runs.steps_of(pipe):
    pipe.run_plan.planned(step)
  pipe.accounts.record(runs.last_of(pipe))
  if pipe.sources:
    with pytest.raises(AssertionError, match="tokens are read"):
      pipe.batch(0)


@text_only
def test_steps_planned_together_are_those_planned_alone(name, pipe):
  if pipe.run_options.kind != "rows":
    pytest.skip("steps of buckets are of several shapes")
  count = runs.last_of(pipe, 7)
  alone = [pipe.plan(step) for step in range(count)]
  together = pipe.plan(0, count)
  assert together.num_rows == sum(own.num_rows for own in alone)
  for field in ("source", "document", "start", "length", "column"):
    np.testing.assert_array_equal(
      getattr(together, field),
      np.concatenate([getattr(own, field) for own in alone]),
    )


# One of each way to read: mapped files, records, buckets, mixes, columns.
_COSTS = (
  "bin_ffd_block", "splice_cyclic_roll", "mix_loss_tokens", "sizes_stages",
  "records_bin", "columns", "lanes",
)  # fmt: skip


@pytest.mark.parametrize(
  "name",
  [
    own if own in _COSTS else pytest.param(own, marks=pytest.mark.slow)
    for own in runs.NAMES
  ],
)
def test_no_run_costs_more_than_it_did(name, root):
  """In reads, files, maps, and bytes of memory, states and readers."""
  before = json.loads(costs.PATH.read_text())[name]
  grown = costs.grown(costs.counted(name, root), before)
  if grown:  # Threads of other tests may have ended meanwhile.
    print(grown)
    grown = costs.grown(costs.counted(name, root), before)
  assert not grown


def test_files_and_memory_that_a_batch_leaves_are_counted(root, monkeypatch):
  name, left = "bin_ffd_block", []
  before = json.loads(costs.PATH.read_text())[name]
  read = batches.BatchSource.__getitem__

  def leaving(self, step):
    left.extend((open(__file__), bytes(2_000_000)))  # noqa: SIM115
    return read(self, step)

  monkeypatch.setattr(batches.BatchSource, "__getitem__", leaving)
  grown = costs.grown(costs.counted(name, root), before)
  for file in left[::2]:
    file.close()
  assert [line.partition(":")[0] for line in grown] == [
    "bytes held", "descriptors", "most bytes held",
  ]  # fmt: skip


# Where a run is stopped, moved and cut.


@pytest.fixture
def records(monkeypatch):
  """Makes records hold all the steps that they can; returns those read."""
  read, steps_read = batches.BatchSource.read, []

  def noted(self, steps):
    steps_read.append(steps)
    return read(self, steps)

  monkeypatch.setattr(batches.BatchSource, "read", noted)
  monkeypatch.setattr(step_records, "RECORD_S", 1e9)
  return steps_read


def test_a_run_restores_at_every_step(data, pipe, records):
  """By a state and by a number, and again from there on."""
  count = runs.last_of(pipe, runs.FIRST)
  wanted = [on_devices(pipe, step) for step in range(count)]
  states = []
  with chomp_data.make_iterator(pipe) as going:
    for step in range(count):
      assert going.step == step
      states.append(going.get_state())
      same(next(going), wanted[step])
  order = [*range(count - 1, -1, -2), *range(0, count, 2)]
  with chomp_data.make_iterator(data) as again:
    for step in order:
      again.set_state(states[step])
      assert again.step == step
      same(next(again), wanted[step])
    for step in order[::3]:
      again.seek(step)
      same(next(again), wanted[step])
    again.set_state(states[1])
    for step in range(1, count // 2):
      same(next(again), wanted[step])
    second = again.get_state()
    assert second == states[count // 2]
    again.set_state(second)
    for step in range(count // 2, count):
      same(next(again), wanted[step])
  # Steps of buckets are read alone, and so are those of a very short run.
  if pipe.run_options.kind == "rows" and count > 3:
    assert max(map(len, records)) > 1


class _Noise(grain.transforms.RandomMap):
  """Adds a number of the generator of each row."""

  def random_map(self, element, rng):
    rows = len(next(iter(element.values())))
    return {**element, "noise": rng.integers(2**31, size=rows, dtype=np.int32)}


@pytest.mark.parametrize("name", ["edits_of_mix"])
def test_random_transforms_are_those_of_single_steps(
  pipe, records, monkeypatch
):
  def read(step=0):
    with chomp_data.make_iterator(
      pipe, operations=[_Noise()], step=step
    ) as iterator:
      return [*map(jax.device_get, itertools.islice(iterator, runs.FIRST))]

  together = {step: read(step) for step in (0, 5)}
  assert max(map(len, records)) > 1
  monkeypatch.setattr(step_records, "RECORD_S", 0)
  records.clear()
  for step, several in together.items():
    for batch, wanted in zip(several, read(step), strict=True):
      same(batch, wanted)
  assert max(map(len, records)) == 1


@pytest.mark.parametrize("name", ["edits_of_mix", "lengths_weighted"])
@pytest.mark.parametrize(
  "workers", [0, pytest.param(1, marks=pytest.mark.slow)]
)
def test_random_transforms_do_not_depend_on_processes(pipe, workers):
  def read(part=slice(None)):
    rows = {b.name: np.arange(b.batch_size)[part] for b in pipe.buckets}
    loader = pipe.data_loader(rows, operations=[_Noise()], worker_count=workers)
    return list(itertools.islice(loader, runs.FIRST))

  whole = read()
  for part in (slice(0, None, 2), slice(1, None, 2)):
    for batch, wanted in zip(read(part), whole, strict=True):
      same(batch, {name: value[part] for name, value in wanted.items()})
  drawn = np.concatenate([batch["noise"] for batch in whole])
  assert len(np.unique(drawn)) > 0.99 * len(drawn)


def test_balanced_rows_keep_what_random_transforms_draw(root):
  data = {**runs.data_of("bin_ffd_block", root), "balance": "attention"}
  planned, dealt = (
    chomp_data.build({**data, "balance_shards": shards}) for shards in (1, 2)
  )
  with (
    chomp_data.make_iterator(planned, operations=[_Noise()]) as one,
    chomp_data.make_iterator(dealt, operations=[_Noise()]) as two,
  ):
    moved = 0
    for step, batch, wanted in zip(range(runs.FIRST), two, one, strict=False):
      order = dealt.row_order(step)
      moved += (order != np.arange(len(order))).any()
      same(batch, {name: value[order] for name, value in wanted.items()})
  assert moved


def test_a_state_holds_what_the_plan_says_of_its_step(pipe):
  count = runs.last_of(pipe, runs.FIRST)
  with chomp_data.make_iterator(pipe) as iterator:
    for step in range(count + 1):
      state = json.loads(iterator.get_state())
      wanted = json.loads(json.dumps(pipe.accounts.record(step)))
      assert {field: state[field] for field in wanted} == wanted
      next(iterator, None)


def test_a_run_ends_at_its_last_step(data, pipe):
  if pipe.num_steps is None:
    pytest.skip("a run without an end")
  with chomp_data.make_iterator(data, step=pipe.num_steps - 1) as iterator:
    same(next(iterator), on_devices(pipe, pipe.num_steps - 1))
    assert next(iterator, None) is None
    assert json.loads(iterator.get_state())["step"] == pipe.num_steps


# States are bytes to Orbax, whatever a run is: one of each form of them.
_CHECKPOINTED = (
  "bin_ffd_block", "mix_stages", "lengths_weighted", "sizes_stages", "joined",
  "edits_of_mix",
)  # fmt: skip


@pytest.mark.parametrize(
  "name",
  [
    own if own in _CHECKPOINTED else pytest.param(own, marks=pytest.mark.slow)
    for own in runs.NAMES
  ],
)
def test_an_orbax_checkpoint_restores(data, pipe, tmp_path):
  """Ours, and the state of a stock loader by Grain's own handler."""
  step = runs.last_of(pipe, 5) - 1
  loader = iter(pipe.data_loader())
  with (
    chomp_data.make_iterator(data) as iterator,
    ocp.CheckpointManager(tmp_path / "checkpoints") as manager,
  ):
    for _ in range(step):
      next(iterator)
      next(loader)
    manager.save(
      step,
      args=ocp.args.Composite(
        input=chomp_data.InputSave(iterator),
        grain=grain.checkpoint.CheckpointSave(loader),
      ),
    )
    # Later batches are no part of a save that is still under way.
    next(iterator)
    manager.wait_until_finished()
  loader = iter(chomp_data.build(data).data_loader())
  with (
    chomp_data.make_iterator(data) as iterator,
    ocp.CheckpointManager(tmp_path / "checkpoints") as manager,
  ):
    manager.restore(
      step,
      args=ocp.args.Composite(
        input=chomp_data.InputRestore(iterator),
        grain=grain.checkpoint.CheckpointRestore(loader),
      ),
    )
    assert iterator.step == step
    same(next(iterator), on_devices(pipe, step))
    same(next(loader), on_devices(pipe, step))


def test_stock_grain_reads_and_restores_the_same_batches(data, pipe):
  """`data_loader` is Grain's own, with Grain's own state."""
  loader = pipe.data_loader()
  assert isinstance(loader, grain.DataLoader)
  count = runs.last_of(pipe, runs.FIRST)
  iterator, states = iter(loader), []
  for step in range(count):
    states.append(iterator.get_state())
    same(next(iterator), on_devices(pipe, step))
  other = iter(chomp_data.build(data).data_loader())
  for step in range(count - 1, -1, -1):
    other.set_state(states[step])
    same(next(other), on_devices(pipe, step))


def saved(iterator):
  """Returns a state as JSON values, less the number of workers."""
  state = json.loads(iterator.get_state())
  del state["topology"], state["digest"]
  return state


# Two processes take seconds to start: `make test` has one run with workers.
_WITH_WORKERS = (
  "mix_stages", "sizes", "pairs", "columns",
  "sequential_documents_full", "bin_exact_documents_full", "multi_ramp",
  "windows_block", "mix_weighted", "lengths_weighted", "edits_of_mix", "joined",
  "after_a_phase", "weighed", "lanes", "records_bin", "levanter",
  "source_sequential",
)  # fmt: skip


@pytest.mark.parametrize(
  "name",
  [
    "bin_ffd_block",
    *(pytest.param(own, marks=pytest.mark.slow) for own in _WITH_WORKERS),
  ],
)
def test_batches_and_states_do_not_depend_on_workers(name, data, pipe):
  count = runs.last_of(pipe, 7)
  with chomp_data.make_iterator(pipe) as iterator:
    states = [saved(iterator) for _ in itertools.islice(iterator, count)]
    iterator.seek(count - 1)
    last = iterator.get_state()
  with chomp_data.make_iterator({**data, "worker_count": 2}) as iterator:
    for step in range(count):
      same(next(iterator), on_devices(pipe, step))
      assert saved(iterator) == states[step]
    iterator.set_state(last)
    same(next(iterator), on_devices(pipe, count - 1))


@pytest.mark.parametrize("count", [3, 8])
def test_parts_of_processes_are_the_global_batch(pipe, count):
  """Each reads its own rows alone, and each row is one process's."""
  for step in runs.steps_of(pipe)[:6]:
    whole = pipe.batch(step)
    size = len(next(iter(whole.values())))
    parts = np.array_split(np.arange(size), count)
    found = [pipe.batch(step, rows) for rows in parts if len(rows)]
    for field, value in whole.items():
      np.testing.assert_array_equal(
        np.concatenate([own[field] for own in found]), value, field
      )


# Batches of buckets are too small for four devices.
_OF_ROWS = [
  own
  for own in runs.NAMES
  if not own.startswith(("sizes", "lengths"))
  and not own.endswith("_of_lengths")
]


# Fields of each number of axes; all kinds plan their columns alike.
_COLUMNS = ("bin_ffd_block", "targets_of_mix", "columns", "pairs")


@pytest.mark.parametrize(
  ("layout", "few"),
  [
    ("interleaved", runs.FEW),
    ("sequence", _COLUMNS),
    pytest.param("interleaved", (), marks=pytest.mark.slow),
    pytest.param("sequence", (), marks=pytest.mark.slow),
  ],
)
def test_real_processes_hold_the_global_batches_together(root, layout, few):
  """Two JAX processes of two devices each, all runs after each other."""
  names = [
    name
    for name in _OF_ROWS
    if name in (few or _OF_ROWS)
    and runs.data_of(name, root).get("balance") is None
  ]
  every = [runs.data_of(name, root) for name in names]
  arguments = {
    "names": names, "root": str(root), "layout": layout, "count": 4,
  }  # fmt: skip
  found = processes.call(
    "tests.loading.distributed_worker:read_each", [arguments] * 2
  )
  for number in range(len(names)):
    pieces = {}
    for process in found:
      for step, held in process[number].items():
        pieces.setdefault(int(step), []).extend(held)
    end = runs.last_of(chomp_data.build(every[number]), 4)
    sharding_test.check(every[number], pieces, 0, end)


# What an epoch holds.


def one_row_a_step(name, root, **changes):
  """Builds a run whose steps are its rows, in the order of its epochs."""
  edits = {"skip": None, "tombstones": None, "batch_size_schedule": None}
  balance = {"balance": None, "balance_shards": None}
  lanes = runs.data_of(name, root)["sources"]
  for source in lanes.values():
    source.get("shuffle", {}).pop("lanes", None)
  return chomp_data.build(
    runs.data_of(
      name,
      root,
      **{
        "global_batch_size": 1, "remainder": "drop", "sources": lanes,
        **edits, **balance, **changes,
      },
    )
  )  # fmt: skip


def rows_of(spans):
  """Counts rows by what they hold."""
  held = [[] for _ in range(spans.num_rows)]
  for at in range(len(spans)):
    held[spans.row[at]].append((
      int(spans.document[at]), int(spans.start[at]), int(spans.length[at]),
      int(spans.column[at]),
    ))  # fmt: skip
  return collections.Counter(tuple(own) for own in held)


_ALONE = [
  own
  for own in TEXT
  if not own.startswith(
    ("mix", "lengths", "config_pretrain", "config_splice_i")
  )
  and not own.endswith(("_of_mix", "_of_lengths"))
]


@pytest.mark.parametrize("name", runs.marked(_ALONE))
def test_every_epoch_holds_the_rows_of_one_in_order(name, root):
  """A shuffle permutes the rows of each epoch."""
  ((source, section),) = runs.data_of(name, root)["sources"].items()
  in_order = {source: {**section, "shuffle": {"kind": "none"}}}
  last = 0
  for epochs in (1, 2):
    shuffled = one_row_a_step(name, root, epochs=epochs)
    ordered = one_row_a_step(name, root, epochs=epochs, sources=in_order)
    first, last = last, shuffled.num_steps
    assert ordered.num_steps == last
    assert first < last or name == "after_a_phase"
    counts = [
      rows_of(pipe.plan(first, last - first)) for pipe in (shuffled, ordered)
    ]
    assert counts[0] == counts[1]


def _gives_each_token_once(name):
  (source,) = cases.CASES[name].data["sources"].values()
  kind = source.get("rows", {}).get("kind", row_kinds.DEFAULT_KIND)
  return row_kinds.ROW_KINDS[kind].each_token_once


# What an earlier phase has handed out is gone, and stores that join do so in
# later epochs.
_EACH_TOKEN_ONCE = [
  name
  for name in _ALONE
  if _gives_each_token_once(name) and name not in ("after_a_phase", "joined")
]


@pytest.mark.parametrize(
  "name", [*runs.marked(_EACH_TOKEN_ONCE), "lengths_of_one"]
)
def test_an_epoch_holds_each_token_once(name, root):
  """But for the tail of a stream and long documents, where options say so."""
  (section,) = runs.data_of(name, root)["sources"].values()
  rows = section.get("rows", {})
  pipe = chomp_data.build(
    runs.data_of(
      name, root, epochs=1, remainder="pad", skip=None, tombstones=None,
      batch_size_schedule=None,
      **({} if name == "lengths_of_one" else {"global_batch_size": 8}),
    )
  )  # fmt: skip
  times = collections.Counter()
  for step in range(pipe.num_steps):
    spans = pipe.plan(step).live()
    for at in range(len(spans)):
      added = sum(
        int(own is not None and own[at] > 0)
        for own in (spans.added_before, spans.added_after)
      )
      first, length = int(spans.start[at]), int(spans.length[at]) - added
      document = int(spans.document[at])
      times.update((document, first + own) for own in range(length))
  assert set(times.values()) == {1}
  if name.startswith("simulated"):
    return  # Which documents: tests/phased/simulated_epochs_test.py.
  if rows.get("long_documents", "cut") != "cut" or "long_pairs" in rows:
    return
  if name in FOREIGN:
    return  # Nothing here knows how long they are.
  (documents,) = runs.documents_of(name, pipe)
  tokens = sum(map(len, documents))
  missing = tokens - len(times)
  if rows.get("kind") == "sequential" and rows.get("tail") != "pad":
    assert 0 <= missing < pipe.seq_len
  else:
    assert missing == 0


# What is said of a run, against a count.


_COUNTED = ("rows", "tokens", "loss_tokens")


def sentinels_of(pipe, spans, number):
  """Returns sentinels of a source, and how many more targets it has for them.

  Trained tokens are all of a piece but one, with sentinels as without: a piece
  of n tokens has n + 2 targets with three sentinels, which may be not trained
  on; then a first token after a sentinel is a target that is not counted.
  """
  pick = np.flatnonzero(spans.source == number)
  spans = spans.take(pick, spans.row[pick], spans.num_rows)
  if spans.sentinels() is None:
    return 0, 0
  sentinels = int(spans.sentinels().sum())
  if pipe.sources[pipe.source_names[number]].layout.train_sentinels:
    return sentinels, sentinels
  # A sentinel that opens its piece is no target, whatever it is.
  opens = ~spans.joined() & (spans.added_before >= spans_lib.SENTINEL)
  return sentinels, int(opens.sum())


def counted(pipe, steps):
  """Counts rows, tokens and trained tokens of batches, by source and step."""
  # What another run had read, where this one goes on from its `resume_state`.
  before = pipe.accounts.record(0)["accounts"]
  found = {
    source: np.zeros((steps + 1, 3), int) for source in pipe.source_names
  }
  for source, own in found.items():
    own[0] = [before[source][field] for field in _COUNTED]
  for step in range(steps):
    batch, spans = pipe.canonical(step), pipe.plan(step).live()
    length = np.zeros(len(batch["tokens"]), int)
    np.add.at(length, spans.row, spans.length)
    for number, own in enumerate(found.values()):
      rows = batch["source_id"] == number
      sentinels, known = sentinels_of(pipe, spans, number)
      trained = (batch["loss_mask"][rows] > 0).sum() - known
      own[step + 1] = rows.sum(), length[rows].sum() - sentinels, trained
  return {source: own.cumsum(axis=0) for source, own in found.items()}


@pytest.mark.parametrize(
  "name",
  runs.marked(
    own for own in runs.NAMES if own.startswith(("lengths", "sizes"))
  ),
)
def test_a_histogram_of_buckets_equals_a_count(name, pipe):
  counts = collections.defaultdict(collections.Counter)
  for step in range(runs.last_of(pipe)):
    histogram = pipe.accounts.record(step)["histogram"]
    said = {own: known for own, known in histogram.items() if known}
    assert said == counts
    source, bucket = pipe.bucket_of(step)
    counts[source][bucket] += int(
      (pipe.run_plan.planned(step).samples >= 0).sum()
    )


@text_only
def test_accounts_equal_a_count(name, root):
  data = runs.data_of(name, root, **document_lists_test.AS_COUNTED)
  if data.get("skip") or data.get("tombstones"):
    pytest.skip("tests/plans/edits_together_test.py counts what edits leave")
  pipe = chomp_data.build(data)
  accounts = pipe.accounts
  steps = runs.last_of(pipe)
  found = counted(pipe, steps)
  for step in range(steps + 1):
    if step % 5 == 0:
      # What it knows of the steps before is forgotten.
      accounts = chomp_data.build(data).accounts
    record = accounts.record(step)["accounts"]
    for source, own in found.items():
      said = [record[source][field] for field in _COUNTED]
      assert said == own[step].tolist(), (source, step)


@text_only
def test_a_forecast_equals_a_count(name, root):
  pipe = chomp_data.build(
    runs.data_of(name, root, **document_lists_test.AS_COUNTED)
  )
  steps = runs.last_of(pipe)
  found = forecast.forecast(pipe, steps)
  for source, own in counted(pipe, steps).items():
    said = [getattr(found.sources[source], field) for field in _COUNTED]
    assert said == own[-1].tolist()
  positions = sum(pipe.canonical(at)["tokens"].size for at in range(steps))
  assert found.positions == positions
  assert found.padding == positions - found.tokens


def test_traces_in_both_directions_equal_a_count(pipe):
  """Where a document comes, and which documents steps hold."""
  steps = runs.last_of(pipe)
  visits_test.check(pipe, steps // 2, steps)


def test_a_list_of_documents_equals_a_count(name, root, tmp_path):
  """And the tombstones of the list leave none of them after their step."""
  changes = document_lists_test.AS_COUNTED if name in TEXT else {}
  data = runs.data_of(name, root, **changes)
  steps = runs.last_of(chomp_data.build(data), 16)
  document_lists_test.check(data, tmp_path, steps, steps // 2)


def test_a_certificate_is_that_of_the_plan_and_of_no_other(data, pipe):
  with chomp_data.make_iterator(data) as iterator:
    for _ in range(runs.last_of(pipe, 4)):
      next(iterator)
    state = json.loads(iterator.get_state())
  found = verifying.verified(pipe, [state])
  assert found.agrees
  assert not found.unknown
  (segment,) = state["certificate"]
  segment["plan"] = f"{int(segment['plan'], 16) ^ 1:0{len(segment['plan'])}x}"
  assert not verifying.verified(pipe, [state]).agrees


def test_the_first_difference_of_two_runs_is_that_of_their_plans(data, pipe):
  steps = runs.last_of(pipe)
  assert difference.difference(pipe, chomp_data.build(data), steps).is_empty
  other = chomp_data.build({**data, "seed": data.get("seed", 0) + 1})
  steps = min(steps, runs.last_of(other))
  found = difference.difference(pipe, other, steps).first_step
  for step in range(steps):
    one, two = pipe.run_plan.planned(step), other.run_plan.planned(step)
    if pipe.bucket_of(step) != other.bucket_of(step) or not alike(one, two):
      assert found == step
      return
  assert found is None or found == steps


def alike(one, two):
  if one.spans is None:
    return np.array_equal(one.samples, two.samples)
  fields = ("source", "document", "start", "length", "column", "row")
  return all(
    np.array_equal(getattr(one.spans, own), getattr(two.spans, own))
    for own in fields
  )


# What later options change.


def test_a_skip_leaves_out_its_steps_and_moves_nothing(data, pipe):
  if data.get("skip") or data.get("batch_size_schedule"):
    pytest.skip("tests/plans/edits_together_test.py combines edits")
  count = runs.last_of(pipe, 9)
  skipped = chomp_data.build({**data, "skip": ((2, 3),)})
  for step in range(count - 2):
    same(skipped.batch(step), pipe.batch(step if step < 2 else step + 2))


def test_a_state_of_another_seed_is_refused(data, pipe):
  with chomp_data.make_iterator(pipe) as iterator:
    next(iterator)
    state = iterator.get_state()
  with chomp_data.make_iterator(
    {**data, "seed": data.get("seed", 0) + 1}
  ) as other:
    with pytest.raises(chomp_data.StateError, match="seed"):
      other.set_state(state)
    assert other.step == 0


# What devices see.


def test_one_program_a_shape(pipe):
  """Batches of one bucket have one shape, dtype and sharding."""
  seen, traced = {}, []

  @jax.jit
  def used(batch):
    traced.append(None)
    return {field: value.sum() for field, value in batch.items()}

  with chomp_data.make_iterator(pipe) as iterator:
    for batch in itertools.islice(iterator, runs.FIRST):
      step = iterator.step - 1
      shape = pipe.bucket_of(step)[1], len(next(iter(batch.values())))
      before = len(traced)
      used(dict(batch))
      assert len(traced) - before == (shape not in seen)
      kinds = {
        field: (value.shape, value.dtype, value.sharding)
        for field, value in batch.items()
      }
      assert seen.setdefault(shape, kinds) == kinds


# Other processes of the same config.


@pytest.mark.parametrize(
  "names",
  [runs.FEW, pytest.param(runs.NAMES, marks=pytest.mark.slow)],
  ids=["few", "all"],
)
def test_other_processes_give_the_same_batches(root, built, names):
  """With other hashes of strings, and without compiled loops."""
  halves = [names[::2], names[1::2]]
  digests = processes.call(
    "tests.loading.distributed_worker:digests",
    [{"names": own, "root": str(root)} for own in halves],
  )
  check_digests(built, names, dict(collections.ChainMap(*digests)))


_DIGESTS = """
import json, sys
from tests.loading import distributed_worker

root, *names = sys.argv[1:]
print(json.dumps(distributed_worker.digests(names, root)))
"""


@pytest.mark.slow
def test_a_process_with_compiled_loops_gives_the_same_batches(
  root, built, tmp_path
):
  done = subprocess.run(
    [sys.executable, "-c", _DIGESTS, str(root), *runs.NAMES],
    cwd=REPOSITORY,
    env={
      **os.environ,
      "CHOMP_DATA_KERNELS": "now",
      "XDG_CACHE_HOME": str(tmp_path),
    },
    capture_output=True,
    text=True,
    check=True,
  )
  check_digests(built, runs.NAMES, json.loads(done.stdout))


def check_digests(built, names, digests):
  assert sorted(digests) == sorted(names)
  for name, wanted in digests.items():
    pipe = built(name)
    steps = runs.steps_of(pipe)
    assert wanted == [measuring.digest(pipe.batch(s)) for s in steps]
