"""The commands of docs/chats.md and docs/tokenizers.md run as they stand."""

import base64
import json
import os
import pathlib
import re
import shlex

import numpy as np
import pytest

from chomp_data import stores
from chomp_data.prepare.tokenizers import training
from tests import in_process

DOCS = pathlib.Path(__file__).parents[2] / "docs"


def blocks(page, language):
  text = (DOCS / page).read_text()
  return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def run(block):
  """Runs a block of one command."""
  python, tool, *flags = shlex.split(block.replace("\\\n", " "))
  assert (python, tool) == ("python", "tools/prepare.py")
  # Tools run in the root of the repository.
  here = f"{os.getcwd()}/"
  paths = re.compile("^--(input|output|tokenizer)=(?!byte$)")
  flags = [paths.sub(lambda found: found[0] + here, flag) for flag in flags]
  in_process.run_tool("prepare", *flags, check=True)


@pytest.fixture
def folder(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  texts = ["2 + 2? 4", "user: assistant:"]
  pathlib.Path("tokenizer.json").write_bytes(training.train_bpe(texts, 270))
  return tmp_path


def test_commands_for_chats_run(folder):
  chats, pairs = blocks("chats.md", "sh")
  (record,) = blocks("chats.md", "json")
  record = json.loads(record)
  pathlib.Path("chats.jsonl").write_text(json.dumps(record))
  run(chats)
  store = stores.open_store("data/chats")
  assert store.document_id(0) == "7"
  (shown,) = blocks("chats.md", "text")
  run(chats.replace("tokenizer.json", "byte").replace("data/chats", "bytes"))
  plain = stores.open_store("bytes")
  text = plain.read_document(0).astype(np.uint8).tobytes().decode()
  assert text == shown.removesuffix("\n")
  assert plain.trained_before(np.asarray([plain.num_tokens])) == [1]
  pair = {"question": "2 + 2 = ", "answer": "4"}
  pathlib.Path("pairs.jsonl").write_text(json.dumps(pair))
  run(pairs)
  assert stores.open_store("data/pairs").has_labels


def test_commands_for_tokenizers_run(folder):
  train, ranks = blocks("tokenizers.md", "sh")
  pathlib.Path("corpus").mkdir()
  pathlib.Path("corpus", "a.txt").write_text("the cat sat on the mat")
  run(train)
  store = stores.open_store("data/corpus")
  assert store.tokenizer_info.kind == "huggingface"
  pytest.importorskip("tiktoken")
  lines = [
    base64.b64encode(bytes([b])) + b" %d\n" % b for b in range(256)
  ]  # fmt: skip
  pathlib.Path("own.tiktoken").write_bytes(b"".join(lines))
  pathlib.Path("corpus.jsonl").write_text('{"text": "a"}')
  run(ranks.replace("data/corpus", "data/ranks"))
  info = stores.open_store("data/ranks").tokenizer_info
  assert (info.eos_id, info.pad_id) == (256, 100_300)
