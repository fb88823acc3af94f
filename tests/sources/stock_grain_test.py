# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Row sources and mixes in stock Grain: rows, formats, masks and samplers."""

import collections
import itertools
import pickle

import grain
import numpy as np
import pytest

import chomp_data
from chomp_data import pipeline
from chomp_data.transforms import formats
from chomp_data.transforms import masks

SEQ_LEN = 16
BATCH = 4
SEED = 7
WEIGHTS = {"bins": 2, "stream": 1}
LATER = {"bins": 1, "stream": 3}
LENGTHS = {
  "bins": [3, 40, 9, 25, 1, 18, 33, 2, 7] * 3,
  "stream": [70, 11, 90] * 2,
}
ROWS = {
  "bins": {"kind": "bin", "packing_buffer_docs": 8},
  "stream": {"kind": "sequential"},
}


@pytest.fixture(scope="module")
def corpora(make_store):
  rng = np.random.default_rng(0)
  return {
    name: make_store([rng.integers(3, 250, n) for n in lengths])
    for name, lengths in LENGTHS.items()
  }


@pytest.fixture(scope="module")
def labelled(make_store):
  """A store with labels and weights of documents."""
  rng = np.random.default_rng(1)
  lengths = (9, 30, 5, 14, 22)
  return make_store(
    [rng.integers(3, 250, n) for n in lengths],
    levels=[0.0, 1.0, 0.5],
    label_levels=[rng.integers(0, 3, n) for n in lengths],
    weights=[1.0, 2.0, 1.0, 0.5, 1.0],
  )


def parts_of(corpora):
  shuffle = chomp_data.ShuffleOptions(kind="full")
  bins = chomp_data.BinSource(
    corpora["bins"],
    chomp_data.BinOptions(packing_buffer_docs=8),
    seq_len=SEQ_LEN,
    seed=SEED,
    name="bins",
  )
  stream = chomp_data.SequentialSource(
    corpora["stream"],
    chomp_data.SequentialOptions(),
    seq_len=SEQ_LEN,
    seed=SEED,
    name="stream",
  )
  return {
    own.name: chomp_data.ShuffledSource(own, shuffle, SEED)
    for own in (bins, stream)
  }


def mix_of(corpora, stages=(), epochs=2, **changes):
  return chomp_data.MixtureSource(
    parts_of(corpora),
    chomp_data.MixOptions(weights=WEIGHTS, stages=stages or None),
    **{"seed": SEED, "epochs": epochs, **changes},
  )


def run_of(corpora, stages=(), **changes):
  """Returns the pipeline of the same mix."""
  return pipeline.build(
    {
      "seq_len": SEQ_LEN,
      "global_batch_size": BATCH,
      "seed": SEED,
      "epochs": 2,
      "remainder": "pad",
      "document_id": True,
      "sources": {
        name: {
          "store": str(store.path),
          "rows": ROWS[name],
          "shuffle": {"kind": "full"},
        }
        for name, store in corpora.items()
      },
      "mix": {"weights": WEIGHTS, "stages": list(stages)},
      **changes,
    }
  )


def keys(batch):
  """Returns the rows of a batch as a multiset."""
  rows = np.flatnonzero(batch["source_id"] >= 0)
  names = ("tokens", "segment_ids", "positions", "loss_mask", "source_id")
  return collections.Counter(
    tuple(np.asarray(batch[name][row]).tobytes() for name in names)
    for row in rows
  )


STAGES = pytest.mark.parametrize("stages", [(), ((3, LATER),)], ids=str)


@STAGES
def test_a_mix_gives_the_rows_of_a_runs_batches(corpora, stages):
  size = BATCH if stages else None
  mix = mix_of(corpora, stages, global_batch_size=size)
  pipe = run_of(corpora, stages)
  assert len(mix) == sum(
    own.rows for own in pipe.accounts.at(pipe.num_steps).values()
  )
  batches = grain.MapDataset.source(mix).batch(BATCH)
  assert len(batches) == pipe.num_steps
  permuted = 0
  for step in range(pipe.num_steps):
    wanted = pipe.batch(step)
    assert keys(batches[step]) == keys(wanted)
    here = len(batches[step]["tokens"])
    permuted += not np.array_equal(
      batches[step]["tokens"], wanted["tokens"][:here]
    )
  # Rows of a run are permuted within each batch; those of a mix are not.
  assert permuted > pipe.num_steps // 2


def test_a_mix_pickles_and_its_repr_is_of_what_decides_rows(corpora):
  mix = mix_of(corpora)
  copy = pickle.loads(pickle.dumps(mix))
  assert repr(copy) == repr(mix) == repr(mix_of(corpora))
  np.testing.assert_array_equal(copy[5]["tokens"], mix[5]["tokens"])
  # Steps decide rows where stages begin at them, and not elsewhere.
  assert repr(mix_of(corpora, global_batch_size=8)) == repr(mix)
  stages = ((3, LATER),)
  others = [
    mix,
    mix_of(corpora, seed=8),
    mix_of(corpora, epochs=1),
    mix_of(corpora, stages, global_batch_size=4),
    mix_of(corpora, stages, global_batch_size=8),
  ]
  assert len({repr(own) for own in others}) == len(others)


def test_an_endless_mix_has_no_length(corpora):
  mix = mix_of(corpora, epochs=None)
  for use in (len, lambda own: own[0], lambda own: next(iter(own))):
    with pytest.raises(chomp_data.ConfigError, match="`epochs` must be set"):
      use(mix)
  with pytest.raises(chomp_data.ConfigError, match="`epochs` must be set"):
    grain.MapDataset.source(mix).batch(2)[0]


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    ({"stages": ((3, LATER),)}, "`global_batch_size` must be set .* None"),
    ({"global_batch_size": 0}, "`global_batch_size` must be .*, got 0"),
    ({"stages": ((3, {"x": 1}),), "global_batch_size": 4}, "declared sources"),
  ],
)
def test_arguments_of_a_mix_are_checked(corpora, arguments, message):
  with pytest.raises(chomp_data.ConfigError, match=message):
    mix_of(corpora, **arguments)


def test_sources_of_a_mix_have_one_seq_len(corpora):
  parts = parts_of(corpora)
  parts["stream"] = chomp_data.SequentialSource(
    corpora["stream"], chomp_data.SequentialOptions(), seq_len=8
  )
  options = chomp_data.MixOptions()
  with pytest.raises(chomp_data.ConfigError, match="bins 16, stream 8"):
    chomp_data.MixtureSource(parts, options, epochs=1)
  with pytest.raises(chomp_data.ConfigError, match="`parts` must be a mapping"):
    chomp_data.MixtureSource({}, options)
  with pytest.raises(TypeError, match="`parts` must be a mapping"):
    chomp_data.MixtureSource(list(parts), options)


@pytest.fixture(scope="module")
def sources(corpora, labelled):
  """One of each public row source."""
  store = corpora["bins"]
  splices = chomp_data.MultiSpliceOptions(num_docs=3, content_length=9)
  windows = chomp_data.WindowOptions(stride=5)
  named = {"seq_len": SEQ_LEN}
  parts = parts_of(corpora)
  unlabelled = chomp_data.SequentialSource(
    store, chomp_data.SequentialOptions(), name="plain", **named
  )
  weighted = chomp_data.BinSource(
    labelled, chomp_data.BinOptions(), name="weighted", **named
  )
  return {
    "shuffled": parts["bins"],
    "sequential": parts["stream"].rows,
    "splices": chomp_data.SpliceSource(store, splices, **named),
    "windows": chomp_data.SpliceSource(store, windows, **named),
    "grid": chomp_data.GridSource(
      store, np.asarray([1, 3]), np.arange(4), np.arange(4), **named
    ),
    "weighted": weighted,
    "mix": mix_of(corpora),
    "weighted mix": chomp_data.MixtureSource(
      {"plain": unlabelled, "weighted": weighted},
      chomp_data.MixOptions(),
      epochs=1,
    ),
  }


NAMES = (
  "shuffled", "sequential", "splices", "windows", "grid", "weighted", "mix",
  "weighted mix",
)  # fmt: skip


@pytest.mark.parametrize(
  ("name", "form"),
  [
    *zip(NAMES, itertools.cycle(formats.FORMATS), strict=False),
    *(("weighted mix", form) for form in formats.FORMATS),
  ],
)
def test_formats_and_masks_work_over_batched_rows(sources, name, form):
  source = sources[name]
  eos = (1, 1)
  batches = grain.MapDataset.source(source).batch(2)
  operations = [
    masks.MaskBoundaryLoss(False),
    masks.TrainOnEos(False, eos),
    masks.ResetPositions(True),
  ]
  if formats.FORMATS[form].transform is not None:
    operations.append(formats.FORMATS[form].transform())
  for operation in operations:
    batches = batches.map(operation)
  names = {frozenset(batches[i]) for i in range(len(batches))}
  assert len(names) == 1
  assert "label_weight" not in next(iter(names))


@pytest.mark.parametrize(
  ("name", "changes"),
  [
    ("huggingface", {"batch_format": "huggingface"}),
    ("boundary", {"mask_boundary_loss": False}),
    ("both", {"batch_format": "chomp", "mask_boundary_loss": False}),
  ],
)
@pytest.mark.parametrize("kind", ["splice", "labels"])
def test_formats_give_the_batches_of_a_run(
  corpora, labelled, name, changes, kind
):
  # What is padding comes of spans: padding after a splice is in its segment.
  store = corpora["bins"] if kind == "splice" else labelled
  if kind == "splice":
    rows = {"kind": "multi_splice", "num_docs": 3, "content_length": 9}
    own = {n: v for n, v in rows.items() if n != "kind"}
    source = chomp_data.SpliceSource(
      store, chomp_data.MultiSpliceOptions(**own), seq_len=SEQ_LEN, name="a"
    )
  else:
    rows = {"kind": "bin"}
    source = chomp_data.BinSource(
      store, chomp_data.BinOptions(), seq_len=SEQ_LEN, name="a"
    )
  pipe = pipeline.build(
    {
      "seq_len": SEQ_LEN,
      "global_batch_size": 2,
      "epochs": 1,
      "sources": {"a": {"store": str(store.path), "rows": rows}},
      **changes,
    }
  )
  batches = grain.MapDataset.source(source).batch(2)
  if not changes.get("mask_boundary_loss", True):
    batches = batches.map(masks.MaskBoundaryLoss(False))
  if "batch_format" in changes:
    batches = batches.map(formats.ChompFormat())
  for step in range(pipe.num_steps):
    wanted = pipe.batch(step)
    got = batches[step]
    assert set(wanted) <= set(got)
    for field, value in wanted.items():
      np.testing.assert_array_equal(got[field], value, err_msg=field)


@pytest.mark.parametrize("name", NAMES)
def test_a_slice_of_rows_is_rejected_with_what_to_do(sources, name):
  source = sources[name]
  for index in (slice(0, 4), [0, 1], 1.5, None):
    with pytest.raises(TypeError, match=r"a whole number, got .*`batch\(numpy"):
      source[index]
  with pytest.raises(IndexError, match=f"got {len(source)}"):
    source[len(source)]
  # What the message says to do.
  last = min(4, len(source))
  batch = source.batch(np.arange(0, last))
  for i in range(last):
    row = source[np.int64(i)]
    assert set(row) == set(batch)
    for field, value in row.items():
      np.testing.assert_array_equal(value, batch[field][i])


def test_a_slice_of_a_sampler_or_of_steps_is_rejected(corpora):
  sampler = chomp_data.FullShuffleSampler(10)
  with pytest.raises(TypeError, match="a whole number, got slice"):
    sampler[0:4]
  with pytest.raises(TypeError, match="a whole number, got slice"):
    pipeline.batch_source(run_of(corpora))[0:4]


def test_a_shuffled_source_has_one_order_under_repeat(corpora):
  rows = parts_of(corpora)["stream"]
  size = len(rows)
  repeated = grain.MapDataset.source(rows).repeat(3)
  passes = [
    [repeated[i]["tokens"].tobytes() for i in range(n * size, (n + 1) * size)]
    for n in range(3)
  ]
  assert passes[0] == passes[1] == passes[2]


def test_a_mix_of_one_source_has_another_order_in_each_pass(corpora):
  rows = parts_of(corpora)["stream"]
  size = len(rows)
  mix = chomp_data.MixtureSource(
    {"stream": rows}, chomp_data.MixOptions(), epochs=3
  )
  dataset = grain.MapDataset.source(mix)
  assert len(dataset) == 3 * size
  passes = [
    [dataset[i]["tokens"].tobytes() for i in range(n * size, (n + 1) * size)]
    for n in range(3)
  ]
  assert len({tuple(own) for own in passes}) == 3
  assert len({tuple(sorted(own)) for own in passes}) == 1
  # Those of a run.
  every = rows.batch(np.arange(3 * size))["tokens"]
  assert [row.tobytes() for row in every] == [
    *itertools.chain.from_iterable(passes)
  ]
