# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Visits of documents, against every step planned."""

import itertools
import json
import pathlib

import hypothesis
from hypothesis import strategies as st
import pytest

from chomp_data import pipeline
from chomp_data.audit import visits as visits_lib
from chomp_data.plans import answers
from tests import laws
from tests.audit import small_runs

STEPS = 30


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
  root = tmp_path_factory.mktemp("visited")
  for name in small_runs.NAMES:
    lines = [
      {"source": name, "document": 1},
      {"source": name, "document": 0},
      {"source": name, "document": 2, "start": 0, "length": 1},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (root / f"gone_{name}.jsonl").write_text(text)
  return small_runs.make_stores(root)


@st.composite
def of_any(draw, paths):
  """Returns a run of rows or of buckets, with documents that are gone."""
  data = draw(small_runs.of_any(paths))
  if draw(st.booleans(), "gone"):
    name = draw(st.sampled_from(sorted(data["sources"])))
    path = pathlib.Path(paths[name]).parent / f"gone_{name}.jsonl"
    data["tombstones"] = ((draw(st.sampled_from((0, 6))), str(path)),)
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


def check(pipe, middle, steps=STEPS):
  steps = steps if pipe.num_steps is None else min(steps, pipe.num_steps)
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
      for visit in found:
        step = pipe.run_plan.steps.data_step(visit.step)
        assert visit.data_step == step, where
      exposures = [v.exposure for v in found]
      assert exposures == list(range(len(past) + 1, len(wanted) + 1)), where
      back = list(own.previous_visits(middle))
      assert shown(back) == past[::-1], where
      assert [v.exposure for v in back] == list(range(len(past), 0, -1)), where


def test_visits_are_those_of_every_step_planned(paths):
  """Joined stores, lanes, sizes and modes of splices: tests/catalogue."""

  @laws.examples(60)
  @hypothesis.given(of_any(paths), st.integers(0, STEPS))
  def law(data, middle):
    try:
      pipe = pipeline.build(data)
    except ValueError:
      hypothesis.reject()
    check(pipe, middle)

  law()


@pytest.mark.parametrize("kind", ["rows", "length"])
def test_visits_where_a_skip_passes_the_end_of_the_run(paths, kind):
  """Before the step after the last one are all visits, and none from it on."""
  data = {
    "epochs": 1,
    "sources": {"web": {"store": paths["web"]}},
    "skip": ((4, 1_000),),
  }
  if kind == "rows":
    data |= {"seq_len": 16, "global_batch_size": 4}
  else:
    lengths = {"lengths": (8, 16, 32), "tokens_per_batch": 64}
    data["buckets"] = {"kind": "length", **lengths}
    data["remainder"] = "pad"
  pipe = pipeline.build(data)
  assert pipe.num_steps == 4
  check(pipe, 4)
