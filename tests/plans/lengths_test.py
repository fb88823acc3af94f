# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Buckets of lengths, end to end: rows, epochs, states, checks."""

import collections
import json
import pickle

import pytest

import chomp_data
from chomp_data import pipeline
from chomp_data import schema
from chomp_data.loading import state as state_lib
from chomp_data.testing import batch_hashes
from chomp_data.testing import stores as testing_stores
from tests.plans import conftest


def hashes(batches):
  return [batch_hashes.batch_sha256(batch) for batch in batches]


def test_lookahead_trains_on_the_token_after_a_cut(text, text_stores):
  pipe = pipeline.build(conftest.changed(text, lookahead=True))
  cut = 0
  for step in range(pipe.num_steps):
    name, _ = pipe.bucket_of(step)
    batch, spans = pipe.batch(step), pipe.plan(step)
    for i in range(len(spans)):
      whole = [*text_stores[name][1][int(spans.document[i])].tolist(), 1]
      end = int(spans.start[i] + spans.length[i])
      row = int(spans.row[i])
      if end < len(whole):
        cut += 1
        assert batch["next_token"][row] == whole[end]
        assert batch["loss_mask"][row].all()
      else:
        assert batch["next_token"][row] == 0
  assert cut


def test_a_dataset_that_has_ended_is_not_intended(text):
  changes = {"mix__weights": {"code": 3, "notes": 1}}
  pipe = pipeline.build(conftest.changed(text, **changes))
  of_step = [pipe.bucket_of(step)[0] for step in range(pipe.num_steps)]
  last = len(of_step) - of_step[::-1].index("code")
  assert 0 < last < pipe.num_steps
  assert pipe.accounts.questions.intended(last - 1) == {
    "code": 0.75,
    "notes": 0.25,
  }
  assert pipe.accounts.questions.intended(last) == {"code": 0, "notes": 1}
  for step in (-1, pipe.num_steps):
    with pytest.raises(IndexError, match=f"got {step}"):
      pipe.accounts.questions.intended(step)
  # The same where the other one goes on for ever; one that is cut short by the
  # end of the run has not ended.
  endless = conftest.changed(text, epochs=None, sources__code__max_epochs=1)
  pipe = pipeline.build(endless)
  assert pipe.accounts.questions.intended(0)["code"] > 0
  assert pipe.accounts.questions.intended(500) == {"code": 0, "notes": 1}
  first = conftest.changed(text, mix__exhaustion="first_exhausted", **changes)
  pipe = pipeline.build(first)
  shares = pipe.accounts.questions.intended(pipe.num_steps - 1)
  assert shares == {"code": 0.75, "notes": 0.25}


def test_the_summary_tells_padding_stages_and_what_repeats(text, caplog):
  stages = [(0, {"8": 1, "16": 1}), (40, {"32": 1, "64": 1})]
  changes = {"epochs": None, "remainder": "pad", "buckets__stages": stages}
  with caplog.at_level("WARNING"):
    pipe = pipeline.build(conftest.changed(text, **changes))
  told = pipe.describe()
  assert all(own in told for own in ("8: [32, 8]", "16: [16, 16]"))
  assert "from step 0: 8 0.5, 16 0.5; passes by step 40: " in told
  assert "from step 40: 32 0.5, 64 0.5" in told
  given = pipe.accounts.histogram(40)["notes"]["8"]
  bucket = next(b for b in told.splitlines() if b.startswith("  bucket 8:"))
  samples = int(bucket.split("notes ")[1].split()[0])
  assert f"notes 8 {given / samples:.2f}" in told
  often = pipe.accounts.histogram(40)["code"]["8"]
  few = int(bucket.split("code ")[1].split()[0])
  assert f"bucket 8 of code {often / few:.1f} times over" in caplog.text
  # Padding of an epoch, filler rows of its last batch included.
  whole = pipeline.build(conftest.changed(text, remainder="pad", epochs=1))
  held, positions = 0, 0
  for step in range(whole.num_steps):
    if whole.bucket_of(step) == ("notes", "8"):
      batch = whole.batch(step)
      held += int((batch["segment_ids"] > 0).sum())
      positions += batch["tokens"].size
  share = f"({1 - held / positions:.1%} padding)"
  assert share in bucket.split("notes ")[1]


def test_a_state_with_a_wrong_histogram_is_refused(text):
  with chomp_data.make_iterator(text, step=9) as it:
    state = it.get_state()
    record = json.loads(state)
    del record["digest"]
    record["histogram"]["code"]["16"] += 1
    record["digest"] = state_lib.digest(record)
    with pytest.raises(state_lib.StateError, match=r"histogram\.code\.16"):
      it.set_state(json.dumps(record).encode())
    it.set_state(state)
    assert it.step == 9


def test_another_bucket_or_weight_is_named_when_a_state_is_restored(text):
  with chomp_data.make_iterator(text) as it:
    next(it)
    state = it.get_state()
  for fields, path in (
    ({"buckets__tokens_per_batch": 512}, r"buckets\.batch_sizes\.16"),
    ({"buckets__assign": "powers_of_two"}, "assign"),
    (
      {"mix__weights": {"notes": 0.5, "code": 0.5}},
      r"mix\.stages\.0: state has code 0\.75",
    ),
    ({"sources__code__shuffle__seed": 12}, r"sources\.code\.shuffle_seed"),
  ):
    other = chomp_data.make_iterator(conftest.changed(text, **fields))
    with pytest.raises(state_lib.StateError, match=path):
      other.set_state(state)


def test_a_curriculum_gets_another_stage_and_goes_on(text):
  stages = [(0, {"8": 1, "16": 1, "32": 1, "64": 1})]
  data = conftest.changed(text, epochs=None, buckets__stages=stages)
  later = conftest.changed(
    text, epochs=None, buckets__stages=[*stages, (20, {"64": 1})]
  )
  with chomp_data.make_iterator(data) as it:
    first = hashes(next(it) for _ in range(12))
    state = it.get_state()
  pipe = pipeline.build(later)
  assert first == hashes(pipe.batch(step) for step in range(12))
  with chomp_data.make_iterator(later) as it:
    it.set_state(state)
    assert next(it)["tokens"].shape == pipe.batch(12)["tokens"].shape
  # Weights in proportion are the same stage.
  scaled = [(0, {"8": 0.2, "16": 0.2, "32": 0.2, "64": 0.2})]
  same = conftest.changed(text, epochs=None, buckets__stages=scaled)
  with chomp_data.make_iterator(same) as it:
    it.set_state(state)
  assert {pipe.bucket_of(step)[1] for step in range(20, 40)} == {"64"}
  late = conftest.changed(
    text, epochs=None, buckets__stages=[*stages, (5, {"64": 1})]
  )
  with pytest.raises(state_lib.StateError, match=r"buckets\.stages\.5: "):
    chomp_data.make_iterator(late).set_state(state)


def test_the_order_of_keys_decides_nothing(text):
  turned = conftest.changed(text)
  turned["sources"] = dict(reversed(text["sources"].items()))
  turned["mix"] = {"weights": {"code": 0.75, "notes": 0.25}}
  one, other = pipeline.build(text), pipeline.build(turned)
  assert one.fingerprint == other.fingerprint
  assert hashes(one.batch(s) for s in range(20)) == hashes(
    other.batch(s) for s in range(20)
  )


def test_one_line_of_datasets_weighs_tokens(text, text_stores):
  data = conftest.changed(text)
  paths = {name: path for name, (path, _) in text_stores.items()}
  data["dataset_mix"] = f"{paths['notes']}:0.5 {paths['code']}:0.5"
  del data["mix"]
  pipe = pipeline.build(data)
  assert set(pipe.source_names) == {"notes", "code"}
  assert "by tokens" in pipe.describe()


def test_stores_do_not_join_a_run_with_buckets(text, text_stores):
  with chomp_data.make_iterator(pipeline.build(text)) as batches:
    next(batches)
    state = batches.get_state()
  more = conftest.changed(text)
  both = tuple(path for path, _ in text_stores.values())
  more["sources"]["notes"]["store"] = both
  with (
    chomp_data.make_iterator(pipeline.build(more)) as batches,
    pytest.raises(chomp_data.StateError, match="notes"),
  ):
    batches.set_state(state)
  more["sources"]["notes"]["joined"] = (0, 1)
  with pytest.raises(schema.ConfigError, match=r"with buckets, got \(0, 1\)"):
    pipeline.build(more)


def test_buckets_have_no_resume_state(text):
  with pytest.raises(TypeError, match="offsets cannot say which samples"):
    pipeline.build(text).accounts.resume_state(3)
  entry = {"spec": "notes", "row_offset": 3}
  text["mix"]["resume_state"] = {"datasets": [entry]}
  with pytest.raises(schema.ConfigError, match="resume_state` is not a known"):
    pipeline.build(text)


def test_stages_of_buckets_are_told_by_their_field_and_entry(text):
  every = {"8": 1, "16": 1, "32": 1, "64": 1}
  stages = [(0, every), (9, {**every, "16": 0}), (4, every)]
  with pytest.raises(schema.ConfigError) as error:
    pipeline.build(conftest.changed(text, buckets__stages=stages))
  weight, order = error.value.problems
  path = "`config.data.buckets.stages"
  assert weight.startswith(f"{path}[1]['16']` must be a finite number above 0")
  assert "got 0." in weight
  assert order.startswith(f"{path}[2]` must begin after step 9")
  assert "got step 4." in order


def test_a_pipeline_reads_the_same_when_its_index_is_on_disk(
  text, monkeypatch, tmp_path
):
  from chomp_data.bucket import piece_index
  from chomp_data.sources import document_columns

  wanted = pipeline.build(text)
  monkeypatch.setattr(document_columns, "MIN_ON_DISK", 1)
  monkeypatch.setattr(piece_index, "PASS_DOCUMENTS", 7)
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
  for _ in range(2):
    pipe = pipeline.build(text)
    again = pickle.loads(pickle.dumps(pipeline.batch_source(pipe)))
    for step in range(0, wanted.num_steps, 5):
      assert hashes([again[step]]) == hashes([wanted.batch(step)])


@pytest.mark.parametrize(
  ("fields", "words"),
  [
    ({"buckets__kind": "size"}, ["buckets.kind", "'length', 'resolution'"]),
    ({"buckets__lengths": (16, 8)}, ["buckets.lengths", "rising"]),
    (
      {"buckets__tokens_per_batch": 100},
      ["tokens_per_batch", "multiple of every length", "got 100", "8, 16"],
    ),
    (
      {"buckets__assign": "powers_of_two", "buckets__lengths": (8, 24)},
      ["powers of two", "got 24"],
    ),
    (
      {"buckets__stages": [(0, {"8": 1, "48": 1})]},
      ["stages[0]", "'48'", "8, 16, 32, 64"],
    ),
    (
      {"buckets__stages": [(0, {"8": 1, "16": 1, "32": 1})]},
      ["every bucket in some stage", "got none for 64"],
    ),
    ({"seq_len": 32}, ["`config.data.seq_len` is not a known field"]),
    ({"mix__unit": "pixels"}, ["mix.unit", "'tokens', 'samples'"]),
    ({"sources__code__rows__kind": "bin"}, ["rows.kind` is not a known"]),
    ({"sources__code__store": ""}, ["sources.code.store"]),
    (
      {"lookahead": True, "batch_format": "chomp"},
      ["config.data.lookahead", "'chomp'"],
    ),
    (
      {
        "buckets__lengths": (8, 16, 32, 64, 1024, 4096),
        "buckets__tokens_per_batch": 4096,
        "remainder": "pad",
      },
      ["bucket '4096'", "got none"],
    ),
    (
      {"buckets__tokens_per_batch": 16384},
      ["bucket '64' of dataset 'code'", "global batch of 256", "remainder"],
    ),
  ],
)
def test_bad_input_is_one_clear_error(text, fields, words):
  with pytest.raises(schema.ConfigError) as error:
    pipeline.build(conftest.changed(text, **fields))
  for word in words:
    assert word in str(error.value)


@pytest.mark.parametrize("weight", [1e-9, 0.5])
def test_a_source_that_hardly_comes_is_said(text, caplog, weight):
  pipe = pipeline.build(
    conftest.changed(
      text,
      epochs=1,
      mix__weights={"notes": weight, "code": 1},
      mix__exhaustion="first_exhausted",
    )
  )
  given = pipe.accounts.at(pipe.num_steps)["notes"].rows
  lines = [own for own in caplog.messages if "the weight of 'notes'" in own]
  if weight == 0.5:
    assert not lines
    return
  assert 0 < given <= 32
  (line,) = lines
  assert f" batch in {pipe.num_steps} steps of the stage from step 0 on" in line


def test_a_store_that_has_eos_gets_no_second_one(text, tmp_path):
  testing_stores.make_store(tmp_path / "store", [[5, 6, 1]] * 9, adds_eos=True)
  data = conftest.changed(text, sources__code__store=str(tmp_path / "store"))
  with pytest.raises(schema.ConfigError, match=r"code\.rows\.add_eos"):
    pipeline.build(data)


def test_without_replacement_every_document_comes_once_an_epoch(
  text, text_stores
):
  policy = "all_exhausted_without_replacement"
  data = conftest.changed(
    text, epochs=None, remainder="pad", mix__exhaustion=policy
  )
  pipe = pipeline.build(data)
  times = collections.Counter()
  for step in range(pipe.num_steps):
    spans = pipe.plan(step)
    for i in range(len(spans)):
      first, count = int(spans.start[i]), int(spans.length[i])
      name, document = int(spans.source[i]), int(spans.document[i])
      times.update((name, document, first + k) for k in range(count))
  # And the EOS of each document that is not empty.
  documents = [own for _, every in text_stores.values() for own in every]
  assert set(times.values()) == {1}
  assert len(times) == sum(len(own) + 1 for own in documents if len(own))
  drop = conftest.changed(data, epochs=1, mix__exhaustion="drop")
  assert pipeline.build(drop).fingerprint == pipe.fingerprint
  assert pipeline.build({**drop, "epochs": None}).num_steps is None


@pytest.mark.parametrize("remainder", ["drop", "pad"])
def test_the_summary_counts_the_samples_that_are_dropped(text, remainder):
  pipe = pipeline.build(conftest.changed(text, epochs=1, remainder=remainder))
  given = sum(own.rows for own in pipe.accounts.at(pipe.num_steps).values())
  whole = pipeline.build(conftest.changed(text, epochs=1, remainder="pad"))
  count = sum(own.rows for own in whole.accounts.at(whole.num_steps).values())
  said = f"{count - given} of {count} samples of an epoch fill no batch"
  assert (said in pipe.describe()) == (remainder == "drop")
