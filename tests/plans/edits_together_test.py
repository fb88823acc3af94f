# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Skips, batch sizes and tombstones of one run, against plain Python.

The reference is the run without edits, of rows in batches of one row: data
steps are counted off in it, those that are skipped are left out, and positions
that are gone are taken away one by one. Every answer is then a count of what is
left.
"""

import collections
import copy
import json

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data import pipeline
from chomp_data import schema
from chomp_data.audit import coverage
from chomp_data.audit import difference
from chomp_data.audit import forecast
from chomp_data.audit import visits
from chomp_data.plans import answers
from chomp_data.plans import occurrences
from tests import laws
from tests.audit import small_runs
from tests.audit import visits_test

MOST = 26  # data steps looked at
LAST_EDIT = 20


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
  return small_runs.make_stores(tmp_path_factory.mktemp("together"))


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
  return tmp_path_factory.mktemp("gone")


@st.composite
def ranges(draw):
  """Ranges of data steps that are skipped."""
  edges = draw(st.lists(st.integers(0, LAST_EDIT), unique=True, max_size=4))
  edges = sorted(edges)[: len(edges) // 2 * 2]
  return tuple(zip(edges[::2], edges[1::2], strict=True))


@st.composite
def sizes(draw):
  """A schedule of batch sizes."""
  changes = draw(st.lists(st.integers(1, LAST_EDIT), unique=True, max_size=2))
  return tuple((at, draw(st.integers(1, 5))) for at in [0, *sorted(changes)])


@st.composite
def gone_documents(draw, names):
  """((data step, {(source, document): (start, length)}), ...)."""
  out = []
  for at in sorted(
    draw(st.lists(st.integers(0, LAST_EDIT), unique=True, max_size=2))
  ):
    own = {}
    seed = draw(st.integers(0, 2**16))
    rng = np.random.default_rng(seed)
    share = draw(st.sampled_from((0.1, 0.5, 0.9)))
    for name in names:
      for document in range(30 + 10 * small_runs.NAMES.index(name)):
        if rng.random() < share:
          start = int(rng.integers(0, 20)) if rng.random() < 0.5 else None
          length = int(rng.integers(1, 9)) if rng.random() < 0.5 else None
          own[name, document] = start, length
    out.append((at, own))
  return tuple(out)


@st.composite
def edits(draw, data):
  """All edits of a run."""
  names = sorted(data["sources"])
  out = {"skip": draw(ranges()), "gone": draw(gone_documents(names))}
  if "buckets" not in data:
    out["sizes"] = draw(sizes())
  return out


@st.composite
def runs(draw, paths, kind):
  """(config without edits, two edits of it)."""
  kinds = {"rows": small_runs.of_rows, "buckets": small_runs.of_buckets}
  data = draw(kinds[kind](paths))
  for name in ("skip", "batch_size_schedule", "global_batch_size"):
    data.pop(name, None)
  if kind == "rows":
    data["mask_boundary_loss"] = False
    data["lookahead"] = draw(st.booleans())
  else:
    data["buckets"]["assign"] = draw(
      st.sampled_from(("least_waste", "powers_of_two"))
    )
  for own in data["sources"].values():
    kept = own["rows"].get("kind", "sequential") in ("sequential", "bin")
    if kept and draw(st.booleans()):
      own["rows"] = {**own["rows"], "add_bos": True, "bos_token_id": 2}
  first = draw(edits(data))
  second = {**first}
  for name in draw(st.sets(st.sampled_from(sorted(first)))):
    second[name] = draw(edits(data))[name]
  return data, (first, second)


class Reference:
  """What a run with edits hands out, position by position."""

  def __init__(self, data, edit, directory):
    self.edit, self.data = edit, data
    lengths = {}
    for name, own in data["sources"].items():
      one = {"seq_len": 16, "global_batch_size": 1, "sources": {name: {
        "store": own["store"], "rows": {"kind": "sequential"}}}}  # fmt: skip
      store = pipeline.build(one).sources[name].store
      count = store.num_documents
      lengths[name] = store.bounds(np.arange(count))[1].tolist()
    self.lengths = lengths
    self.gone = [
      (at, {k: v for k, v in own.items() if self._fits(k, v)})
      for at, own in edit["gone"]
    ]
    plain = copy.deepcopy(data)
    if "buckets" not in data:
      plain["global_batch_size"] = 1
      if "mix" in plain:
        plain["mix"]["stages"] = [
          (self.first_row(at), own) for at, own in plain["mix"]["stages"]
        ]
    self.plain = pipeline.build(plain)
    self._read_steps = {}
    self.steps = self._steps()
    self.path = directory

  def _fits(self, key, value):
    name, document = key
    start, length = value
    whole = self.lengths[name][document]
    if start is None and length is None:
      return True
    start = start or 0
    return start < whole and (length is None or start + length <= whole)

  def config(self):
    """`config.data` of the edited run."""
    out = {**copy.deepcopy(self.data), "skip": self.edit["skip"]}
    if "buckets" not in self.data:
      out["batch_size_schedule"] = self.edit["sizes"]
    files = []
    for i, (at, own) in enumerate(self.gone):
      lines = []
      for (name, document), (start, length) in own.items():
        line = {"source": name, "document": document}
        line |= {} if start is None else {"start": start}
        line |= {} if length is None else {"length": length}
        lines.append(json.dumps(line))
      text = "\n".join(lines)
      file = self.path / f"{abs(hash(text))}-{i}.jsonl"
      file.write_text(text)
      files.append((at, str(file)))
    if files:
      out["tombstones"] = tuple(files)
    return out

  def size(self, step):
    """Rows of a data step."""
    if "buckets" in self.data:
      return self.plain.plan(step).num_rows
    return [n for at, n in self.edit["sizes"] if at <= step][-1]

  def first_row(self, step):
    """The first row of a data step."""
    return sum(self.size(own) for own in range(step))

  def _steps(self):
    """The data steps that are handed out, among the first."""
    end, out = self.plain.num_steps, []
    for step in range(MOST):
      if end is not None:
        if "buckets" in self.data:
          over = step >= end
        elif self.data["remainder"] == "drop":
          over = self.first_row(step + 1) > end
        else:
          over = self.first_row(step) >= end
        if over:
          self.ended = True
          break
      if not any(low <= step <= high for low, high in self.edit["skip"]):
        out.append(step)
    else:
      self.ended = False
    return out

  def rows(self, step):
    """Rows of a data step: lists of (positions, trained, filler)."""
    if step not in self._read_steps:
      self._read_steps[step] = self._rows(step)
    return self._read_steps[step]

  def _rows(self, step):
    if "buckets" in self.data:
      spans, batch = self.plain.plan(step), self.plain.canonical(step)
      return [
        self._row(step, spans.rows(i, i + 1), batch["loss_mask"][i],
                  batch["source_id"][i])
        for i in range(spans.num_rows)
      ]  # fmt: skip
    first, out = self.first_row(step), []
    for row in range(first, first + self.size(step)):
      end = self.plain.num_steps
      if end is not None and row >= end:
        out.append(([], 0, None))
        continue
      spans, batch = self.plain.plan(row), self.plain.canonical(row)
      out.append(
        self._row(step, spans, batch["loss_mask"][0], batch["source_id"][0])
      )
    return out

  def _row(self, step, spans, loss_mask, source):
    units, live, lost = [], set(), []
    for i in range(len(spans)):
      name = self.plain.source_names[int(spans.source[i])]
      document = int(spans.document[i])
      bos = spans.added_before is not None and bool(spans.added_before[i])
      eos = spans.added_after is not None and bool(spans.added_after[i])
      start, column = int(spans.start[i]), int(spans.column[i])
      length, whole = int(spans.length[i]), self.lengths[name][document]
      unit = None
      for k in range(length):
        token = start + k - bos
        asked = token
        if bos and not k:
          asked = 0
        if eos and k == length - 1:
          asked = whole - 1
        if self._is_gone(step, name, document, asked if whole else None):
          lost.append((name, document, token, column + k))
          unit = None
          continue
        live.add(column + k)
        if unit is None:
          unit = [name, document, max(token, start), 0, column + k, 0]
          units.append(unit)
        unit[3] += 1
        stored = (bos and not k) or (eos and k == length - 1)
        unit[5] += not stored
    trained = sum(
      bool(loss_mask[c]) and c in live and c + 1 in live
      for c in range(len(loss_mask) - 1)
    )
    name = None if source < 0 else self.plain.source_names[int(source)]
    return [tuple(own) for own in units], trained, name, tuple(lost)

  def _is_gone(self, step, name, document, token):
    for at, own in self.gone:
      if at > step or (name, document) not in own:
        continue
      start, length = own[name, document]
      begin = start or 0
      whole = self.lengths[name][document]
      end = whole if length is None else begin + length
      if token is None or begin <= token < end:
        return True
    return False


def units_of(pipe, step):
  """What a step hands out, by row: (name, document, start, length, column)."""
  spans = pipe.plan(step)
  out = [[] for _ in range(spans.num_rows)]
  live = spans.live()
  for i in range(len(live)):
    stored = int(live.stored()[0][i])
    out[int(live.row[i])].append(
      (
        pipe.source_names[int(live.source[i])],
        int(live.document[i]),
        int(live.start[i]),
        int(live.length[i]),
        int(live.column[i]),
        stored,
      )
    )
  return out


def check(reference, pipe, data):
  """Compares all answers."""
  steps = reference.steps
  if reference.ended:
    assert pipe.num_steps == len(steps)
  handed = []
  for step, own in enumerate(steps):
    assert pipe.run_plan.steps.data_step(step) == own
    assert pipe.run_plan.steps.run_step(own) == step
    wanted = [row[0] for row in reference.rows(own)]
    found = units_of(pipe, step)
    if pipe.run_options.kind == "rows" and pipe.accounts.questions.stages:
      assert collections.Counter(map(tuple, found)) == collections.Counter(
        map(tuple, wanted)
      ), step
    else:
      assert found == wanted, step
    handed.append(found)
  if pipe.run_options.kind == "rows":
    check_begins(reference, pipe)
  told = {name: [0, 0, 0] for name in pipe.source_names}
  positions = filler = 0
  for step in range(len(steps) + 1):
    for name, own in pipe.accounts.at(step).items():
      assert [own.rows, own.tokens, own.loss_tokens] == told[name], (step, name)
    found = forecast.forecast(pipe, step)
    assert found.rows == sum(own[0] for own in told.values())
    assert found.filler_rows == filler
    assert found.positions == positions
    assert found.tokens == sum(own[1] for own in told.values())
    assert found.loss_tokens == sum(own[2] for own in told.values())
    assert found.padding == positions - found.tokens
    if step == len(steps):
      break
    width = pipe.buckets[pipe.run_plan.planned(step).bucket].shape[0]
    for units, trained, name, *_ in reference.rows(steps[step]):
      positions += width
      if name is None:
        filler += 1
        continue
      told[name][0] += 1
      told[name][1] += sum(own[3] for own in units)
      told[name][2] += trained
  low = data.draw(st.integers(0, len(steps)))
  high = data.draw(st.integers(low, len(steps)))
  for name in pipe.source_names:
    flat = [
      (step, row, *unit[1:])
      for step, own in enumerate(handed)
      for row, units in enumerate(own)
      for unit in units
      if unit[0] == name
    ]
    counts = np.zeros(answers.of(pipe.run_plan).num_documents(name), np.int64)
    for step, _, document, *_ in flat:
      counts[document] += low <= step < high
    assert np.array_equal(visits.exposures(pipe, name, low, high), counts)
    seen = {own[2] for own in flat if own[0] < high and own[-1]}
    found = occurrences.documents_read(pipe.run_plan, name, len(counts), high)
    assert set(found.tolist()) == seen
    (own,) = (
      c for c in coverage.coverage(pipe, high - low, low) if c.source == name
    )
    tokens = collections.Counter()
    for step, _, document, _, _, _, stored in flat:
      if low <= step < high and stored:
        tokens[document] += stored
    assert dict(
      zip(own.document.tolist(), own.tokens.tolist(), strict=True)
    ) == dict(tokens)
  visits_test.check(pipe, data.draw(st.integers(0, len(steps))), len(steps))


def check_begins(reference, pipe):
  """Compares at which steps sources begin again; skipped rows are passed."""
  found = forecast.forecast(pipe, len(reference.steps)).sources
  taken = collections.Counter()
  begins = {name: [] for name in pipe.source_names}
  for step in range(MOST):
    before = sum(own < step for own in reference.steps)
    if before == len(reference.steps):
      break
    for _, _, name, *_ in reference.rows(step):
      if name is None:
        continue
      rows = len(pipe.sources[name])
      if taken[name] and not taken[name] % rows:
        begins[name].append(before)
      taken[name] += 1
  for name, own in begins.items():
    rows = reference.data["sources"][name]["rows"]
    if rows["kind"] != "bin" and "shuffle_documents" not in rows:
      hypothesis.event(f"begins {min(len(own), 2)}")
      assert list(found[name].begins) == own[:8], name


def built(data, edit, directory):
  try:
    reference = Reference(data, edit, directory)
    return reference, pipeline.build(reference.config())
  except schema.ConfigError as error:
    hypothesis.event(error.problems[0][:60])
    hypothesis.reject()


@pytest.mark.parametrize("kind", ["rows", "buckets"])
@laws.examples(10, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(data=st.data())
def test_all_answers_are_those_of_a_count(paths, directory, kind, data):
  config, (one, other) = data.draw(runs(paths, kind))
  a, pipe = built(config, one, directory)
  check(a, pipe, data)
  b, second = built(config, other, directory)
  steps = (
    min(len(a.steps), len(b.steps))
    if not (a.ended and b.ended)
    else max(len(a.steps), len(b.steps))
  )
  content = [
    [
      sorted(map(repr, own.rows(step)))
      if pipe.accounts.questions.stages
      else own.rows(step)
      for step in own.steps
    ]
    for own in (a, b)
  ]
  first = next(
    (i for i in range(steps) if content[0][i : i + 1] != content[1][i : i + 1]),
    None,
  )
  found = difference.difference(pipe, second, steps)
  hypothesis.event(f"first {first if first is None else min(first, 3)}")
  assert found.first_step == first
  # A run that goes on from a checkpoint with other edits ahead of it.
  at = data.draw(st.integers(0, min(len(a.steps), len(b.steps))))
  if not difference.changes(pipe, second, at):
    hypothesis.event("goes on with other edits" if one != other else "goes on")
    assert first is None or first >= at
    again = pipeline.build(b.config())
    assert not again.accounts.restore(pipe.accounts.record(at), at)
    for step in data.draw(st.permutations(range(at, len(b.steps) + 1))):
      assert again.accounts.at(step) == second.accounts.at(step), step
