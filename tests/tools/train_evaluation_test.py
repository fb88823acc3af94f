# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""tools/train.py measures as it goes; tools/losses.py says what stood out."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import numpy as np
from prometheus_client import parser
import pytest

from chomp_data import stores
from chomp_data.prepare import tokenizers
from chomp_data.testing import batch_hashes
from tests import in_process

_ROOT = pathlib.Path(__file__).resolve().parents[2]

_CONFIG = """
import ml_collections


def get_config():
  return ml_collections.ConfigDict({
    "data": {
      "seq_len": 32,
      "global_batch_size": 4,
      "seed": 5,
      "sources": {
        "text": {
          "store": "DIRECTORY/trained",
          "rows": {"kind": "sequential"},
          "shuffle": {"kind": "full"},
        }
      },
    },
    "model": {"d_model": 16, "num_layers": 1, "num_heads": 2, "mlp_dim": 16},
    "optimizer": {"warmup_steps": 2},
    "train": {"num_steps": 8, "log_every_steps": 2, "span_losses": True},
    "checkpoint": {"every_steps": 3},
    "evaluation": {
      "every_steps": 4,
      "stores": {"web": "DIRECTORY/held"},
    },
  })
"""


@pytest.mark.slow
def test_a_run_measures_as_it_goes_and_says_what_stood_out(tmp_path):
  info = tokenizers.make_tokenizer(tokenizers.TokenizerSpec()).info
  text = np.frombuffer((np.__doc__ + np.sum.__doc__).encode(), np.uint8)
  for name, documents in (
    ("trained", [text[i : i + 90] for i in range(0, 3_000, 100)]),
    ("held", [text[i : i + 60] for i in range(3_000, 3_600, 100)]),
  ):
    stores.write_store(tmp_path / name, documents, tokenizer_info=info)
  config = tmp_path / "config.py"
  config.write_text(_CONFIG.replace("DIRECTORY", str(tmp_path)))
  where = [f"--config={config}", f"--workdir={tmp_path / 'run'}"]

  in_process.run_tool("train", *where, check=True)
  # As if killed after the checkpoint of step 8: what is beyond goes.
  with open(tmp_path / "run" / "curves.jsonl", "a") as file:
    file.write('{"step": 9, "train/loss": 1.0}\n{"step": 10, "tr')
  hashes = tmp_path / "hashes.jsonl"
  in_process.run_tool(
    "train",
    *where,
    "--config.train.num_steps=14",
    f"--batch_hashes={hashes}",
    check=True,
  )

  lines = [
    json.loads(line)
    for line in (tmp_path / "run" / "curves.jsonl").read_text().splitlines()
  ]
  trained = [own["step"] for own in lines if "train/loss" in own]
  measured = [own for own in lines if "held_out/loss/web" in own]
  assert trained == [2, 4, 6, 8, 10, 12, 14]
  assert [own["rows/text"] for own in lines if "rows/text" in own] == [
    4 * step for step in trained
  ]
  logged = next(own for own in reversed(lines) if "train/loss" in own)
  assert logged["input/bytes_fetched/text"] > 0
  assert logged["input/failures"] == 0
  assert [own["step"] for own in measured] == [4, 8, 12, 14]
  for own in measured:
    assert own["held_out/bits_per_byte/web"] == pytest.approx(
      own["held_out/loss/web"] / np.log(2)
    )
  events = list((tmp_path / "run" / "tensorboard").iterdir())
  assert any(b"held_out/loss/web" in file.read_bytes() for file in events)

  found = in_process.run_tool(
    "losses",
    *where,
    "--step=9:12",
    "--format=json",
    f"--replay={tmp_path / 'batches.npz'}",
    check=True,
  )
  records = [json.loads(line) for line in found.stdout.splitlines()]
  assert records == sorted(records, key=lambda own: -own["excess"])
  assert all(9 <= own["first_step"] <= own["last_step"] < 12 for own in records)
  # The batches are those that were trained on.
  expected = {
    own["step"]: own["sha256"]
    for own in map(json.loads, hashes.read_text().splitlines())
  }
  with np.load(tmp_path / "batches.npz") as batches:
    for step in range(9, 12):
      batch = {
        name.partition("/")[2]: batches[name]
        for name in batches
        if name.startswith(f"{step}/")
      }
      assert batch_hashes.batch_sha256(batch) == expected[step]
  refused = in_process.run_tool("losses", *where, "--step=14:15")
  assert refused.returncode == 1
  assert "none of step 14" in refused.stderr


def scraped(port):
  url = f"http://127.0.0.1:{port}/metrics"
  with urllib.request.urlopen(url, timeout=10) as answer:
    text = answer.read().decode()
  return {
    sample.name: sample.value
    for family in parser.text_string_to_metric_families(text)
    for sample in family.samples
  }


@pytest.mark.slow
def test_prometheus_finds_how_a_run_is_doing(tmp_path):
  info = tokenizers.make_tokenizer(tokenizers.TokenizerSpec()).info
  text = np.frombuffer(np.__doc__.encode(), np.uint8)
  documents = [text[i : i + 90] for i in range(0, 2_000, 100)]
  stores.write_store(tmp_path / "trained", documents, tokenizer_info=info)
  config = tmp_path / "config.py"
  endless = _CONFIG.replace('"num_steps": 8', '"num_steps": 1_000_000')
  config.write_text(
    endless.replace("DIRECTORY", str(tmp_path)).replace(
      '"stores": {"web"', '"stores": None and {"web"'
    )
  )
  with open(tmp_path / "log", "w") as log:
    process = subprocess.Popen(
      [
        sys.executable,
        str(_ROOT / "tools" / "train.py"),
        f"--config={config}",
        f"--workdir={tmp_path / 'run'}",
        "--config.evaluation.every_steps=1000000",
        "--config.train.span_losses=False",
        "--config.checkpoint.every_steps=1000000",
        "--metrics_port=0",
      ],
      cwd=tmp_path,
      env={**os.environ, "PYTHONPATH": str(_ROOT)},
      stdout=subprocess.DEVNULL,
      stderr=log,
    )
  deadline = time.monotonic() + 200
  try:
    while not (
      told := re.search(
        r"metrics for Prometheus at .*:(\d+)/metrics",
        (tmp_path / "log").read_text(),
      )
    ):
      assert process.poll() is None
      assert time.monotonic() < deadline
      time.sleep(0.2)
    port = int(told[1])
    while "chomp_data_source_loss" not in (found := scraped(port)):
      assert time.monotonic() < deadline
      time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=100) == 128 + signal.SIGTERM
  finally:
    process.kill()
  assert found["chomp_data_step"] >= 2
  assert found["chomp_data_source_rows"] <= 4 * found["chomp_data_step"]
  assert 0 < found["chomp_data_train_loss"] < 10
  assert found["chomp_data_failures_total"] == 0


_OF_ROWS = """
    "data": {
      "seq_len": 32,
      "document_id": True,
      "batch_size_schedule": ((0, 4), (5, 6)),
      "skip": ((2, 3),),
      "tombstones": ((1, "DIRECTORY/gone.jsonl"),),
      "sources": {
        name: {
          "store": f"DIRECTORY/{name}",
          "rows": {"kind": "bin", "add_eos": True},
          "shuffle": {"kind": "full"},
        }
        for name in ("a", "b")
      },
      "mix": {"weights": {"a": 1, "b": 2}},
    },
"""
_IN_BUCKETS = """
    "data": {
      "remainder": "pad",
      "skip": ((2, 3),),
      "tombstones": ((1, "DIRECTORY/gone.jsonl"),),
      "buckets": {
        "kind": "length", "lengths": (16, 32), "tokens_per_batch": 128,
      },
      "sources": {
        name: {"store": f"DIRECTORY/{name}", "rows": {"add_eos": True}}
        for name in ("a", "b")
      },
      "mix": {"weights": {"a": 1, "b": 2}},
    },
"""


@pytest.mark.slow
@pytest.mark.parametrize(
  "data", [_OF_ROWS, _IN_BUCKETS], ids=["rows", "bucket"]
)
def test_two_processes_measure_what_one_does(tmp_path, data):
  info = tokenizers.make_tokenizer(tokenizers.TokenizerSpec()).info
  text = np.frombuffer((np.__doc__ + np.sum.__doc__).encode(), np.uint8)
  for i, name in enumerate(("a", "b", "held")):
    own = text[i * 1_500 : (i + 1) * 1_500]
    cut = [own[at : at + 20 + at % 37] for at in range(0, 1_400, 50)]
    stores.write_store(tmp_path / name, cut, tokenizer_info=info)
  (tmp_path / "gone.jsonl").write_text(
    "".join(
      json.dumps({"source": name, "document": i, **span}) + "\n"
      for name in ("a", "b")
      for i, span in enumerate(({}, {"start": 3, "length": 9}, {"start": 11}))
    )
  )
  config = tmp_path / "config.py"
  begin, end = _CONFIG.index('    "data"'), _CONFIG.index('    "model"')
  config.write_text(
    (_CONFIG[:begin] + data.strip("\n") + "\n" + _CONFIG[end:])
    .replace("DIRECTORY/held", str(tmp_path / "held"))
    .replace("DIRECTORY", str(tmp_path))
  )

  with socket.socket() as listener:
    listener.bind(("127.0.0.1", 0))
    address = f"127.0.0.1:{listener.getsockname()[1]}"
  processes = [
    subprocess.Popen(
      [
        sys.executable,
        str(_ROOT / "tools" / "train.py"),
        f"--config={config}",
        f"--workdir={tmp_path / 'two'}",
        f"--coordinator_address={address}",
        "--num_processes=2",
        f"--process_id={index}",
      ],
      cwd=tmp_path,
      env={**os.environ, "PYTHONPATH": str(_ROOT), "XLA_FLAGS": ""},
      stdout=subprocess.DEVNULL,
      stderr=subprocess.PIPE,
      text=True,
    )
    for index in range(2)
  ]
  try:
    errors = [own.communicate(timeout=250)[1] for own in processes]
  finally:
    for process in processes:
      process.kill()
  assert [own.returncode for own in processes] == [0, 0], errors
  in_process.run_tool(
    "train", f"--config={config}", f"--workdir={tmp_path / 'one'}", check=True
  )

  speed = ("train/tokens_per_second", "train/wait_share")
  one, two = (
    [
      {
        k: v
        for k, v in json.loads(line).items()
        # What a process reads is its own.
        if k not in speed and not k.startswith("input/")
      }
      for line in (tmp_path / name / "curves.jsonl").read_text().splitlines()
    ]
    for name in ("one", "two")
  )
  assert len(one) == len(two) > 3
  for own, other in zip(one, two, strict=True):
    assert own.keys() == other.keys()
    for name, value in own.items():
      if isinstance(value, float):
        value = pytest.approx(value, rel=1e-4, nan_ok=True)
      assert other[name] == value, name
  files = sorted((tmp_path / "one" / "span_losses").iterdir())
  assert files
  for file in files:
    with (
      np.load(file) as own,
      np.load(tmp_path / "two" / "span_losses" / file.name) as other,
    ):
      for name in ("spans", "tokens"):
        np.testing.assert_array_equal(own[name], other[name])
      np.testing.assert_allclose(own["loss"], other["loss"], rtol=1e-4)
