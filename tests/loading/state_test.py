"""States: refused when altered or foreign, with every difference named."""

import copy
import dataclasses
import json
import re

import grain
import pytest

from chomp_data import pipeline
from chomp_data.loading import state as state_lib
from chomp_data.testing import stores as testing_stores


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
]


@pytest.mark.parametrize(("path", "value"), CHANGES)
def test_a_state_of_another_config_is_refused_with_both_values(
  data, path, value
):
  saved = pipeline.make_iterator(data).get_state()
  it = pipeline.make_iterator(changed(data, path, value))
  with pytest.raises(state_lib.StateError, match=re.escape(path)) as caught:
    it.set_state(saved)
  lines = [x for x in str(caught.value).splitlines() if f"- {path}:" in x]
  assert len(lines) == 1
  assert "state has" in lines[0]
  assert f"config has {value!r}" in lines[0]


def test_other_data_at_the_same_path_is_refused(data, tmp_path):
  saved = pipeline.make_iterator(data).get_state()
  documents = [[5] * 100 for _ in range(9)]
  other = testing_stores.make_store(
    tmp_path / "other", documents, vocab_size=256, pad_id=0
  )
  it = pipeline.make_iterator(
    changed(data, "sources.text.store", str(other.path))
  )
  with pytest.raises(state_lib.StateError, match=r"sources\.text\.store"):
    it.set_state(saved)


def test_a_renamed_source_is_refused(data):
  saved = pipeline.make_iterator(data).get_state()
  renamed = {**data, "sources": {"other": data["sources"]["text"]}}
  with pytest.raises(state_lib.StateError, match=r"sources.other.*absent"):
    pipeline.make_iterator(renamed).set_state(saved)


def test_a_moved_store_other_workers_and_key_order_are_no_difference(
  data, store_path, tmp_path
):
  saved = pipeline.make_iterator(data).get_state()
  moved = tmp_path / "moved"
  moved.symlink_to(store_path)
  same = changed(data, "sources.text.store", str(moved))
  same = changed(same, "worker_count", 2)
  same = changed(same, "prefetch", 5)
  same = dict(reversed(same.items()))
  pipeline.make_iterator(same).set_state(saved)


def test_an_override_is_accepted_on_request(data):
  saved = pipeline.make_iterator(data).get_state()
  it = pipeline.make_iterator(changed(data, "seed", 4))
  it.set_state(saved, allow_changes=True)
  assert it.step == 0


def test_every_flipped_value_is_refused_by_the_digest(data):
  saved = pipeline.make_iterator(data).get_state()
  it = pipeline.make_iterator(data)
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


@pytest.mark.parametrize(
  "state", [b"", b"{}", b"[1]", b"\xff", b'{"step": 3}', b"null", b"[" * 10**5]
)
def test_what_is_no_state_is_refused(data, state):
  with pytest.raises(state_lib.StateError, match="input state"):
    pipeline.make_iterator(data).set_state(state)


def test_a_step_beyond_the_run_is_refused(data):
  record = json.loads(pipeline.make_iterator(data).get_state())
  state = state_lib.encode(27, record["fingerprint"], {})
  with pytest.raises(state_lib.StateError, match=r"at most 26.*got 27"):
    pipeline.make_iterator(data).set_state(state)


def test_a_newer_schema_is_refused_by_name(data):
  record = json.loads(pipeline.make_iterator(data).get_state())
  record.pop("digest")
  record["schema"] = 99
  record["digest"] = state_lib.digest(record)
  with pytest.raises(state_lib.StateError, match="schema 1, got 99"):
    pipeline.make_iterator(data).set_state(json.dumps(record).encode())


@dataclasses.dataclass
class Scale(grain.transforms.Map):
  by: int = 1

  def map(self, element):
    return {**element, "tokens": element["tokens"] * self.by}


def test_a_state_of_other_operations_is_refused(data):
  plain = pipeline.make_iterator(data).get_state()
  once = pipeline.make_iterator(data, operations=[Scale(1)])
  with pytest.raises(state_lib.StateError, match=r"operations.*absent.*Scale"):
    once.set_state(plain)
  twice = pipeline.make_iterator(data, operations=[Scale(2)])
  with pytest.raises(state_lib.StateError, match=r"Scale\(by=1\)"):
    twice.set_state(once.get_state())
  twice.set_state(
    pipeline.make_iterator(data, operations=[Scale(2)]).get_state()
  )


def altered(state, path, value):
  """Returns a state with another value and the digest that goes with it."""
  record = json.loads(state)
  record.pop("digest")
  record = changed(record, path, value)
  record["digest"] = state_lib.digest(record)
  return json.dumps(record).encode()


@pytest.mark.parametrize("field", ["rows", "tokens"])
def test_accounts_that_the_plan_does_not_share_are_refused(data, field):
  rows = {"kind": "sequential"}
  data = changed(
    data, "sources.text", {**data["sources"]["text"], "rows": rows}
  )
  with pipeline.make_iterator(data) as it:
    for _ in range(5):
      next(it)
    saved = it.get_state()
  record = json.loads(saved)["accounts"]["text"]
  assert record["rows"] == 40
  assert record["tokens"] == 40 * 32
  assert 0 < record["loss_tokens"] < record["tokens"]
  again = pipeline.make_iterator(data)
  again.set_state(saved)
  assert again.get_state() == saved
  wrong = altered(saved, f"accounts.text.{field}", record[field] - 1)
  with pytest.raises(
    state_lib.StateError,
    match=rf"accounts\.text\.{field}: state has {record[field] - 1}, plan",
  ):
    again.set_state(wrong)


def test_a_state_without_accounts_does_not_count_everything_again(data):
  data = changed(data, "epochs", None)
  it = pipeline.make_iterator(data)
  record = json.loads(it.get_state())
  step = 10**9
  it.set_state(state_lib.encode(step, record["fingerprint"], {}))
  accounts = json.loads(it.get_state())["accounts"]["text"]
  assert accounts["rows"] == step * 8
  assert accounts["loss_tokens"] is None
