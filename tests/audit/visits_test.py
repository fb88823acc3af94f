# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Visits of documents, against every step planned."""

import itertools

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data import pipeline
from chomp_data.audit import visits as visits_lib
from chomp_data.plans import answers
from chomp_data.stores import samples_array_record
from chomp_data.testing import stores as testing_stores
from examples import save_to_disk
from tests import laws

SEQ_LEN = 16
STEPS = 30
SIZES = ((4, 6), (6, 4), (8, 8))


@pytest.fixture(scope="module")
def root(tmp_path_factory):
  root = tmp_path_factory.mktemp("visited")
  rng = np.random.default_rng(0)
  for name, count in (("a", 23), ("b", 17), ("c", 9)):
    lengths = rng.integers(0, 40, count)
    lengths[2] = 70
    documents = [rng.integers(2, 250, n) for n in lengths]
    testing_stores.make_store(root / name, documents, chunk=32)
  for name, count in (("photos", 40), ("scans", 25)):
    samples = []
    for _ in range(count):
      height, width = SIZES[int(rng.integers(len(SIZES)))]
      pixels = np.zeros((height, width), np.uint8)
      samples.append(({"pixels": pixels}, {"height": height, "width": width}))
    write = samples_array_record.write_samples
    if name != "photos":
      write = save_to_disk.save_to_disk
    write(root / name, samples)
  (root / "gone.jsonl").write_text(
    '{"source": "a", "document": 1}\n{"source": "a", "document": 0}\n'
    '{"source": "a", "document": 2, "start": 9, "length": 30}\n'
  )
  return root


def one_of(*values):
  return st.sampled_from(values)


ORDERED = one_of("none", "block", "full")
ROWS = st.one_of(
  st.fixed_dictionaries(
    {"kind": st.just("sequential"), "tail": one_of("drop", "pad")},
    optional={
      "shuffle_documents": ORDERED,
      "reshuffle_documents": st.booleans(),
      "add_eos": st.booleans(),
    },
  ),
  st.fixed_dictionaries(
    {
      "kind": st.just("bin"),
      "packing_algorithm": one_of("ffd", "exact"),
      "packing_buffer_docs": one_of(4, 7, 50),
      "document_block": st.none(),
      "long_documents": one_of("cut", "truncate", "drop"),
    },
    optional={
      "shuffle_documents": ORDERED,
      "reshuffle_documents": st.booleans(),
      "shuffle_rows": st.booleans(),
      "add_eos": st.booleans(),
    },
  ),
  st.fixed_dictionaries(
    {"kind": st.just("multi_splice"), "num_docs": one_of(2, 9)},
    optional={
      "content_length": one_of(None, 5, 12),
      "content_start_mode": one_of(
        "coverage_balanced", "slide_within", "anchor_start", "cyclic_roll"
      ),
      "offset_stride": one_of(3, 5),
      "epoch_length": one_of(None, 31),
      "shuffle_content": st.booleans(),
      "balance_mode": one_of("by_temperature", "by_document", "enumerate"),
    },
  ),
  st.fixed_dictionaries(
    {
      "kind": st.just("multi_splice"),
      "num_docs": st.just(6),
      "curriculum_start": one_of(1, 3),
      "curriculum_every": one_of(5, 40),
      "content_length": st.just(8),
    }
  ),
  st.fixed_dictionaries({"kind": st.just("windows")}),
)
SHUFFLES = st.one_of(
  st.just({"kind": "none"}),
  st.just({"kind": "full"}),
  st.fixed_dictionaries({"kind": st.just("era"), "era_length": one_of(1, 7)}),
  st.fixed_dictionaries(
    {"kind": st.just("block"), "window_blocks": one_of(1, 3)},
    optional={"lanes": one_of(2, 3)},
  ),
)


@st.composite
def sources(draw, root, name):
  """Returns a source of rows; its later stores may join at an epoch."""
  rows, shuffle = draw(ROWS), dict(draw(SHUFFLES))
  if rows["kind"] != "bin" and shuffle["kind"] == "block":
    shuffle["io_block_size"] = draw(one_of(1, 4))
  own = {"rows": rows, "shuffle": shuffle, "store": str(root / name)}
  if "curriculum_every" not in rows and draw(st.booleans()):
    own["store"] = (str(root / name), str(root / "c"))
    own["joined"] = (0, draw(one_of(0, 1, 2)))
  return own


@st.composite
def row_runs(draw, root):
  """Returns a run of rows: of one source, or of a mix in stages."""
  names = draw(one_of(("a",), ("a", "b")))
  data = {
    "seq_len": SEQ_LEN,
    "global_batch_size": draw(one_of(1, 4, 5)),
    "epochs": draw(one_of(None, 1, 3)),
    "seed": draw(one_of(0, 7)),
    "remainder": draw(one_of("drop", "pad")),
    "sources": {name: draw(sources(root, name)) for name in names},
  }
  if draw(st.booleans()):
    data["skip"] = ((2, 3), (8, draw(one_of(8, 11))))
  if draw(st.booleans()):
    data["tombstones"] = ((draw(one_of(0, 6)), str(root / "gone.jsonl")),)
  if len(names) > 1:
    data["mix"] = {
      "kind": "weighted",
      "unit": draw(one_of("rows", "tokens")),
      "stages": ((0, {"a": 1, "b": draw(one_of(1, 0.3))}),),
    }
    policy = draw(one_of("drop", "first_exhausted", "all_exhausted"))
    data["mix"]["exhaustion"] = policy
    if draw(st.booleans()):
      more = draw(one_of({"a": 1}, {"b": 1}, {"a": 0.2, "b": 2}))
      data["mix"]["stages"] += ((draw(one_of(2, 9)), more),)
  return data


@st.composite
def bucket_runs(draw, root):
  """Returns a run of text in buckets of lengths, or of arrays in sizes."""
  text = draw(st.booleans())
  names = ("a", "b") if text else ("photos", "scans")
  data = {
    "seed": 3,
    "epochs": draw(one_of(None, 1, 2)),
    "remainder": "pad",
    "sources": {name: {"store": str(root / name)} for name in names},
    "mix": {"weights": dict(zip(names, (1, 0.4), strict=True))},
  }
  if text:
    data["buckets"] = {
      "kind": "length",
      "lengths": (8, 16, 32),
      "tokens_per_batch": draw(one_of(64, 96)),
      "assign": draw(one_of("least_waste", "powers_of_two")),
    }
    buckets = ({"8": 1, "16": 1, "32": 1}, {"16": 1, "32": 3})
  else:
    data["global_batch_size"] = draw(one_of(3, 5))
    data["buckets"] = {
      "kind": "resolution",
      "sizes": SIZES,
      "fields": ("pixels",),
    }
    buckets = ({"4x6": 1, "6x4": 2, "8x8": 1}, {"6x4": 1, "8x8": 3})
  if data["epochs"] is None and draw(st.booleans()):
    data["buckets"]["stages"] = ((0, buckets[0]), (7, buckets[1]))
  if draw(st.booleans()):
    data["remainder"] = "drop"
  return data


def every_visit(pipe, steps):
  """Returns (step, row, start, length, column) by document, if not gone."""
  found = {}
  for step in range(steps):
    planned = pipe.run_plan.planned(step)
    spans = planned.spans
    if spans is None:
      name, _ = pipe.bucket_of(step)
      own = pipe.batch(step)["sample_id"]
      for row, sample in enumerate(own.tolist()):
        if sample >= 0:
          visit = (step, row, None, None, None)
          found.setdefault((name, sample), []).append(visit)
      continue
    spans = spans.live()
    columns = (spans.source, spans.document, spans.row, spans.start,
               spans.length, spans.column)  # fmt: skip
    for source, document, *where in zip(
      *(own.tolist() for own in columns), strict=True
    ):
      key = pipe.source_names[source], document
      found.setdefault(key, []).append((step, *where))
  return found


def shown(found):
  return [(v.step, v.row, v.start, v.length, v.column) for v in found]


def check(pipe, middle):
  steps = STEPS if pipe.num_steps is None else min(STEPS, pipe.num_steps)
  expected = every_visit(pipe, steps)
  middle = min(middle, steps)
  for name in pipe.source_names:
    counted = [
      visits_lib.exposures(pipe, name, low, steps) for low in (0, middle)
    ]
    for document in range(
      middle % 4, answers.of(pipe.run_plan).num_documents(name), 4
    ):
      wanted = expected.get((name, document), [])
      own = visits_lib.Visits(pipe, name, document)
      past = [v for v in wanted if v[0] < middle]
      coming = wanted[len(past) :]
      where = f"{name}/#{document}"
      found = [own[document] for own in counted]
      assert found == [len(wanted), len(coming)], where
      assert own.count_before(middle) == len(past), where
      assert own.count_before(steps) == len(wanted), where
      found = list(
        itertools.takewhile(lambda v: v.step < steps, own.next_visits(middle))
      )
      assert shown(found) == coming, where
      exposures = [v.exposure for v in found]
      assert exposures == list(range(len(past) + 1, len(wanted) + 1)), where
      back = list(own.previous_visits(middle))
      assert shown(back) == past[::-1], where
      assert [v.exposure for v in back] == list(range(len(past), 0, -1)), where


@pytest.mark.parametrize(("runs", "count"), [(row_runs, 60), (bucket_runs, 16)])
def test_visits_are_those_of_every_step_planned(root, runs, count):
  @laws.examples(count)
  @hypothesis.given(runs(root), st.integers(0, STEPS))
  def law(data, middle):
    try:
      pipe = pipeline.build(data)
    except ValueError:
      hypothesis.reject()
    check(pipe, middle)

  law()
