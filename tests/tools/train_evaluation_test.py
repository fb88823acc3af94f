"""tools/train.py measures as it goes; tools/losses.py says what stood out."""

import json

import numpy as np
import pytest

from chomp_data import stores
from chomp_data.prepare import tokenizers
from chomp_data.testing import batch_hashes
from tests import in_process

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
      "pz_window": 12,
      "pz_prefix": 6,
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
  assert [own["step"] for own in measured] == [4, 8, 12, 14]
  for own in measured:
    assert own["held_out/bits_per_byte/web"] == pytest.approx(
      own["held_out/loss/web"] / np.log(2)
    )
    assert 0 <= own["p_z/text"] <= 1
  documents = [
    json.loads(line)
    for line in (tmp_path / "run" / "documents.jsonl").read_text().splitlines()
  ]
  last = [own for own in documents if own["step"] == 14]
  assert len([own for own in last if own["kind"] == "held_out"]) == 6
  learned = [own for own in last if own["kind"] == "p_z"]
  assert sum(own["exposures"] for own in learned) > 0
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
