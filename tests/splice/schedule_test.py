# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Splices in a mix: curricula, schedules, groups and own steps of documents."""

import collections
from fractions import Fraction
import functools
import itertools
import math

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

import chomp_data
from chomp_data import schema
from chomp_data import stores
from chomp_data.sources import mix_units
from chomp_data.sources import prefix_sums
from tests import laws

TOKENIZER = stores.TokenizerInfo(
  kind="custom", sha256="0" * 64, vocab_size=256, pad_id=0, eos_id=1
)
SEQ_LEN = 8
LENGTHS = [30, 12, 25, 9, 40]
# What hypothesis draws from, so that few stores are written.
DRAWN = (
  (8,), (30,), (9, 9), (8, 30), (21, 8, 13), (8, 9, 10), (30, 30, 11, 12),
  (17, 8, 29, 8), (8, 8, 8, 8, 8), (30, 21, 9, 14, 8), (12, 25, 30, 28, 11),
  (9, 19, 9, 27, 23),
)  # fmt: skip


@pytest.fixture
def make(make_store):
  """Builds a source over documents of given lengths."""

  def build(lengths, seq_len=SEQ_LEN, seed=3, meta=None, **options):
    store = make_store(tuple(lengths), meta and tuple(meta))
    return chomp_data.SpliceSource(
      store, multi(num_docs=len(lengths), **options), seq_len=seq_len, seed=seed
    )

  return build


@pytest.fixture(scope="module")
def make_store(tmp_path_factory):
  """Writes documents of given lengths once each."""
  root, number = tmp_path_factory.mktemp("splice_mix"), itertools.count()

  @functools.cache
  def build(lengths, meta=None):
    return stores.write_store(
      root / str(next(number)),
      [np.arange(n) % 250 for n in lengths],
      meta=meta,
      tokenizer_info=TOKENIZER,
    )

  return build


def multi(**changes):
  return chomp_data.MultiSpliceOptions(
    **{"doc_select_mode": "first", **changes}
  )


def splices(source, rows):
  """Returns (document, t, s, c) of rows."""
  spans = source.plan(np.asarray(rows, np.int64))
  # A copy that wraps at its document's end is two spans.
  row, first = np.unique(spans.row, return_index=True)
  assert row.tolist() == list(range(len(rows)))
  return list(
    zip(
      spans.document[first].tolist(),
      spans.start[first].tolist(),
      spans.column[first].tolist(),
      spans.row_sums(spans.length).tolist(),
      strict=True,
    )
  )


def shuffled(source, kind="full", **changes):
  return chomp_data.ShuffledSource(
    source, chomp_data.ShuffleOptions(kind=kind, **changes), 5
  )


# --- a slow model: one row after the other, in fractions -------------------


def slow_shares(weights, total):
  """Splits by largest remainder, ties to the first."""
  whole = sum(weights.values())
  exact = {key: Fraction(w) * total / whole for key, w in weights.items()}
  out = {key: math.floor(value) for key, value in exact.items()}
  order = sorted(exact, key=lambda key: (out[key] - exact[key], key))
  for key in order[: total - sum(out.values())]:
    out[key] += 1
  return out


def slow_quotas(model, documents, total):
  groups = {d: model["groups"].get(d, "rest") for d in documents}
  tau = 0 if model["mode"] == "by_document" else model["tau"]
  weights = {
    d: model["weights"].get(d, Fraction(1))
    * Fraction(model["lengths"][d], model["strides"][d]) ** tau
    for d in documents
  }
  if not model["groups"]:
    return slow_shares(weights, total)
  totals = slow_shares(
    {name: model["group_weights"].get(name, 1) for name in groups.values()},
    total,
  )
  out = {}
  for name, rows in totals.items():
    own = {d: w for d, w in weights.items() if groups[d] == name}
    out.update(slow_shares(own, rows))
  return out


def slow_start(model, document, length, k, quota, number, in_ramp):
  starts = slow_starts(model, document, length)
  if model["mode"] == "by_document":
    before = number * quota if in_ramp else 0
    return starts[(before + k) % len(starts)]
  within = Fraction(1, 2)
  if in_ramp:
    turn = int(f"{number % 16:04b}"[::-1], 2)
    within = Fraction(2 * turn + 1, 32)
  span = model["lengths"][document] - length
  weights = [
    Fraction(length, min(t + 1, span - t + 1, length))
    ** model["alpha"][document]
    for t in starts
  ]
  target = (k + within) / quota * sum(weights)
  seen = Fraction(0)
  for t, weight in zip(starts, weights, strict=True):
    seen += weight
    if seen > target:
      return t
  raise AssertionError


def copied(model, document, limit):
  return min(model["lengths"][document], limit, SEQ_LEN - model["jitter"])


def slow_starts(model, document, length):
  last = model["lengths"][document] - length
  return list(range(0, last + 1, model["strides"][document]))


def slow_rows(model, count):
  """Yields (document, t, s, c) of rows 0 .. count - 1."""
  number = row = 0
  while row < count:
    documents, limit, entry = model["at"](row)
    in_ramp = row < model["last_change"]
    end = row + 1
    while in_ramp and model["at"](end) == (documents, limit, entry):
      end += 1
    while (row < end or not in_ramp) and row < count:
      own = {d: copied(model, d, limit) for d in range(documents)}
      num = {d: len(slow_starts(model, d, c)) for d, c in own.items()}
      size = model["epoch_length"] or (
        len(num) * max(num.values())
        if model["mode"] == "by_document"
        else sum(num.values())
      )
      if in_ramp:
        size = min(size, end - row)
      index = 0
      for document, quota in sorted(
        slow_quotas(model, range(documents), size).items()
      ):
        for k in range(quota):
          t = slow_start(
            model, document, own[document], k, quota, number, in_ramp
          )
          shift = (index + number) % (model["jitter"] + 1)
          yield document, t, SEQ_LEN - own[document] - shift, own[document]
          index += 1
      row += size
      number += 1


def drawn_model(data):
  """Draws options and the model that they must agree with."""
  draw = data.draw
  lengths = draw(st.sampled_from(DRAWN))
  count = len(lengths)
  every = draw(st.none() | st.integers(1, 30))
  start = draw(st.none() | st.integers(1, count)) if every else None
  rows = draw(st.lists(st.integers(1, 70), max_size=2, unique=True))
  schedule = [(row, draw(st.integers(2, 9))) for row in sorted(rows)]
  names = {d: draw(st.sampled_from(["a", "b", "rest"])) for d in range(count)}
  grouped = {d: name for d, name in names.items() if name != "rest"}
  if draw(st.booleans()):
    grouped = {}
  mode = draw(st.sampled_from(["by_temperature", "by_coverage", "by_document"]))
  tau = draw(st.sampled_from([0, 1])) if mode == "by_temperature" else 1
  alpha = draw(st.sampled_from([0, 1])) if mode != "by_document" else 0
  model = {
    "lengths": lengths,
    "mode": mode,
    "tau": tau,
    "epoch_length": draw(st.none() | st.integers(1, 40)),
    "jitter": draw(st.integers(0, 2)),
    "groups": grouped,
    "group_weights": {"a": Fraction(3)} if "a" in grouped.values() else {},
    "weights": {},
    "strides": [1] * count,
    "alpha": [alpha] * count,
  }
  overrides = {}
  for d in draw(st.sets(st.integers(0, count - 1), max_size=2)):
    fields = {"content_stride": draw(st.integers(1, 4))}
    model["strides"][d] = fields["content_stride"]
    if mode != "by_document" and draw(st.booleans()):
      fields["alpha"] = 1 - alpha
      model["alpha"][d] = 1 - alpha
    overrides[str(d)] = fields
  if mode != "by_document" and draw(st.booleans()):
    model["weights"] = {0: Fraction(5, 2)}
  content_length = draw(st.integers(2, 8))

  def at(row):
    limits = [content_length] + [k for first, k in schedule if first <= row]
    documents = count
    if every:
      documents = min(count, (start or 1) + row // every)
    return documents, limits[-1], len(limits)

  model["at"] = at
  ends = [first for first, _ in schedule]
  if every:
    ends.append((count - (start or 1)) * every)
  model["last_change"] = max(ends, default=0)
  members = collections.defaultdict(list)
  for d, name in grouped.items():
    members[name].append(str(d))
  options = {
    "content_length": content_length,
    "curriculum_start": start,
    "curriculum_every": every,
    "content_length_schedule": schedule or None,
    "balance_mode": mode,
    "balance_tau": float(tau),
    "alpha": float(alpha),
    "epoch_length": model["epoch_length"],
    "offset_jitter": model["jitter"],
    "jitter_mode": "low_discrepancy",
    "groups": dict(members) or None,
    "group_weights": {"a": 3} if model["group_weights"] else None,
    "doc_overrides": overrides or None,
    "doc_weights": {"0": 2.5} if model["weights"] else None,
  }
  return model, options


@laws.examples(
  100,
  suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
@hypothesis.given(data=st.data())
def test_every_row_is_that_of_a_slow_loop(make, data):
  model, options = drawn_model(data)
  source = make(model["lengths"], **options)
  count = data.draw(st.integers(1, 160))
  expected = list(itertools.islice(slow_rows(model, count), count))
  assert splices(source, np.arange(count)) == expected
  # Any rows in any order are the same: what a resume at them reads.
  rows = data.draw(st.lists(st.integers(0, count - 1), max_size=20))
  assert splices(source, rows) == [expected[row] for row in rows]


@laws.examples(
  40,
  suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
@hypothesis.given(data=st.data())
def test_epochs_follow_each_other_and_stay_the_same_after_the_ramp(make, data):
  model, options = drawn_model(data)
  source = make(model["lengths"], **options)
  epochs = np.arange(source.epochs.ramp + 3)
  first = source.epochs.first_row(epochs)
  sizes = np.diff(first)
  assert first[0] == 0
  assert sizes.min() > 0
  assert len(source) == sizes[0]
  epoch, index = source.epochs.locate(np.arange(first[-1]))
  assert epoch.tolist() == np.repeat(epochs[:-1], sizes).tolist()
  assert (first[epoch] + index).tolist() == list(range(int(first[-1])))
  assert first[source.epochs.ramp] >= model["last_change"]
  for number in epochs[:-1].tolist():
    rows = np.arange(first[number], first[number + 1])
    counts = np.bincount(
      source.plan(rows).document, minlength=len(model["lengths"])
    )
    assert counts.tolist() == source.quotas(int(rows[0])).tolist()
  assert source.quotas().tolist() == counts.tolist()


# --- curriculum ------------------------------------------------------------


@pytest.mark.parametrize("kind", ["full", "block"])
def test_a_curriculum_reads_the_first_documents_in_any_order(make, kind):
  source = make(
    LENGTHS, content_length=6, curriculum_start=2, curriculum_every=17
  )
  changes = {"block": {"io_block_size": 4}}
  ordered = shuffled(source, kind, **changes.get(kind, {}))
  rows = np.arange(200)
  documents = ordered.plan(rows).document
  allowed = np.minimum(5, 2 + rows // 17)
  assert (documents < allowed).all()
  # The newest document has come in every phase of the ramp.
  newest = [documents[17 * p : 17 * p + 17].max() for p in range(3)]
  assert newest == [1, 2, 3]
  assert sorted(splices(ordered, rows[:17])) == sorted(
    splices(source, rows[:17])
  )


def test_short_phases_read_other_starts_each_time(make):
  """Of a document with one row a phase, 16 phases read 16 starts."""
  source = make([83] * 40, content_length=4, curriculum_every=40)
  spans = source.plan(np.arange(40 * 20, 40 * 36))
  starts = spans.start[spans.document == 0]
  assert len(set(starts.tolist())) > 12
  assert len(starts) <= 32


def test_the_last_phase_goes_on_for_ever_by_random_access(make):
  source = make(
    LENGTHS,
    content_length=6,
    alpha=0.8,
    curriculum_every=1_000,
    content_length_schedule=[(2_500, 4)],
  )
  first = int(source.epochs.first_row(np.asarray([source.epochs.ramp]))[0])
  assert first == 4_000
  size = int(source.quotas().sum())
  far = first + (10**12 - first) // size * size
  rows = np.arange(far - 3 * size, far + 100)
  assert splices(source, rows) == splices(source, first + (rows - far) % size)


def test_jitter_and_shuffled_starts_differ_between_passes_of_a_ramp(make):
  source = make(
    [40, 40],
    content_length=4,
    curriculum_every=111,
    offset_jitter=2,
    shuffle_content=True,
  )
  first, second = (splices(source, np.arange(37) + 37 * i) for i in range(2))
  assert [s[1] for s in first] != [s[1] for s in second]
  assert sorted(s[1] for s in first) == sorted(s[1] for s in second)
  assert {s[2] for s in first} == {2, 3, 4}


# --- content_length by row -------------------------------------------------


def test_validation_rows_have_the_last_content_length(make):
  source = make([60], content_length=2, content_length_schedule=[(9, 6)])
  grid = source.validation(num_starts=2, num_offsets=2)
  assert grid.plan(np.arange(1)).length.tolist() == [6]


# --- groups ----------------------------------------------------------------


def test_groups_can_come_from_what_the_store_keeps(make):
  options = {"content_length": 4, "epoch_length": 60}
  source = make(
    [50] * 4, meta=["law", "", "law", "code"], group_by_meta=True, **options
  )
  assert source.quotas().tolist() == [10, 20, 10, 20]
  listed = make([50] * 4, groups={"law": ["0", "2"], "code": ["3"]}, **options)
  assert listed.quotas().tolist() == source.quotas().tolist()
  weighted = make(
    [50] * 4,
    meta=["law", "", "law", "code"],
    group_by_meta=True,
    group_weights={"law": 3, "rest": 2},
    **options,
  )
  assert weighted.quotas().tolist() == [15, 20, 15, 10]


def test_groups_can_be_of_documents_as_long_as_each_other(make):
  options = {"content_length": 4, "epoch_length": 60}
  lengths = [50, 9, 10, 200, 49]
  source = make(lengths, group_by_length=(10, 50, 1_000), **options)
  # 9; 10 and 49; 50 and 200: a third of the rows each, none for '1000..'.
  assert source.quotas()[1] == 20
  assert source.quotas()[[2, 4]].sum() == 20
  listed = make(
    lengths,
    groups={"short": ["1"], "middle": ["2", "4"], "long": ["0", "3"]},
    **options,
  )
  assert source.quotas().tolist() == listed.quotas().tolist()
  weighted = make(
    lengths,
    group_by_length=(10, 50),
    group_weights={"0..9": 0, "10..49": 3, "50..": 1},
    **options,
  )
  assert weighted.quotas()[[2, 4]].sum() == 45
  assert weighted.quotas()[1] == 0


# --- own steps of documents ------------------------------------------------


@pytest.mark.parametrize(
  "changes",
  [
    {"content_start_mode": "slide_within", "balance_mode": "enumerate"},
    {"content_start_mode": "cyclic_roll", "balance_mode": "enumerate"},
    {"mode": "slide", "balance_mode": "enumerate"},
    {"balance_mode": "enumerate"},
    {"balance_mode": "by_document"},
  ],
)
def test_own_strides_are_those_of_a_source_of_that_stride(make, changes):
  """A document's rows are those it has where all have its stride."""
  both = make([40, 47], doc_overrides={"1": {"content_stride": 3}}, **changes)
  got = splices(both, np.arange(len(both)))
  for document, stride in ((0, 1), (1, 3)):
    alone = make([40, 47], content_stride=stride, **changes)
    rows = splices(alone, np.arange(len(alone)))
    expected = {row for row in rows if row[0] == document}
    assert {row for row in got if row[0] == document} == expected


# --- what rows consume -----------------------------------------------------


@pytest.mark.parametrize(
  "options",
  [
    {"content_length": 20},
    {"content_length": 20, "curriculum_every": 30},
    {"content_length": 6, "content_length_schedule": [(40, 8)]},
    {"mode": "slide"},
    {"content_start_mode": "slide_within", "content_length": 6},
    {"content_start_mode": "cyclic_roll", "content_length": 6},
    {
      "content_start_mode": "cyclic_roll",
      "content_length": 6,
      "epoch_length": 37,
      "shuffle_content": True,
    },
  ],
)
def test_sums_of_units_are_those_of_the_rows(make, options):
  unit = "loss_tokens"
  source = shuffled(make(LENGTHS, seq_len=16, **options))
  rows = np.arange(700)
  own = mix_units.planned_units(source.plan(rows), unit)
  sums = np.concatenate([[0], np.cumsum(own)])
  counted = prefix_sums.SourceUnits(source, unit, None)
  assert counted.before(np.arange(701)).tolist() == sums.tolist()
  for at in (1, 7, int(sums[300]), int(sums[300]) + 1):
    assert counted.rows_below(at) == int(np.searchsorted(sums, at))


def test_rows_that_copy_the_same_need_no_planning(make):
  same = shuffled(make([50, 60], content_length=6, curriculum_every=9))
  for unit, epoch, each in (("tokens", 0, 6), ("loss_tokens", 1, 5)):
    blocks = same.block_units(epoch, unit, 0)
    assert blocks.equal
    assert blocks.starts.tolist() == [0, same.epochs.size(epoch)]
    assert blocks.per_row.tolist() == [each]
  assert prefix_sums.are_known(same, "tokens")
  grown = make([50, 60], content_length=6, content_length_schedule=[(9, 7)])
  for epoch, each in ((0, 6), (1, 7)):
    blocks = grown.block_units(epoch, "tokens", 0)
    assert (blocks.equal, blocks.per_row.tolist()) == (True, [each])
  # Shorter documents differ, but lie one after the other.
  mixed = make([50, 5], content_length=6)
  assert shuffled(mixed, "full").block_units(0, "tokens", 4_096) is None
  blocks = mixed.block_units(0, "tokens", 4_096)
  assert blocks.starts.tolist() == [0, 42, 46]
  assert blocks.units.tolist() == [252, 20]


def test_blocks_of_copies_of_a_document_are_equal(make):
  # 8,192 starts, and one.
  source = make([8_199, 7], content_length=8, balance_mode="enumerate")
  blocks = source.block_units(0, "tokens", 4_096)
  assert blocks.equal
  assert blocks.starts[-1] == len(source)
  spans = source.plan(np.arange(len(source)))
  units = np.add.reduceat(spans.length, blocks.starts[:-1])
  assert blocks.units.tolist() == units.tolist()
  assert np.repeat(blocks.per_row, np.diff(blocks.starts)).tolist() == (
    spans.length.tolist()
  )


# --- the fingerprint -------------------------------------------------------


def test_the_fingerprint_tells_what_is_set_and_nothing_else(make):
  plain = make(LENGTHS, content_length=4).fingerprint["rows"]
  assert not set(plain) & {
    "curriculum_start", "curriculum_every", "content_length_schedule",
    "groups", "group_by_meta", "group_by_length", "group_weights",
    "doc_overrides",
  }  # fmt: skip
  one = make(
    LENGTHS,
    content_length=4,
    groups={"b": ["1", "0"], "a": ["2"]},
    doc_overrides={"1": {"content_stride": 2, "alpha": 0.5}},
  )
  same = make(
    LENGTHS,
    content_length=4,
    groups=[("a", ["2"]), ("b", ["0", "1"])],
    doc_overrides=[("1", {"alpha": 0.5, "content_stride": 2})],
  )
  other = make(LENGTHS, content_length=4, groups={"b": ["0"], "a": ["2"]})
  assert repr(one) == repr(same) != repr(other)
  assert one.fingerprint["rows"]["groups"]


def test_the_summary_tells_the_ramp(make):
  text = make(
    LENGTHS,
    content_length=4,
    curriculum_start=3,
    curriculum_every=10,
    content_length_schedule=[(15, 6)],
    doc_overrides={"0": {"content_stride": 5}},
  ).describe()
  for part in (
    "ramp=20 rows in 3 passes, then epochs of",
    "curriculum=3 documents, one more every 10 rows",
    "content_length=4 from row 0, 6 from row 15",
    "documents with own stride or alpha: 1",
  ):
    assert part in text, text


# --- errors ----------------------------------------------------------------


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"curriculum_start": 2}, r"curriculum_start.*None.*got 2\. Set curr"),
    (
      {"curriculum_start": 6, "curriculum_every": 9},
      r"curriculum_start.*at most `num_docs`, got 6 > 5",
    ),
    ({"curriculum_every": 0}, r"curriculum_every.*got 0"),
    (
      {"curriculum_every": 5, "balance_mode": "enumerate"},
      r"curriculum_every.*'enumerate'",
    ),
    (
      {"groups": {"a": ["0"]}, "balance_mode": "enumerate"},
      r"groups.*'enumerate'",
    ),
    (
      {"content_length_schedule": [(4, 3)], "balance_mode": "enumerate"},
      r"content_length_schedule.*'enumerate'",
    ),
    ({"content_length_schedule": [(4, 3), (4, 5)]}, r"ascending.*\(4, 5\)"),
    ({"content_length_schedule": [(4, 1)]}, r"content_length_schedule.*4, 1"),
    ({"content_length_schedule": []}, r"content_length_schedule.*got \[\]"),
    (
      {"content_length": 4, "content_length_schedule": [(0, 5)]},
      r"begin after row 0.*\(0, 5\) with content_length 4",
    ),
    (
      {"content_length_schedule": [(7, 5)], "min_copy_len": 6},
      r"5 < 6 from row 7",
    ),
    (
      {"content_length_schedule": [(7, 8)], "mode": "slide"},
      r"content_length_schedule.*'slide'",
    ),
    (
      {"groups": {"a": ["0"]}, "group_by_meta": True},
      r"group_by_meta.*False.*\['a'\]",
    ),
    ({"group_by_meta": True}, r"keeps nothing.*--meta_key"),
    (
      {"groups": {"a": ["0"]}, "group_by_length": (9,)},
      r"group_by_length.*listed.*got \(9,\)",
    ),
    ({"group_by_length": (9, 9)}, r"ascending whole.*got \(9, 9\)"),
    (
      {"group_by_length": (9,), "group_weights": {"0..9": 1}},
      r"group_weights.*got '0\.\.9'.*Groups: ",
    ),
    ({"groups": {"rest": ["0"]}}, r"must not name a group 'rest'"),
    ({"groups": {"a": ["0"], "b": ["0"]}}, r"'0' in 'a' and 'b'"),
    ({"groups": {"a": ["0", "0"]}}, r"distinct document ids"),
    ({"groups": {"a": "0"}}, r"lists of distinct.*got \{'a': '0'\}"),
    ({"groups": {}}, r"groups.*got \{\}"),
    ({"groups": {"a": ["7"]}}, r"groups.*'7', which does not exist"),
    ({"group_weights": {"a": 1}}, r"group_weights.*unset without groups"),
    (
      {"groups": {"a": ["0"]}, "group_weights": {"b": 1}},
      r"group_weights.*got 'b'\. Known groups: a, rest",
    ),
    (
      {"groups": {"a": ["0"]}, "group_weights": {"a": 0, "rest": 0}},
      r"group_weights.*positive weight",
    ),
    (
      {"groups": {"a": ["0"]}, "doc_weights": {"0": 0}},
      r"groups.*none in 'a'",
    ),
    (
      {"doc_overrides": {"9": {"alpha": 1}}},
      r"doc_overrides.*'9', which does not exist",
    ),
    (
      {
        "curriculum_every": 9,
        "groups": {"a": ["0"]},
        "group_weights": {"a": 0},
      },
      r"from row 0 on, got none among the first 1",
    ),
    ({"doc_overrides": {"0": {}}}, r"doc_overrides.*got \{'0': \{\}\}"),
    ({"doc_overrides": {"0": {"stride": 2}}}, r"doc_overrides.*'stride'"),
    ({"doc_overrides": {"0": {"alpha": -1}}}, r"doc_overrides.*-1"),
    ({"doc_overrides": {"0": {"content_stride": 0}}}, r"content_stride': 0"),
    (
      {
        "doc_overrides": {"0": {"alpha": 1}},
        "content_start_mode": "anchor_start",
      },
      r"doc_overrides.*no alpha.*got 1.0 for '0'",
    ),
    (
      {"curriculum_every": 4, "min_doc_length": 9, "adaptive_k": False,
       "content_length": 8, "doc_weights": {"0": 0}},
      r"from row 0 on, got none among the first 1 at content_length 8",
    ),
  ],
)  # fmt: skip
def test_bad_options_are_refused_by_name_and_value(make, changes, message):
  with pytest.raises(schema.ConfigError, match=message):
    make(LENGTHS, **changes)


def test_a_curriculum_of_more_documents_than_there_are_is_refused(make_store):
  store = make_store((30, 30, 30))
  options = multi(num_docs=None, curriculum_start=4, curriculum_every=9)
  with pytest.raises(schema.ConfigError, match=r"got 4 > 3"):
    chomp_data.SpliceSource(store, options, seq_len=8)


def test_ids_that_are_not_selected_are_all_named(make_store):
  store = make_store((30, 10, 20))
  options = multi(
    num_docs=2,
    doc_select_mode="longest",
    groups={"a": ["1"]},
    doc_overrides={"1": {"alpha": 1}},
    doc_weights={"x": 1},
  )
  with pytest.raises(schema.ConfigError) as caught:
    chomp_data.SpliceSource(store, options, seq_len=8)
  text = str(caught.value)
  assert len(caught.value.problems) == 3
  assert "groups` must name selected documents, got '1', which is not" in text
  assert "doc_overrides` must name selected documents, got '1'" in text
  assert "'x', which does not exist" in text


def test_later_lengths_that_no_document_holds_are_refused(make):
  with pytest.raises(schema.ConfigError, match="longest of 2 selected"):
    make(
      [6, 7], content_length=4, adaptive_k=False,
      content_length_schedule=[(50, 8)],
    )  # fmt: skip
  with pytest.raises(schema.ConfigError, match=r"from row 10 on.*first 2"):
    make(
      [6, 6, 20], content_length=4, adaptive_k=False, curriculum_every=10,
      content_length_schedule=[(10, 8)],
    )  # fmt: skip
