# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""inspect_batches over a store with labels: what is trained on shows."""

import json

import numpy as np
import pytest

from chomp_data import stores
from chomp_data.prepare import tokenizers
from tests import in_process

BYTE = tokenizers.make_tokenizer(tokenizers.TokenizerSpec("byte")).info
PROMPT, ANSWER, BETTER = "question? ", "so-so. ", "very good."


@pytest.fixture(scope="module")
def store(tmp_path_factory):
  """Chats of a question and two answers, of which one weighs more."""
  texts = [PROMPT, ANSWER, BETTER]
  documents = [np.frombuffer("".join(texts).encode(), np.uint8)] * 20
  levels = np.repeat([0, 2, 3], [len(text) for text in texts])
  return stores.write_store(
    tmp_path_factory.mktemp("chats") / "chats",
    documents,
    tokenizer_info=BYTE,
    levels=(0.0, 1.0, 0.5, 2.0),
    label_levels=[levels] * 20,
  ).path


def inspect(store, *args, **env):
  done = in_process.run_tool(
    "inspect_batches",
    f"--dataset_mix={store}",
    "--config.data.seq_len=64",
    "--config.data.global_batch_size=2",
    *args,
    check=True,
    env={"COLUMNS": "100", **env},
  )
  return done.stdout


def test_json_rows_have_the_weights(store):
  records = [
    json.loads(line) for line in inspect(store, "--format=json").splitlines()
  ]
  assert len(records) == 2
  for record in records:
    weight, mask = record["loss_weight"], record["loss_mask"]
    assert [own > 0 for own in weight] == mask
    assert {0.5, 2.0} <= set(weight)


def test_the_terminal_dims_what_is_not_trained_on_and_shows_weights(store):
  out = inspect(store, FORCE_COLOR="1", TERM="xterm-256color")
  styles = {PROMPT: "\x1b[2;3", ANSWER: "\x1b[3;3", BETTER: "\x1b[1;3"}
  for text, style in styles.items():
    assert any(
      piece.startswith(style[2:]) and text.strip() in piece.split("\x1b")[0]
      for piece in out.split("\x1b[")
    ), text
  assert ", weights 0.5 .. 2, mean" in out


def test_a_run_without_weights_shows_none(tmp_path):
  text = np.frombuffer(PROMPT.encode() * 20, np.uint8)
  path = stores.write_store(tmp_path / "text", [text], tokenizer_info=BYTE).path
  assert ", weights " not in inspect(path)
  assert "loss_weight" not in inspect(path, "--format=json")
