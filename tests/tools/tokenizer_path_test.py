# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""From text to a resumed run with tokenizers that have no padding token."""

import base64
import io
import json

import pytest

from chomp_data import stores
from tests import in_process

TEXTS = [
  f"def f{i}(x):\n  return x + {i}  # the {i}th function of a small module\n"
  for i in range(120)
]


def sentencepiece_file(folder):
  sentencepiece = pytest.importorskip("sentencepiece")
  model = io.BytesIO()
  # As its trainer makes one by default: <unk>, <s> and </s>, no padding.
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(TEXTS),
    model_writer=model,
    vocab_size=300,
    model_type="bpe",
    byte_fallback=True,
    hard_vocab_limit=False,
    minloglevel=2,
  )
  path = folder / "tokenizer.model"
  path.write_bytes(model.getvalue())
  return path, ()


def tiktoken_file(folder):
  pytest.importorskip("tiktoken")
  tokens = [bytes([b]) for b in range(256)] + [b"re", b"turn"]
  path = folder / "ranks.tiktoken"
  path.write_bytes(
    b"".join(
      base64.b64encode(token) + b" %d\n" % rank
      for rank, token in enumerate(tokens)
    )
  )
  return path, (
    "--tiktoken_pattern=cl100k_base",
    "--special_token=<|endoftext|>",
  )


def train(workdir, store, steps, hashes):
  """Trains; returns the log and the hash of each step's batch."""
  done = in_process.run_tool(
    "train",
    "--config=configs/packed.py:runlocal",
    f"--workdir={workdir}",
    f"--config.data.dataset_mix={store}",
    f"--config.train.num_steps={steps}",
    f"--batch_hashes={hashes}",
    check=True,
  )
  lines = [json.loads(line) for line in hashes.read_text().splitlines()]
  return done.stderr, {line["step"]: line["sha256"] for line in lines}


@pytest.mark.slow
@pytest.mark.parametrize("make_file", [sentencepiece_file, tiktoken_file])
def test_prepare_inspect_train_and_resume_without_a_padding_token(
  tmp_path, make_file
):
  tokenizer, flags = make_file(tmp_path)
  corpus, store = tmp_path / "corpus.jsonl", tmp_path / "store"
  corpus.write_text(
    "".join(json.dumps({"text": text}) + "\n" for text in TEXTS)
  )
  in_process.run_tool(
    "prepare",
    f"--input={corpus}",
    "--text_key=text",
    f"--tokenizer={tokenizer}",
    f"--output={store}",
    *flags,
    check=True,
  )
  info = stores.open_store(store).opened.tokenizer
  assert info.pad_id is None
  line = f"Rows are padded with its EOS, id {info.eos_id},"

  shown = in_process.run_tool(
    "inspect_batches", f"--dataset_mix={store}", "--count=1", check=True
  )
  assert shown.stderr.count(line) == 1
  assert "return" in shown.stdout

  log, whole = train(tmp_path / "whole", store, 6, tmp_path / "whole.jsonl")
  assert log.count(line) == 1
  parts = tmp_path / "parts.jsonl"
  train(tmp_path / "parts", store, 4, parts)
  log, resumed = train(tmp_path / "parts", store, 6, parts)
  assert "resumed at step 4" in log
  assert resumed == whole
