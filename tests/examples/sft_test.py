# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning on chats, from records to answers, by the commands it names."""

import json
import pathlib
import re

import numpy as np
import pytest

from chomp_data import pipeline
from chomp_data import stores
from configs import sft
from tests import in_process

example = in_process.imported("examples.sft")

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def chats(tmp_path_factory):
  """The toy chats as records, and prepared."""
  root = tmp_path_factory.mktemp("sft")
  records, store = root / "chats.jsonl", root / "chats"
  in_process.run_tool("examples/sft.py", f"--write_chats={records}", check=True)
  in_process.run_tool(
    "prepare",
    f"--input={records}",
    "--messages_key=messages",
    "--tokenizer=byte",
    f"--output={store}",
    check=True,
  )
  return records, store


def test_only_answers_that_weigh_are_trained_on(chats):
  records, path = chats
  config = sft.get_config().data
  config.sources.chats.store = str(path)
  pipe = pipeline.build(config)
  batch = pipe.batch(0)
  targets = np.append(
    batch["tokens"][:, 1:], batch["next_token"][:, None], axis=1
  )
  trained = bytes(targets[batch["loss_mask"] & (targets < 256)].tolist())
  # A blank line ends an answer within a chat.
  assert re.fullmatch(rb"([a-z]\.(\n\n)?)+", trained)
  text = bytes(targets[targets < 256].tolist())
  assert example.UNSURE.encode() in text
  # A whole pass trains on every answer that weighs, and on what ends each.
  answers, ends = 0, 0
  for line in records.read_text().splitlines():
    said = [m for m in json.loads(line)["messages"] if m["role"] == "assistant"]
    answers += sum("weight" not in message for message in said)
    ends += "weight" not in said[-1]
  store = stores.open_store(path)
  total = store.labels.trained_before(np.asarray([store.num_tokens]))[0]
  assert total == 2 * answers + 2 * (answers - ends)
  rows = len(pipe.sources["chats"])
  source = pipe.sources["chats"]
  mask = source.batch(np.arange(rows))["loss_mask"]
  assert source.report().long == 0
  assert mask.sum() == total + ends


def test_the_shipped_config_drops_long_chats_and_counts_them(chats):
  config = sft.get_config("runlocal").data
  config.sources.chats.store = str(chats[1])
  source = pipeline.build(config).sources["chats"]
  lengths = np.concatenate([own for _, own in source.store.iter_lengths()])
  long = int((lengths + 1 > config.seq_len).sum())
  assert source.report().long == long > 0
  plan = source.plan(np.arange(len(source)))
  assert len(np.unique(plan.document)) == len(lengths) - long
  assert (plan.start == 0).all()


@pytest.mark.slow
def test_the_example_learns_to_answer(chats):
  done = in_process.run_tool(
    "examples/sft.py",
    "--config=configs/sft.py",
    f"--config.data.sources.chats.store={chats[1]}",
    "--config.data.seq_len=128",
    "--steps=160",
    check=True,
  )
  losses = [float(own) for own in re.findall(r"loss ([\d.]+)", done.stdout)]
  assert losses[-1] < losses[0] / 3
  said = done.stdout.splitlines()[-3:]
  right = [f"{example.question(a)} {b}." for a, b in ("bc", "kl", "xy")]
  assert sum(own in right for own in said) >= 2, said
  assert not any(example.UNSURE in own for own in said)


@pytest.mark.slow
def test_the_reference_trainer_weighs_what_it_reads(tmp_path):
  """From ratings of chats and messages to the record of a run."""
  records, store = tmp_path / "rated.jsonl", tmp_path / "rated"
  with open(records, "w") as file:
    for number in range(200):
      said = {"content": "yes" * (1 + number % 3), "weight": number % 3 / 2}
      messages = [
        {"role": "user", "content": f"Is {number} a number?"},
        {"role": "assistant", **said},
      ]
      rating = (0, 0.5, 3)[number % 7 % 3]
      line = {"messages": messages, "rating": rating}
      file.write(json.dumps(line) + "\n")
  in_process.run_tool(
    "prepare",
    f"--input={records}",
    "--messages_key=messages",
    "--weight_key=rating",
    "--tokenizer=byte",
    f"--output={store}",
    check=True,
  )
  in_process.run_tool(
    "train",
    "--config=configs/sft.py:runlocal",
    f"--config.data.sources.chats.store={store}",
    f"--workdir={tmp_path / 'run'}",
    check=True,
  )
  config = sft.get_config("runlocal")
  config.data.sources.chats.store = str(store)
  pipe, steps = pipeline.build(config.data), config.train.num_steps
  # 0 of the message or of the chat is no label; the others multiply.
  weights = set()
  for step in range(steps):
    batch = pipe.batch(step)
    mask, weight = batch["loss_mask"], batch["loss_weight"]
    np.testing.assert_array_equal(weight > 0, mask)
    weights |= set(weight[mask].tolist())
  assert weights == {0.25, 0.5, 1.5, 3}
  record = json.loads((tmp_path / "run" / "metrics.json").read_text())
  own = record["by_source"]["chats"]
  assert own["loss_tokens"] == pipe.accounts.at(steps)["chats"].loss_tokens
  assert 0 < own["loss"] < 10
  assert 0 < record["evaluation"]["chats"]["validation grid"]["loss"] < 10
