# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""tools/verify_run.py on checkpoints that were forged, digests and all.

Checkpoints of a real run are changed by hand and get the digest of what they
hold then. Whatever that is, the command says in one line what is wrong: status
1 where what was handed out differs from the plan, 2 where it is not certified.
"""

import copy
import json
import math
import shutil

import hypothesis
from hypothesis import strategies as st
import pytest

from chomp_data import pipeline
from chomp_data.audit import verifying
from chomp_data.loading import certificate
from chomp_data.loading import state
from tests import in_process
from tests.tools import verify_run_test

STEPS = (10, 20, 30)
root = verify_run_test.root


@pytest.fixture(scope="module")
def job(root, tmp_path_factory):
  """The work directory of a run with checkpoints of three steps."""
  path = tmp_path_factory.mktemp("forged") / "job"
  verify_run_test.train(root, path, STEPS[-1])
  return path


@pytest.fixture(scope="module")
def other(root, tmp_path_factory):
  """That of a run of another seed."""
  path = tmp_path_factory.mktemp("forged") / "other"
  verify_run_test.train(root, path, STEPS[-1], seed=6)
  return path


def file_of(job, step):
  return job / str(step) / "input" / "input.json"


def records_of(job):
  return {n: json.loads(file_of(job, n).read_text()) for n in STEPS}


@pytest.fixture
def verified(root, job, tmp_path):
  """Runs the command on changed records, by the step of their checkpoint."""
  shutil.copytree(job, tmp_path / "job")

  def run(records=None, *flags):
    for step, record in (records or {}).items():
      record.pop("digest", None)
      record["digest"] = state.digest(record)
      file_of(tmp_path / "job", step).write_text(json.dumps(record))
    return command(root, tmp_path / "job", *flags)

  return run


def command(root, job, *flags):
  """Returns the status, and what is printed; an error is one line."""
  done = in_process.run_tool(
    "verify_run", f"--config={root}/run.py", f"--checkpoint={job}", *flags
  )
  assert "Traceback" not in done.stderr, done.stderr
  if not done.stdout:
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
  return done.returncode, done.stdout + done.stderr


def segment(root, first, last, like):
  """Returns a segment of what the plan says of some steps."""
  pipe = pipeline.build(verify_run_test.data(root))
  sums = verifying.sums(pipe, range(first, last))
  own = certificate.Segment(first, last, like["input"], sums)
  return own.record()


def set_in(field, value):
  def change(records, root):
    records[30]["certificate"][0][field] = value

  return change


def without(field):
  def change(records, root):
    del records[30]["certificate"][0][field]

  return change


def certificate_is(value):
  def change(records, root):
    records[30]["certificate"] = value

  return change


def segments(*ranges):
  def change(records, root):
    (like,) = records[30]["certificate"]
    records[30]["certificate"] = [segment(root, *own, like) for own in ranges]

  return change


def record_is(field, value, step=30):
  def change(records, root):
    records[step][field] = value

  return change


def deep(levels):
  value = []
  for _ in range(levels):
    value = [value]
  return value


def swap_records(records, root):
  records[10], records[30] = records[30], records[10]


def add_key(records, root):
  records[30]["certificate"][0]["more"] = {"a": math.nan}


def reverse_keys(records, root):
  records[30] = dict(reversed(records[30].items()))


def one_row_more(records, root):
  records[30]["certificate"][0]["rows"] += 1


def tokens_that_are_none(records, root):
  for step in STEPS:
    records[step]["certificate"][0]["tokens"] = "0" * 32


def older_plan(records, root):
  records[20]["certificate"][0]["plan"] = "1" * 32


def older_is_newer(records, root):
  """Two checkpoints of the same steps, with other sums."""
  records[20] = copy.deepcopy(records[30]) | {"checkpoint_step": 20}
  records[20]["certificate"][0]["plan"] = "1" * 32


def not_a_run(records, root):
  records[30]["fingerprint"] = 5


WRONG_COUNTS = (None, True, -1, math.nan, 2**70)
WRONG_SUMS = (7, "0x" + "1" * 30, "A" * 32, "1" * 33, "1_" * 16, "\ud800" * 32)

FORGED = {
  "nothing": (lambda records, root: None, 0, "is what the plan says"),
  "order of keys": (reverse_keys, 0, "is what the plan says"),
  "one more key": (add_key, 0, "is what the plan says"),
  "cut in two": (segments((0, 15), (15, 30)), 0, "steps 0 .. 29, 60 rows"),
  "another plan": (set_in("plan", "1" * 32), 1, "they parted between steps 20"),
  "another plan before": (older_plan, 1, "they parted between steps 10"),
  "rows": (one_row_more, 1, "they parted between steps 20"),
  "tokens": (tokens_that_are_none, 1, "they parted between steps 0"),
  "another seed": (
    lambda records, root: records[30]["fingerprint"].update(seed=6),
    1,
    "seed: state has 6, config has 5",
  ),
  "first": (set_in("first", 1), 1, "not what the plan says: of steps 1 .. 29"),
  "ends before": (segments((0, 20)), 2, "must have segments up to that step"),
  "ends beyond": (set_in("last", 31), 2, "must have segments up to that step"),
  "twice": (segments((0, 30), (0, 30)), 2, "one that ends at step 30 before"),
  "overlap": (segments((0, 20), (10, 30)), 2, "ends at step 20 before one"),
  "out of order": (segments((10, 30), (0, 10)), 2, "got some up to step 10"),
  "gap at the start": (segments((10, 30)), 2, "steps 0 .. 9 are not certified"),
  "gap": (segments((0, 10), (20, 30)), 2, "steps 10 .. 19 are not certified"),
  "part": (set_in("part", [0, 2]), 2, "certified in part, of process 0 of 2"),
  "part of a third": (set_in("part", [2, 2]), 2, "[process, processes]"),
  "part of three": (set_in("part", [0, 2, 5]), 2, "[process, processes]"),
  "input": (set_in("input", "0" * 16), 2, "an input whose fingerprint no"),
  "no input": (set_in("input", 5), 2, "`input` must be a string"),
  "empty": (certificate_is([]), 2, "must have a certificate, got none"),
  "text": (certificate_is("abc"), 2, "it must be a list, got 'abc'"),
  "numbers": (certificate_is([1]), 2, "a segment must be an object, got 1"),
  "nested deeply": (certificate_is(deep(900)), 2, "a segment must be an"),
  "another step": (record_is("step", 29), 2, "segments up to that step"),
  "no step": (record_is("step", math.nan), 2, "step must be a whole number"),
  "a step too far": (record_is("step", 2**70), 2, "step must be a whole"),
  "no fingerprint": (not_a_run, 2, "fingerprint must be an object"),
  "another schema": (record_is("schema", 2), 2, "must have schema 1, got 2"),
  "swapped": (swap_records, 2, "of the checkpoint that it lies in"),
  "of another": (record_is("checkpoint_step", 7), 2, "saved in checkpoint 7"),
  "of none": (record_is("checkpoint_step", []), 2, "saved in checkpoint []"),
  "an older one of another": (
    record_is("checkpoint_step", 10, step=20),
    2,
    "saved in checkpoint 10",
  ),
  "an older one is malformed": (
    record_is("certificate", [{}], step=20),
    2,
    "of the state of step 20 must be",
  ),
  "two tell otherwise": (older_is_newer, 2, "the same sums of steps 0 .. 29"),
  **{
    f"no {field}": (without(field), 2, f"`{field}` must be")
    for field in ("first", "last", "input", "rows", "plan")
  },
  **{
    f"{field} {value!r}": (set_in(field, value), 2, f"`{field}` must be a")
    for field, values in (("rows", WRONG_COUNTS), ("last", WRONG_COUNTS[:1]))
    for value in values
  },
  **{
    f"{field} {value!r}": (set_in(field, value), 2, "32 hexadecimal digits")
    for field, values in (("plan", WRONG_SUMS), ("tokens", WRONG_SUMS[:1]))
    for value in values
  },
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_checkpoint_is_not_verified(name, verified, job, root):
  change, status, told = FORGED[name]
  records = records_of(job)
  change(records, root)
  found, line = verified(records)
  assert found == status, line
  assert told in line


def test_steps_beside_a_gap_can_be_verified_alone(verified, job, root):
  records = records_of(job)
  segments((0, 10), (20, 30))(records, root)
  assert verified(records, "--step=20:30")[0] == 0
  assert verified(None, "--step=10:30")[0] == 2


def test_inputs_that_were_swapped_are_not_verified(verified, other, tmp_path):
  """Whole items, between checkpoints and between jobs."""
  here = tmp_path / "job"
  shutil.copytree(here / "10" / "input", here / "kept")
  shutil.rmtree(here / "10" / "input")
  shutil.move(here / "30" / "input", here / "10" / "input")
  shutil.move(here / "kept", here / "30" / "input")
  status, line = verified()
  assert (status, "saved in checkpoint 10" in line) == (2, True)
  for step in STEPS:
    shutil.copy(file_of(other, step), file_of(here, step))
  status, line = verified()
  assert (status, "seed: state has 6, config has 5" in line) == (1, True)


def test_what_is_no_state_is_not_verified(verified, job, tmp_path):
  for text in ("", "[]", "nul", "\0", '{"step": 30}', "[" * 100_000):
    file_of(tmp_path / "job", 30).write_text(text)
    assert verified()[0] == 2
  content = json.loads(file_of(job, 30).read_text()) | {"digest": "0" * 64}
  file_of(tmp_path / "job", 30).write_text(json.dumps(content))
  status, line = verified()
  assert (status, "must match its digest" in line) == (2, True)


JSON = st.recursive(
  st.none()
  | st.booleans()
  | st.integers(-1, 31)
  | st.integers()
  | st.floats()
  | st.text(max_size=4)
  | st.text("0123456789abcdef", min_size=32, max_size=32),
  lambda own: (
    st.lists(own, max_size=3)
    | st.dictionaries(st.sampled_from(["first", "last", "plan", "x"]), own)
  ),
  max_leaves=4,
)
FIELDS = ("first", "last", "input", "rows", "plan", "tokens", "part", "more")


@st.composite
def forged(draw, true):
  """Returns a certificate that was changed in one to three ways."""
  found = copy.deepcopy(true)
  for _ in range(draw(st.integers(1, 3))):
    way = draw(
      st.sampled_from(["set", "drop", "copy", "cut", "segment", "all"])
    )
    if way == "all" or not found or not isinstance(found, list):
      return draw(JSON)
    at = draw(st.integers(0, len(found) - 1))
    field = draw(st.sampled_from(FIELDS))
    if way == "copy":
      found.insert(at, copy.deepcopy(found[at]))
    elif way == "cut":
      del found[at]
    elif way == "segment":
      found[at] = draw(JSON)
    elif isinstance(found[at], dict):
      found[at].pop(field, None)
      if way == "set":
        found[at][field] = draw(JSON)
  return found


def means(certified):
  """Returns what a certificate says, as one value; None where nothing."""
  try:
    return [
      json.dumps([own[name] for name in FIELDS[:5]])
      + json.dumps([own.get(name) for name in FIELDS[5:7]])
      for own in certified
    ]
  except (TypeError, KeyError, AttributeError):
    return None


@hypothesis.given(data=st.data())
@hypothesis.settings(
  suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
def test_no_forged_certificate_is_verified(data, verified, job):
  records = records_of(job)
  true = records[30]["certificate"]
  change = data.draw(forged(true))
  records[30]["certificate"] = change
  status, line = verified(records)
  assert (status == 0) == (means(change) == means(true)), line
  assert status in (0, 1, 2)
