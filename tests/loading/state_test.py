# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""States: refused when altered or foreign, with every difference named."""

import copy
import dataclasses
import gc
import json
import re
import threading

import grain
import numpy as np
import pytest

from chomp_data import iterators
from chomp_data import pipeline
from chomp_data import stores
from chomp_data.audit import difference
from chomp_data.loading import feed
from chomp_data.loading import handover
from chomp_data.loading import state as state_lib
from chomp_data.plans import totals
from chomp_data.testing import batch_hashes
from chomp_data.testing import stores as testing_stores
from tests.loading import conftest
from tests.loading import late


def changed(data, path, value):
  out = copy.deepcopy(data)
  *parents, last = path.split(".")
  section = out
  for name in parents:
    section = section.setdefault(name, {})
  section[last] = value
  return out


CHANGES = [
  ("seed", 4),
  ("seq_len", 48),
  ("global_batch_size", 4),
  ("epochs", 2),
  ("remainder", "pad"),
  ("lookahead", True),
  ("mask_boundary_loss", False),
  ("train_on_eos", False),
  ("batch_format", "maxtext"),
  ("document_id", False),
  ("sources.text.rows.num_docs", 4),
  ("sources.text.rows.content_length", 15),
  ("sources.text.rows.content_stride", 2),
  ("sources.text.rows.alpha", 0.5),
  ("sources.text.rows.balance_tau", 0.6),
  ("sources.text.rows.balance_mode", "by_document"),
  ("sources.text.rows.offset_jitter", 1),
  ("sources.text.rows.jitter_mode", "low_discrepancy"),
  ("sources.text.rows.epoch_length", 71),
  ("sources.text.rows.min_copy_len", 3),
  ("sources.text.rows.filler", "eos"),
  ("sources.text.rows.eos_before_document", True),
  ("sources.text.rows.trailing_filler_in_segment", False),
  ("sources.text.rows.shuffle_content", True),
  ("sources.text.rows.doc_select_mode", "first"),
  ("sources.text.shuffle.kind", "none"),
  ("sources.text.shuffle.seed", 9),
  ("sources.text.shuffle.perm_type", "linear"),
]


@pytest.fixture(scope="module")
def saved_first(store_path):
  """The state of the first step."""
  with iterators.make_iterator(conftest.config(store_path)) as it:
    return it.get_state()


@pytest.mark.parametrize(("path", "value"), CHANGES)
def test_a_state_of_another_config_is_refused_with_both_values(
  data, saved_first, path, value
):
  saved = saved_first
  it = iterators.make_iterator(changed(data, path, value))
  with pytest.raises(state_lib.StateError, match=re.escape(path)) as caught:
    it.set_state(saved)
  lines = [x for x in str(caught.value).splitlines() if f"- {path}:" in x]
  assert len(lines) == 1
  assert "state has" in lines[0]
  assert f"config has {value!r}" in lines[0]
  # It is allowed by its own name, and what follows from it by theirs.
  found = re.findall(r"^  - (\S+): state has", str(caught.value), re.MULTILINE)
  others = {own for own, _ in CHANGES} | {*found}
  with pytest.raises(state_lib.StateError, match=re.escape(path)):
    it.set_state(saved, others - {path})
  it.set_state(saved, found)


def test_other_data_at_the_same_path_is_refused(data, tmp_path):
  saved = iterators.make_iterator(data).get_state()
  documents = [[5] * 100 for _ in range(9)]
  other = testing_stores.make_store(
    tmp_path / "other", documents, vocab_size=256, pad_id=0
  )
  it = iterators.make_iterator(
    changed(data, "sources.text.store", str(other.path))
  )
  with pytest.raises(state_lib.StateError, match=r"sources\.text\.store"):
    it.set_state(saved)


def test_what_is_allowed_is_told_with_what_follows(data, caplog):
  saved = iterators.make_iterator(data, step=5).get_state()
  other = changed(changed(data, "seed", 4), "batch_format", "maxtext")
  for allowed in ("seed", ("seed", "batch_forma"), ["seed", "document_id"]):
    it = iterators.make_iterator(other, allow_input_change=allowed)
    with pytest.raises(state_lib.StateError) as caught:
      it.set_state(saved)
    # What is not named is refused, and only that.
    assert (
      "got 1 difference (fields of config.data):\n  - batch_format: state"
      in (str(caught.value))
    )
    # Python arguments for Python, flags for the command line.
    assert "`allow_input_change` of `make_iterator` take" in str(caught.value)
    assert "--" not in str(caught.value)
    assert "`--allow_input_change=FIELD` takes" in caught.value.in_command
    misspelled = "Did you mean `batch_format`?" in str(caught.value)
    assert misspelled == ("batch_forma" in allowed)
  with caplog.at_level("WARNING", "absl"):
    it.set_state(saved, "batch_format")
  assert it.step == 5
  told = caplog.messages[-1]
  assert told.startswith("input state of another run accepted at step 5:")
  assert "\n  - seed: state has 3, config has 4\n" in told
  assert "From step 5 on batches are those that this config has there" in told
  # The batch is what was said, and the state is the new run's.
  wanted = pipeline.build(other).batch(5)
  for name, value in next(it).items():
    np.testing.assert_array_equal(value, wanted[name])
  saved = it.get_state()
  it.close()
  iterators.make_iterator(other).set_state(saved)
  it = iterators.make_iterator(changed(other, "batch_format", "canonical"))
  it.set_state(saved, allow_changes=True)
  assert it.step == 6
  assert "From step 6 on rows are those that follow" in caplog.messages[-1]


@pytest.mark.parametrize(
  "change",
  [{"num_targets": 2}, {"columns": ("score",)}, {"keep_fields": ("tokens",)}],
  ids=str,
)
def test_a_change_of_fields_is_told_as_none_of_rows(change, tmp_path, caplog):
  testing_stores.make_store(
    tmp_path / "store",
    [range(3, 40)] * 9,
    columns={"score": stores.Column("int32", per="document")},
    column_values={"score": range(9)},
  )
  rows = {"store": str(tmp_path / "store"), "rows": {"kind": "sequential"}}
  data = {"seq_len": 8, "global_batch_size": 4, "sources": {"text": rows}}
  if "keep_fields" in change:
    data["batch_format"] = "maxtext"
  (field,) = change
  saved = iterators.make_iterator(data, step=3).get_state()
  it = iterators.make_iterator({**data, **change})
  with pytest.raises(state_lib.StateError, match=rf"- {field}: state has"):
    it.set_state(saved)
  with caplog.at_level("WARNING", "absl"):
    it.set_state(saved, field)
  assert "From step 3 on rows are those that follow" in caplog.messages[-1]
  found = difference.difference(
    pipeline.build(data), pipeline.build({**data, **change}), 5
  )
  assert found.first_step is None
  assert [line.partition(":")[0] for line in found.fields] == [field]


def test_every_flipped_value_is_refused_by_the_digest(data, saved_first):
  saved = saved_first
  it = iterators.make_iterator(data)
  for i in range(0, len(saved), 7):
    flipped = bytearray(saved)
    flipped[i] ^= 1
    if json_equal(bytes(flipped), saved):
      continue  # White space.
    with pytest.raises(state_lib.StateError):
      it.set_state(bytes(flipped))


def json_equal(one, other):
  try:
    return json.loads(one) == json.loads(other)
  except ValueError:
    return False


def test_what_is_no_state_is_refused(data):
  it = iterators.make_iterator(data)
  for state in (
    *(b"", b"{}", b"[1]", b"\xff", b'{"step": 3}', b"null", b"[" * 10**5),
  ):
    with pytest.raises(state_lib.StateError, match="input state"):
      it.set_state(state)


def test_a_state_is_the_json_of_all_its_fields():
  fingerprint = {"b": {"x": [1, {"é": 'a\n"'}], "e": {}, "l": []}, "a": 1.5}
  record = {
    "z": {"k": [None, True]},
    "schema": 1,
    "step": 7,
    "fingerprint": fingerprint,
    "topology": {},
  }
  record["digest"] = state_lib.digest(record)
  wanted = json.dumps(record, indent=2, sort_keys=True).encode()
  for own in (fingerprint, state_lib.Fingerprint(fingerprint)):
    assert state_lib.encode(7, own, {}, {"z": {"k": [None, True]}}) == wanted


def test_a_step_beyond_the_run_is_refused(data, saved_first):
  record = json.loads(saved_first)
  state = state_lib.encode(27, record["fingerprint"], {})
  with pytest.raises(state_lib.StateError, match=r"at most 26.*got 27"):
    iterators.make_iterator(data).set_state(state)


def test_a_newer_schema_is_refused_by_name(data, saved_first):
  with pytest.raises(state_lib.StateError, match="schema 1, got 99"):
    iterators.make_iterator(data).set_state(altered(saved_first, "schema", 99))


@dataclasses.dataclass
class Scale(grain.transforms.Map):
  by: int = 1

  def map(self, element):
    return {**element, "tokens": element["tokens"] * self.by}


def altered(state, path, value):
  """Returns a state with another value and the digest that goes with it."""
  record = json.loads(state)
  record.pop("digest")
  record = changed(record, path, value)
  record["digest"] = state_lib.digest(record)
  return json.dumps(record).encode()


def counted(data):
  """Returns a config of packed rows, a state of step 5, and its accounts."""
  rows = {"kind": "sequential"}
  data = changed(
    data, "sources.text", {**data["sources"]["text"], "rows": rows}
  )
  with iterators.make_iterator(data, step=5) as it:
    saved = it.get_state()
  return data, saved, json.loads(saved)["accounts"]["text"]


def test_rows_that_the_plan_does_not_share_are_refused(data):
  data, saved, record = counted(data)
  assert record["rows"] == 40
  assert record["tokens"] == 40 * 32
  assert 0 < record["loss_tokens"] < record["tokens"]
  again = iterators.make_iterator(data)
  again.set_state(saved)
  assert again.get_state() == saved
  with pytest.raises(
    state_lib.StateError, match=r"accounts\.text\.rows: state has 39, plan"
  ):
    again.set_state(altered(saved, "accounts.text.rows", 39))
  assert again.get_state() == saved


def test_tokens_that_the_plan_does_not_share_fail_behind_the_first_batch(
  data, monkeypatch
):
  counters = late.counters(monkeypatch)
  data, saved, record = counted(data)
  count = record["tokens"] - 1
  wrong = altered(saved, "accounts.text.tokens", count)
  refused = pytest.raises(
    state_lib.StateError, match=rf"text\.tokens: state has {count}, plan"
  )
  with iterators.make_iterator(data) as it:
    it.set_state(wrong)
    next(it)
    with refused:
      # Before it is written.
      it.begin_save()()
    with refused:
      it.get_state()
    with refused:
      next(it)
    with pytest.raises(feed.InputError, match="stays failed"):
      next(it)
    it.set_state(saved)
    next(it)
    it.begin_save()()
    # What the state told is forgotten with it.
    it.set_state(wrong)
    next(it)
    counters[-1].wait_begun()
    it.seek(5)
    assert json.loads(it.get_state())["accounts"]["text"] == record
    next(it)
    it.begin_save()()


def test_another_format_goes_on_from_what_the_state_counts(data, monkeypatch):
  data = changed(data, "epochs", None)
  with iterators.make_iterator(data, operations=[Scale(1)]) as it:
    it.seek(10**6)
    saved = it.get_state()
  with iterators.make_iterator(data, operations=[Scale(2)]) as it:
    monkeypatch.setattr(totals.PlanTotals, "at", None)
    it.set_state(saved, allow_changes={"operations"})
    own = json.loads(it.get_state())
  assert own["accounts"] == json.loads(saved)["accounts"]


def worker_memories():
  """Returns the memories that readers and their workers share."""
  gc.collect()
  return [
    thing for thing in gc.get_objects() if type(thing) is handover.WorkerMemory
  ]


@pytest.mark.slow
def test_workers_that_ended_leave_their_counts_and_no_memory(data):
  data = changed(data, "worker_count", 1)
  before = worker_memories()  # Other tests may have some.
  with iterators.make_iterator(data, operations=[Scale(2)]) as it:
    read = []
    for _ in range(3):
      next(it)
      it.seek(0)
      read.append(it.reads["text"].examples)
    next(it)
    assert 0 < read[0] < read[1] < read[2] <= it.reads["text"].examples
    earlier = {id(memory) for memory in before}
    memories = [m for m in worker_memories() if id(m) not in earlier]
    assert len(memories) == 1  # That of the workers that read now.


def test_a_state_without_accounts_does_not_count_everything_again(data):
  data = changed(data, "epochs", None)
  it = iterators.make_iterator(data)
  record = json.loads(it.get_state())
  step = 10**9
  it.set_state(state_lib.encode(step, record["fingerprint"], {}))
  accounts = json.loads(it.get_state())["accounts"]["text"]
  assert accounts["rows"] == step * 8
  # Epochs are alike: one of them tells that each copy of 16 trains 15.
  assert accounts["loss_tokens"] == step * 8 * 15


RECORD = {
  "seed": 1,
  "mix": {
    "unit": "tokens",
    "exhaustion": "drop",
    "stages": {"0": {"a": "3", "b": "1"}, "9": {"a": "1", "c": "1/8"}},
    "start": {},
  },
  "sources": {n: {"rows": {"kind": "bin", "filler": n}} for n in "abc"},
}


def test_weights_in_proportion_are_equal():
  other = changed(RECORD, "mix.stages.0", {"b": "1/4", "a": "3/4"})
  assert not state_lib.differences(RECORD, other)
  assert not state_lib.differences(RECORD, other, 20)
  # Nearly is not.
  other = changed(RECORD, "mix.stages.0.a", "3000000000000001/1000000000000000")
  assert state_lib.differences(RECORD, other, 20) == [
    "mix.stages.0: state has a 3, b 1, config has a 3.000000000000001, b 1"
  ]


def test_shares_are_worked_out_only_of_stages_that_differ(monkeypatch):
  stages = {str(9 * i): {"a": "1", "c": f"{i}/7"} for i in range(1, 50)}
  saved = changed(RECORD, "mix.stages", {**stages, "0": {"a": "1"}})
  other = changed(saved, "mix.stages.90.c", "3/2")
  worked_out = []
  of = state_lib.WeightsText.of
  monkeypatch.setattr(
    state_lib.WeightsText, "of", lambda own: worked_out.append(own) or of(own)
  )
  assert not state_lib.differences(saved, saved)
  assert not worked_out
  assert state_lib.differences(saved, other) == [
    "mix.stages.90: state has a 1, c 1.4285714285714286, config has a 1, c 1.5"
  ]
  assert len(worked_out) == 2


def test_a_stage_and_a_source_are_one_line_each():
  other = copy.deepcopy(RECORD)
  del other["mix"]["stages"]["9"], other["sources"]["c"]
  other["sources"]["d"] = other["sources"]["a"]
  assert state_lib.differences(RECORD, other) == [
    "mix.stages.9: state has a 1, c 0.125, config has '(absent)'",
    "sources.c: state has one, config has '(absent)'",
    "sources.d: state has '(absent)', config has one",
  ]
  assert not state_lib.differences(RECORD, other, 9)
  # A source that both have is told by its fields.
  other = changed(RECORD, "sources.a.rows.filler", "eos")
  assert state_lib.differences(RECORD, other) == [
    "sources.a.rows.filler: state has 'a', config has 'eos'"
  ]


ROWS = {
  "multi_splice": ({"kind": "multi_splice", "num_docs": 5}, {"kind": "full"}),
  "bin": (
    {"kind": "bin", "packing_buffer_docs": 4},
    {"kind": "block", "window_blocks": 2},
  ),
  "sequential": ({"kind": "sequential"}, {"kind": "none"}),
}


def one_source(store_path, kind):
  rows, shuffle = ROWS[kind]
  text = {"store": store_path, "rows": rows, "shuffle": shuffle}
  return {
    "seq_len": 32,
    "global_batch_size": 8,
    "seed": 3,
    "document_id": True,
    "lookahead": True,
    "sources": {"text": text},
  }


def grown(data, other_path, stages, **mix):
  """Returns a run of one source as a mix with another one of its kind."""
  other = {**data["sources"]["text"], "store": other_path}
  return {
    **data,
    "sources": {"another": other, **data["sources"]},
    "mix": {"stages": stages, **mix},
  }


def hashes(it, count):
  return [batch_hashes.batch_sha256(next(it)) for _ in range(count)]


ALONE = {"text": 0.3}
BOTH = {"text": 1, "another": 1}


@pytest.mark.parametrize(
  ("kind", "unit"),
  zip(ROWS, ("rows", "loss_tokens", "tokens"), strict=True),
)
def test_a_run_of_one_source_grows_into_a_mix(
  store_path, other_path, kind, unit
):
  one = one_source(store_path, kind)
  mixed = grown(one, other_path, [(0, ALONE), (7, BOTH)], unit=unit)
  with iterators.make_iterator(one) as before:
    past = hashes(before, 7)
    saved = before.get_state()
  with iterators.make_iterator(mixed) as whole:
    # What is past is the same to the bit, fields and shapes too.
    assert hashes(whole, 7) == past
    wanted = hashes(whole, 4)
    whole.set_state(saved)
    assert whole.step == 7
    assert hashes(whole, 4) == wanted
    state = whole.get_state()
    assert json.loads(state)["accounts"]["another"]["rows"] > 0
  # No longer as one source alone.
  with (
    iterators.make_iterator(one) as it,
    pytest.raises(state_lib.StateError, match=r"mix\.stages\.7: state has ano"),
  ):
    it.set_state(state)


def test_a_mix_that_has_served_one_source_goes_on_as_that_source(
  store_path, other_path
):
  one = one_source(store_path, "bin")
  mixed = grown(one, other_path, [(0, ALONE), (7, BOTH)])
  with iterators.make_iterator(mixed, step=1) as it:
    saved = it.get_state()
  with iterators.make_iterator(one) as it:
    wanted = hashes(it, 4)[1:]
    it.set_state(saved)
    assert hashes(it, 3) == wanted


@pytest.mark.parametrize(
  ("stages", "mix", "line"),
  [
    (
      [(0, ALONE), (4, BOTH)],
      {},
      "mix.stages.4: state has '(absent)', config has another 1, text 1",
    ),
    ([(0, BOTH)], {}, "mix.stages.0: state has text 1, config has another 1,"),
    (
      [(0, ALONE), (7, BOTH)],
      {"exhaustion": "first_exhausted"},
      "mix.exhaustion: state has 'drop', config has 'first_exhausted'",
    ),
    (
      [(0, ALONE), (7, BOTH)],
      {"resume_state": {"datasets": [{"spec": "text", "row_offset": 5}]}},
      "mix.start.text: state has '(absent)', config has [5, ",
    ),
  ],
)
def test_a_run_of_one_source_is_no_other_mix(
  store_path, other_path, stages, mix, line
):
  one = one_source(store_path, "sequential")
  with iterators.make_iterator(one, step=5) as it:
    saved = it.get_state()
  with (
    iterators.make_iterator(grown(one, other_path, stages, **mix)) as it,
    pytest.raises(state_lib.StateError) as caught,
  ):
    it.set_state(saved)
  assert f"  - {line}" in str(caught.value)


def test_a_run_of_one_source_does_not_grow_with_other_rows(
  store_path, other_path
):
  one = one_source(store_path, "bin")
  with iterators.make_iterator(one, step=5) as it:
    saved = it.get_state()
  other = changed(one, "sources.text.rows.packing_buffer_docs", 5)
  stages = [(0, ALONE), (7, BOTH)]
  with (
    iterators.make_iterator(grown(other, other_path, stages)) as it,
    pytest.raises(
      state_lib.StateError, match=r"1 difference .*\n.*buffer_docs"
    ),
  ):
    it.set_state(saved)


def test_a_state_that_another_thread_asks_for_is_of_one_step(data):
  found, ends = [], threading.Event()
  with iterators.make_iterator({**data, "epochs": None}) as iterator:

    def ask():
      while not ends.is_set():
        found.append(json.loads(iterator.get_state()))

    thread = threading.Thread(target=ask)
    thread.start()
    for _ in range(400):
      next(iterator)
    ends.set()
    thread.join()
  assert len({own["step"] for own in found}) > 2
  for own in found:
    assert sum(one["last"] for one in own["certificate"]) == own["step"]


def test_a_step_of_numpy_is_a_step(data):
  with iterators.make_iterator(data, step=np.int64(1)) as iterator:
    assert json.loads(iterator.get_state())["step"] == 1
    iterator.seek(np.int32(2))
    assert json.loads(iterator.get_state())["step"] == 2
