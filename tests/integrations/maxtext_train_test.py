# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Real MaxText, with the change of docs/maxtext.md, for a few steps.

`make test-maxtext` runs it. Each MaxText is in a PID namespace of its own: it
ends orphaned multiprocessing processes of all that it can see.
"""

import contextlib
import hashlib
import importlib.util
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from chomp_data import pipeline
from chomp_data.config import files
from chomp_data.testing import stores as stores_lib

ROOT = pathlib.Path(__file__).parents[2]
NAMESPACE = [
  *("unshare", "--map-root-user", "--pid", "--fork", "--mount-proc"),
  "--kill-child",
]
MODEL = [
  "base_emb_dim=32", "base_num_query_heads=2", "base_num_kv_heads=2",
  "base_mlp_dim=64", "base_num_decoder_layers=1", "head_dim=16",
  "vocab_size=256", "max_target_length=32", "attention=dot_product",
  "log_config=False",
]  # fmt: skip
FILE = """
import ml_collections

def get_config(arg="store"):
  return ml_collections.ConfigDict({{"data": {{
    "seq_len": 32, "global_batch_size": 4, "seed": 3, "epochs": 2,
    "sources": {{"text": {{
      "store": r"{root}/" + arg,
      "rows": {{"kind": "bin"}}, "shuffle": {{"kind": "full"}},
    }}}},
  }}}})
"""

pytestmark = [
  pytest.mark.slow,
  pytest.mark.timeout(1_800),
  pytest.mark.skipif(
    importlib.util.find_spec("maxtext") is None, reason="needs MaxText"
  ),
]


def added_lines(diff):
  return [own for own in diff.splitlines() if re.match(r"\+(?!\+\+ )", own)]


def apply(diff, root):
  """Applies a unified diff; what it replaces must be there just once."""
  for part in re.split(r"^--- ", diff, flags=re.MULTILINE)[1:]:
    name = re.search(r"^\+\+\+ b/(\S+)", part, flags=re.MULTILINE)[1]
    path = root / name
    text = path.read_text()
    for hunk in re.split(r"^@@.*@@.*\n", part, flags=re.MULTILINE)[1:]:
      lines = hunk.splitlines()
      was, now = (
        "".join(f"{own[1:]}\n" for own in lines if own[:1] != other)
        for other in "+-"
      )
      assert text.count(was) == 1, (name, was)
      text = text.replace(was, now)
    path.unlink()  # A link to the installed file.
    path.write_text(text)


@pytest.fixture(scope="module")
def patched(tmp_path_factory):
  """A copy of MaxText with the change of the page."""
  page = (ROOT / "docs" / "maxtext.md").read_text()
  (diff,) = re.findall(r"```diff\n(.*?)```", page, flags=re.DOTALL)
  assert len(added_lines(diff)) == 5
  root = tmp_path_factory.mktemp("patched")
  installed = importlib.util.find_spec("maxtext").submodule_search_locations[0]
  shutil.copytree(installed, root / "maxtext", copy_function=os.symlink)
  apply(diff, root)
  return root


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
  root = tmp_path_factory.mktemp("corpus")
  rng = np.random.default_rng(0)
  lengths = rng.integers(20, 400, size=40)
  documents = [rng.integers(3, 250, size=length) for length in lengths]
  stores_lib.make_store(root / "store", documents, vocab_size=256)
  # Several documents a row.
  lengths = rng.integers(3, 30, size=200)
  documents = [rng.integers(3, 250, size=length) for length in lengths]
  stores_lib.make_store(root / "short", documents, vocab_size=256)
  (root / "own.py").write_text(FILE.format(root=root))
  return root


@pytest.fixture
def train(patched, corpus, tmp_path, tmp_path_factory):
  """Returns a function that runs MaxText to its end."""
  compiled = tmp_path_factory.getbasetemp() / "compiled"

  def run(*flags, processes=1, devices=1, status=0, kill_at=None, variables=()):
    with socket.socket() as listener:
      listener.bind(("127.0.0.1", 0))
      address = f"127.0.0.1:{listener.getsockname()[1]}"
    environment = {
      **os.environ,
      "PYTHONPATH": f"{patched}:{ROOT}",
      "JAX_PLATFORMS": "cpu",
      "JAX_COMPILATION_CACHE_DIR": str(compiled),
      "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
      "DECOUPLE_GCLOUD": "TRUE",  # No Google Cloud clients.
      "HF_HUB_OFFLINE": "1",
      "HOME": str(tmp_path),
      **dict(variables),
    }
    if processes > 1 or "JOINED" in environment:
      environment |= {"COORDINATOR": address, "PROCESSES": str(processes)}
    command = [
      *NAMESPACE,
      sys.executable,
      str(ROOT / "tests" / "integrations" / "maxtext_driver.py"),
      f"base_output_directory={tmp_path}",
      "dataset_type=grain",
      "grain_file_type=chomp_data",
      *MODEL,
      *(["skip_jax_distributed_system=True"] if processes == 1 else []),
      *flags,
    ]
    logs = [tmp_path / f"log{i}" for i in range(processes)]
    with contextlib.ExitStack() as stack:
      started = []
      for i, log in enumerate(logs):
        process = subprocess.Popen(
          command,
          env={**environment, "PROCESS": str(i)},
          cwd=corpus,
          stdout=stack.enter_context(log.open("w")),
          stderr=subprocess.STDOUT,
        )
        stack.callback(process.kill)
        started.append(process)
      if kill_at is not None:
        # With SIGKILL, and all that it has started.
        while f'"step": {kill_at}' not in logs[0].read_text():
          assert started[0].poll() is None, logs[0].read_text()[-6_000:]
          time.sleep(0.05)
        for process in started:
          process.kill()
        status = -signal.SIGKILL
      found = [process.wait(timeout=600) for process in started]
    texts = [log.read_text() for log in logs]
    assert found == [status] * processes, texts[0][-6_000:]
    return texts

  return run


def rows_given(texts):
  """Returns {(step, row): hash} of what all processes were given."""
  out = {}
  for text in texts:
    for line in re.findall(r"^BATCH (.*)$", text, flags=re.MULTILINE):
      told = json.loads(line)
      for row, found in told["rows"].items():
        assert out.setdefault((told["step"], int(row)), found) == found
  return out


def rows_planned(corpus, steps, *options, rows=None):
  """Returns the same from the plan, with rows of 0 up to `rows`."""
  pipe = pipe_of(corpus, *options)
  out = {}
  for step in steps:
    batch = pipe.batch(step)
    for row in range(rows or pipe.global_batch_size):
      fields = [
        batch[name][row] if row < len(batch[name]) else 0 * batch[name][0]
        for name in sorted(batch)
      ]
      text = b"".join(value.tobytes() for value in fields)
      out[step, row] = hashlib.sha256(text).hexdigest()[:16]
  return out


def pipe_of(corpus, *options):
  options = [*options, "data.batch_format=maxtext"]
  config = files.load_config(str(corpus / "own.py"), options)
  return pipeline.build(config.data)


def trained(text):
  """Returns MaxText's own count of trained tokens, by step."""
  pattern = r"completed step: (\d+),.* total_weights: (\d+)"
  return {int(s): int(n) for s, n in re.findall(pattern, text)}


def test_it_trains_checkpoints_and_goes_on_with_other_processes(train, corpus):
  """Two processes of two devices, then one of two, then one of one."""
  saves = [
    "run_name=resumed", "enable_checkpointing=True", "checkpoint_period=2",
    "grain_train_files=own.py",
  ]  # fmt: skip
  first = train(
    *saves, "steps=3", "per_device_batch_size=1", processes=2, devices=2
  )
  assert rows_given(first) == rows_planned(corpus, range(3))
  second = train(*saves, "steps=5", "per_device_batch_size=2", devices=2)
  assert rows_given(second) == rows_planned(corpus, range(3, 5))
  third = train(*saves, "steps=6", "per_device_batch_size=4")
  assert rows_given(third) == rows_planned(corpus, [5])
  pipe = pipe_of(corpus)
  counted = trained(first[0]) | trained(second[0]) | trained(third[0])
  assert counted == {
    step: np.count_nonzero(pipe.batch(step)["targets_segmentation"])
    for step in range(6)
  }


def test_it_evaluates_from_the_first_batch_each_time(train, corpus):
  texts = train(
    "run_name=evaluated", "steps=4", "per_device_batch_size=4",
    "enable_checkpointing=False", "grain_train_files=own.py data.seed=9",
    "eval_interval=2", "eval_steps=2", "grain_eval_files=own.py data.seed=9",
  )  # fmt: skip
  # Both have one seed here, so that all of a step is the same.
  planned = rows_planned(corpus, range(4), "data.seed=9")
  assert rows_given(texts) == planned
  steps = re.findall(r'^BATCH {"step": (\d)', texts[0], flags=re.MULTILINE)
  assert steps == ["0", "0", "1", "1", "2", "0", "1", "3"]


def test_rows_that_it_loads_and_does_not_train_on_are_no_rows(train, corpus):
  options = ["data.global_batch_size=2", "data.worker_count=2"]
  texts = train(
    "run_name=halves", "steps=3", "per_device_batch_size=0.5",
    "enable_checkpointing=True", "checkpoint_period=2",
    f"grain_train_files=own.py {' '.join(options)}",
    devices=4,
  )  # fmt: skip
  assert rows_given(texts) == rows_planned(corpus, range(3), *options, rows=4)
  pipe = pipe_of(corpus, *options)
  assert sum(trained(texts[0]).values()) == (
    pipe.accounts.at(3)["text"].loss_tokens
  )


def test_an_error_of_the_input_ends_the_training_with_an_error(train, corpus):
  shutil.copytree(corpus / "store", corpus / "damaged")
  tokens = sorted((corpus / "damaged" / "tokens" / "c").iterdir())[-1]
  data = bytearray(tokens.read_bytes())
  data[len(data) // 3] ^= 1
  tokens.write_bytes(data)
  (text,) = train(
    "run_name=damaged", "steps=60", "per_device_batch_size=4",
    "enable_checkpointing=False",
    "grain_train_files=own.py:damaged data.sources.text.shuffle.kind=none",
    status=1,
  )  # fmt: skip
  assert rows_given([text])
  assert "InputFailed" in text
  assert "must have crc32c" in text


def test_what_it_cannot_do_is_said_before_it_compiles(train, corpus, tmp_path):
  flags = ["per_device_batch_size=4", "enable_checkpointing=True"]
  (text,) = train(
    *flags, "run_name=long", "steps=4000", "grain_train_files=own.py", status=1
  )
  assert re.search(r"`steps` of MaxText must be at most \d+", text)
  saved = tmp_path / "headless" / "checkpoints" / "3"
  (saved / "items").mkdir(parents=True)
  (text,) = train(
    *flags, "run_name=headless", "steps=9", "grain_train_files=own.py",
    status=1,
  )  # fmt: skip
  assert "a checkpoint must hold the input to go on from" in text


def columns_of(corpus, step, *options):
  """Returns the batch of a step in the order of `dual_chunk_swap`."""
  return pipe_of(
    corpus, *options, "data.sequence_layout.kind=dual_chunk_swap",
    "data.sequence_layout.shards=4",
  ).batch(step)  # fmt: skip


CONTEXT = [
  "per_device_batch_size=1", "ici_context_parallelism=4",
  "ici_fsdp_parallelism=1", "enable_checkpointing=False", "steps=3",
]  # fmt: skip


def test_columns_on_devices_are_those_of_our_layout(train, corpus, tmp_path):
  """MaxText permutes the fields that it trains on, and no others."""
  from maxtext.common import common_types
  from maxtext.utils import max_utils

  (tmp_path / "loaded").mkdir()
  options = [
    "data.num_targets=2",
    "data.keep_fields=('segment_ids',)",
    f"data.sources.text.store={corpus / 'short'}",
  ]
  texts = train(
    *CONTEXT,
    "run_name=context",
    f"grain_train_files=own.py {shlex.join(options)}",
    devices=4,
    variables={"LOADED": tmp_path / "loaded"},
  )
  assert rows_given(texts) == rows_planned(corpus, range(3), *options)
  pipe, counted = pipe_of(corpus, *options), trained(texts[0])
  names = [
    f"{side}{suffix}"
    for side in ("inputs", "targets")
    for suffix in ("", "_position", "_segmentation")
  ]
  others = ["targets_2", "targets_segmentation_2", "segment_ids"]
  for step in range(3):
    plain, ours = pipe.batch(step), columns_of(corpus, step, *options)
    loaded = np.load(tmp_path / "loaded" / f"{step}.npz")
    theirs = max_utils.reorder_causal_load_balanced(
      plain, 4, common_types.ReorderStrategy.DUAL_CHUNK_SWAP, "cpu"
    )
    assert set(loaded) == set(plain) == {*names, *others}
    for name in names:
      np.testing.assert_array_equal(loaded[name], ours[name], name)
      np.testing.assert_array_equal(theirs[name], ours[name], name)
      assert (ours[name] != plain[name]).any()
    for name in others:
      np.testing.assert_array_equal(loaded[name], plain[name], name)
    assert counted[step] == np.count_nonzero(plain["targets_segmentation"])


def test_two_targets_train_under_context_parallelism(train, corpus):
  """With MaxText's multi-token head, which takes columns in their order."""
  options = [
    "data.num_targets=2",
    f"data.sources.text.store={corpus / 'short'}",
  ]
  flags = [
    *CONTEXT, "mtp_num_layers=1", "mtp_loss_scaling_factor=0.1",
    f"grain_train_files=own.py {shlex.join(options)}",
  ]  # fmt: skip
  texts = train(
    *flags, "run_name=heads", "context_parallel_load_balance=False", devices=4
  )
  assert rows_given(texts) == rows_planned(corpus, range(3), *options)
  assert len(trained(texts[0])) == 3
  (text,) = train(*flags, "run_name=balanced", devices=4, status=1)
  assert "MTP does not support context_parallel_load_balance" in text


BESIDE = {
  "emergency": ["enable_emergency_checkpoint=True"],
  "multi_tier": [
    "enable_multi_tier_checkpointing=True",
    "multi_tier_checkpointing_backup_interval_minutes=30",
  ],
}


@pytest.mark.parametrize("kind", BESIDE)
def test_a_killed_run_resumes_from_checkpoints_without_its_input(
  train, corpus, tmp_path, kind
):
  """The step that MaxText restores is enough."""
  flags = [
    *BESIDE[kind], f"run_name={kind}", "enable_checkpointing=True",
    f"local_checkpoint_directory={tmp_path / 'local'}",
    "local_checkpoint_period=2", "checkpoint_period=2",
    "per_device_batch_size=4", "grain_train_files=own.py",
    # What MaxText skips is what the driver does itself.
    "skip_jax_distributed_system=True",
  ]  # fmt: skip
  (tmp_path / "local").mkdir()
  options = {"variables": {"JOINED": "1"}}
  first = train(*flags, "steps=100", kill_at=7, **options)
  again = train(*flags, "steps=12", **options)
  begin = min(step for step, _ in rows_given(again))
  assert 0 < begin <= 7
  assert min(trained(again[0])) == begin
  assert rows_given(again) == rows_planned(corpus, range(begin, 12))
  given = {step for step, _ in rows_given(first)}
  assert rows_given(first) == rows_planned(corpus, given)
  assert [path.name for path in (tmp_path / kind / "input").iterdir()] == [
    "0.json"
  ]


def test_a_batch_size_ramps_up_and_resumes(train, corpus):
  """With compilations of the sizes that it has left."""
  options = [
    "data.global_batch_size=None",
    "data.batch_size_schedule=((0, 2), (3, 4), (5, 8))",
  ]
  flags = [
    "run_name=ramp", "enable_checkpointing=True", "checkpoint_period=1",
    "per_device_batch_size=4",
    f"grain_train_files=own.py {shlex.join(options)}",
  ]  # fmt: skip
  first = train(*flags, "steps=60", kill_at=4, devices=2)
  again = train(*flags, "steps=8", devices=2)
  begin = min(step for step, _ in rows_given(again))
  assert 0 < begin <= 5
  steps = range(begin, 8)
  pipe = pipe_of(corpus, *options)
  expected = {}
  for step in range(8):
    rows = len(pipe.batch(step)["inputs"])
    assert rows == (2 if step < 3 else 4 if step < 5 else 8)
    expected |= rows_planned(corpus, [step], *options, rows=rows)
  for texts, taken in ((first, range(begin)), (again, steps)):
    rows = rows_given(texts)
    assert {key for key in expected if key[0] in taken} <= set(rows)
    assert rows.items() <= expected.items()
  assert trained(again[0]) == {
    step: np.count_nonzero(pipe.batch(step)["targets_segmentation"])
    for step in steps
  }
