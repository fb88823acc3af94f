# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A directory with all that pages name, on which their blocks run."""

import base64
import gzip
import json
import pathlib
import shutil

import numpy as np
import pyarrow
import pyarrow.parquet
import zstandard

from chomp_data import stores
from chomp_data.audit import job
from chomp_data.prepare.tokenizers import training
from chomp_data.testing import stores as testing_stores
from tests.docs import pages


def write(root: pathlib.Path, stdlib_store: str) -> None:
  """Writes it.

  Args:
    root: The directory.
    stdlib_store: The store of the shipped configs.
  """
  _write_lines(root)
  _write_tables(root)
  _write_corpora(root)
  _write_tokenizers(root)
  (root / "data").mkdir()
  (root / "data" / "stdlib").symlink_to(stdlib_store)
  (root / "configs").symlink_to(pages.ROOT / "configs")
  info = stores.open_store(stdlib_store).opened.tokenizer
  rng = np.random.default_rng(0)
  for name in ("web", "code", "a", "b", "held_out", "notes", "packages"):
    documents = [rng.integers(3, 250, n) for n in rng.integers(1, 400, 200)]
    stores.write_store(
      root / "data" / name,
      documents,
      ids=[f"{name} {i}" for i in range(200)],
      tokenizer_info=info,
    )
  (root / "runs" / "packed").mkdir(parents=True)
  with job.Report(str(root / "runs" / "packed")) as report:
    report.at(7)


def _write_lines(root: pathlib.Path) -> None:
  corpus = root / "corpus"
  corpus.mkdir()
  lines = [
    json.dumps({"id": f"{i}", "text": f"a text of some length {i} " * 40})
    for i in range(200)
  ]
  (corpus / "0.jsonl").write_text("\n".join(lines))
  packed = zstandard.compress("\n".join(lines[:9]).encode())
  (corpus / "1.jsonl.zst").write_bytes(packed)
  (corpus / "a.txt").write_text("the cat sat on the mat")
  (root / "corpus.jsonl").write_text('{"text": "a"}')
  with open(root / "x.jsonl", "w") as file:
    for i in range(8):
      fields = {"lang": "en", "source": ("wiki", "books")[i % 2]}
      own = {"id": f"law/{i}", "text": "some text " * 9, **fields}
      file.write(json.dumps(own) + "\n")
  pair = {"question": "2 + 2 = ", "answer": "4"}
  (root / "pairs.jsonl").write_text(json.dumps(pair))
  (record,) = pages.blocks("chats.md", "json")
  chat = json.loads(record.text)
  (root / "chats.jsonl").write_text(json.dumps(chat))
  share = [
    {"from": "human" if own["role"] == "user" else "gpt",
     "value": own["content"]}
    for own in chat["messages"]
  ]  # fmt: skip
  (root / "share.jsonl").write_text(json.dumps({"conversations": share}))


def _write_tables(root: pathlib.Path) -> None:
  """Parquet, and what Dolma and datatrove write."""
  texts = ["a long text " * 50, "short", "a long text " * 50]
  (root / "crawl").mkdir()
  pyarrow.parquet.write_table(
    pyarrow.table(
      {"id": ["a", "b", "c"], "text": texts, "score": [0.9, 0.8, 0.1]}
    ),
    root / "crawl" / "0.parquet",
  )
  # As `dolma mix` writes documents.
  dolma = root / "dolma" / "documents" / "2019-09"
  dolma.mkdir(parents=True)
  with gzip.open(dolma / "0933_uk_all.jsonl.gz", "wt") as file:
    for i, text in enumerate(texts):
      own = {"id": f"d{i}", "text": text, "source": "cc", "metadata": {"n": i}}
      file.write(json.dumps(own) + "\n")
  # As JsonlWriter and ParquetWriter of datatrove do; what is empty is left out.
  output = root / "datatrove" / "output"
  output.mkdir(parents=True)
  records = [
    {"text": texts[0], "id": "t0", "metadata": {"language": "en", "p": 1.0}},
    {"id": "t1", "metadata": {"language": "en", "p": 0.1}},
    {"text": texts[1], "id": "t2"},
  ]
  with gzip.open(output / "00000.jsonl.gz", "wt") as file:
    for own in records:
      file.write(json.dumps(own, ensure_ascii=False) + "\n")
  batch = pyarrow.RecordBatch.from_pylist(records)
  pyarrow.parquet.write_table(pyarrow.table(batch), output / "00001.parquet")


def _write_corpora(root: pathlib.Path) -> None:
  """Token ids that others wrote."""
  corpora = root / "corpora"
  corpora.mkdir()
  megatron = pages.ROOT / "tests" / "stores" / "fixtures" / "megatron"
  for suffix in (".bin", ".idx"):
    shutil.copy(
      megatron / f"uint16_document{suffix}",
      corpora / f"web_text_document{suffix}",
    )
  documents = np.split(np.arange(9_000) % 50_000, range(500, 9_000, 500))
  testing_stores.make_array_records(corpora / "records", documents)


def _write_tokenizers(root: pathlib.Path) -> None:
  texts = ["2 + 2? 4", "user: assistant:"]
  (root / "tokenizer.json").write_bytes(training.train_bpe(texts, 270))
  ranks = [base64.b64encode(bytes([b])) + b" %d\n" % b for b in range(256)]
  (root / "own.tiktoken").write_bytes(b"".join(ranks))
